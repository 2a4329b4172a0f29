"""Comparing what the plugin says of GPUs with what ``nvidia-smi`` says."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deviceplugin.checks import Finding, Found, failure, ok, unknown
from deviceplugin_gpu.accept.results import hardware
from deviceplugin_gpu.nvml.library import DIRECTORIES, candidates

_PROGRAM: Final = "nvidia-smi"
_BELOW: Final = ("usr/bin", "bin", "usr/local/bin", "usr/local/nvidia/bin", "opt/bin")
_PATIENCE: Final = 20.0
_QUERY: Final = ("index", "uuid", "pci.bus_id", "memory.total", "driver_version", "name")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_NUMA: Final = "NUMA Affinity"
_ROUNDED: Final = 0.001
_MIB_OF_GIB: Final = 1024


class SmiError(Exception):
    """``nvidia-smi`` does not answer; the message says why."""


def compare(devices: Sequence[Found], config: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield for each GPU what is the same by ``nvidia-smi``, and what is not."""
    try:
        rows = _gpus(config)
    except SmiError as error:
        yield unknown(_PROGRAM, str(error))
        return
    numa = _affinity(config)
    whole = {hardware(one.id): one for one in devices if not one.attributes.get("parentUUID")}
    parents = {str(one.attributes.get("parentUUID")) for one in devices}
    for row in rows:
        uuid = row["uuid"]
        if uuid in whole:
            yield from _differences(whole.pop(uuid), row, numa.get(f"GPU{row['index']}"))
        elif uuid not in parents:
            do = "see exclude and include, or the log of the plugin."
            what = f"GPU {row['index']} ({row['name']}) is not offered"
            yield unknown(uuid, what, do)
    for uuid in whole:
        yield failure(uuid, f"{_PROGRAM} does not have it", means="its id may be wrong.", do=_ISSUE)


_ISSUE: Final = "attach the report to an issue."


def _differences(device: Found, row: Mapping[str, str], numa: str | None) -> Iterator[Finding]:
    theirs = {"index": row["index"], "pci": _address(row["pci.bus_id"]), "model": row["name"]}
    wrong = [
        f"{name} {device.attributes.get(name)} is {value}"
        for name, value in theirs.items()
        if str(device.attributes.get(name, "")).lower() != value.lower()
    ]
    wrong += _memory(str(device.attributes.get("memory", "")), row["memory.total"])
    if numa is not None and numa.isdecimal() and [int(numa)] != [*device.numa]:
        wrong.append(f"NUMA {[*device.numa]} is {numa}")
    shown = f"driver {row['driver_version']}; index, PCI, model, memory"
    shown += ", NUMA" if numa is not None else "; it tells no NUMA node"
    if wrong:
        yield failure(device.id, "; ".join(wrong), means="labels would be wrong.", do=_ISSUE)
    else:
        yield ok(device.id, f"the same: {shown}")


def _memory(ours: str, theirs: str) -> list[str]:
    if not (ours.endswith("Gi") and theirs.isdecimal()):
        return []
    wanted = float(ours.removesuffix("Gi")) * _MIB_OF_GIB
    return (
        [] if abs(wanted - int(theirs)) <= _ROUNDED * wanted else [f"memory {ours} is {theirs} MiB"]
    )


def _address(text: str) -> str:
    """Return a PCI address as sysfs writes it: here the domain has eight digits."""
    return text[4:] if len(text.partition(":")[0]) == len("00000000") else text


def _gpus(config: Mapping[str, Any]) -> list[dict[str, str]]:
    words = [f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    lines = _ask(config, *words).strip().splitlines()
    rows = [[cell.strip() for cell in line.split(",", len(_QUERY) - 1)] for line in lines]
    found = [dict(zip(_QUERY, row, strict=True)) for row in rows if len(row) == len(_QUERY)]
    if not found:
        raise SmiError(f"names no GPU: {lines[0] if lines else 'it prints nothing'}")
    return found


def _affinity(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the NUMA node of each GPU, by ``GPU0`` and so on; empty if it is not told."""
    try:
        lines = _COLOUR.sub("", _ask(config, "topo", "-m")).splitlines()
    except SmiError:
        return {}
    header = next((line.split("\t") for line in lines if _NUMA in line), [])
    column = [cell.strip() for cell in header].index(_NUMA) if header else 0
    rows = [[cell.strip() for cell in line.split("\t")] for line in lines]
    return {row[0]: row[column] for row in rows if column and len(row) > column and row[0]}


def _ask(config: Mapping[str, Any], *words: str) -> str:
    root = Path(config["driver-root-ctr-path"])
    path = ":".join([os.environ.get("PATH", ""), *(str(root / one) for one in _BELOW)])
    program = shutil.which(_PROGRAM, path=path)
    if program is None:
        raise SmiError("is not on this machine")
    variables = dict(os.environ)
    if program.startswith(f"{root}/"):  # its library is nowhere else
        found = [one for folder in DIRECTORIES for one in candidates(root, folder)][:1]
        variables["LD_LIBRARY_PATH"] = ":".join(str(Path(one).parent) for one in found)
    try:
        done = subprocess.run(  # noqa: S603 - the vendor's own program
            [program, *words],
            env=variables,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SmiError(str(error)) from error
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
        raise SmiError(f"status {done.returncode}: {lines[-1]}")
    return done.stdout
