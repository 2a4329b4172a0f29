"""Comparing what the plugin says of GPUs with what ``nvidia-smi`` says."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from deviceplugin.checks import Finding, Found, failure, ok, unknown
from deviceplugin_gpu.accept.results import ISSUE, gib
from deviceplugin_gpu.accept.runtime import ProgramError, ask
from deviceplugin_gpu.nvml.library import DIRECTORIES, candidates

_PROGRAM: Final = "nvidia-smi"
_BELOW: Final = ("usr/bin", "bin", "usr/local/bin", "usr/local/nvidia/bin", "opt/bin")
_QUERY: Final = ("index", "uuid", "pci.bus_id", "memory.total", "driver_version", "name")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_NUMA: Final = "NUMA Affinity"
_ROUNDED: Final = 0.001
_MIB_OF_GIB: Final = 1024


def compare(devices: Sequence[Found], config: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield for each GPU what is the same by ``nvidia-smi``, and what is not."""
    try:
        smi = _program(Path(config["driver-root-ctr-path"]))
        rows = _gpus(smi(f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"))
    except ProgramError as error:
        yield unknown(_PROGRAM, str(error))
        return
    try:
        numa = _affinity(smi("topo", "-m"))
    except ProgramError:  # not in each release, nor on each platform
        numa = {}
    whole = {one.hardware: one for one in devices if not one.attributes.get("parentUUID")}
    parents = {one.attributes.get("parentUUID") for one in devices}
    for row in rows:
        if device := whole.pop(row["uuid"], None):
            yield _compared(device, row, numa.get(f"GPU{row['index']}", ""))
        elif row["uuid"] not in parents:
            do = "see exclude and include, or the log of the plugin."
            yield unknown(row["uuid"], f"GPU {row['index']} ({row['name']}) is not offered", do)
    for uuid in whole:
        yield failure(uuid, f"{_PROGRAM} does not have it", means="its id may be wrong.", do=ISSUE)


def _program(root: Path) -> partial[str]:
    path = ":".join([os.environ.get("PATH", ""), *(str(root / one) for one in _BELOW)])
    program = shutil.which(_PROGRAM, path=path)
    if program is None:
        raise ProgramError("is not on this machine")
    variables = dict(os.environ)
    if program.startswith(f"{root}/"):  # its library is nowhere else
        found = [one for folder in DIRECTORIES for one in candidates(root, folder)][:1]
        variables["LD_LIBRARY_PATH"] = ":".join(str(Path(one).parent) for one in found)
    return partial(ask, program, environment=variables)


def _gpus(text: str) -> list[dict[str, str]]:
    lines = text.strip().splitlines()
    rows = [[cell.strip() for cell in line.split(",", len(_QUERY) - 1)] for line in lines]
    found = [dict(zip(_QUERY, row, strict=True)) for row in rows if len(row) == len(_QUERY)]
    if not found:
        raise ProgramError(f"names no GPU: {lines[0] if lines else 'it prints nothing'}")
    return found


def _affinity(text: str) -> dict[str, str]:
    """Return the NUMA node of each GPU, by ``GPU0`` and so on; empty if it is not told."""
    lines = _COLOUR.sub("", text).splitlines()
    rows = [[cell.strip() for cell in line.split("\t")] for line in lines]
    column = next((row.index(_NUMA) for row in rows if _NUMA in row), len(text))
    return {row[0]: row[column] for row in rows if len(row) > column}


def _compared(device: Found, row: Mapping[str, str], numa: str) -> Finding:
    address = row["pci.bus_id"]
    domain = address.partition(":")[0]  # of eight digits here, and of four in sysfs
    theirs = {
        "index": row["index"],
        "pci": domain[-4:] + address[len(domain) :],
        "model": row["name"],
    }
    ours = {name: str(device.attributes.get(name, "")) for name in theirs}
    wrong = [f"{k} {ours[k]} is {v}" for k, v in theirs.items() if ours[k].lower() != v.lower()]
    size, total = gib(device), row["memory.total"]
    if size and total.isdecimal() and abs(size - int(total) / _MIB_OF_GIB) > _ROUNDED * size:
        wrong.append(f"memory {size:g}Gi is {total} MiB")
    # A machine of one node may tell none, which is 0 here.
    if numa.isdecimal() and [int(numa)] != [*(device.numa or [0])]:
        wrong.append(f"NUMA {[*device.numa]} is {numa}")
    if wrong:
        return failure(device.id, "; ".join(wrong), means="labels would be wrong.", do=ISSUE)
    shown = "NUMA" if numa else "it tells no NUMA node"
    return ok(device.id, f"driver {row['driver_version']}; same index, PCI, model, memory; {shown}")
