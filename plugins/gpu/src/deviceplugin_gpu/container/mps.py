"""Sharing GPUs by CUDA MPS. This plugin checks the control daemons, and does not start them.

A daemon serves one resource, and has its pipes in ``<mps-root>/<resource>/pipe`` on the host.
"""

import os
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import deviceplugin as dp
from deviceplugin_gpu.advertised.units import Unit

_VOLTA_CLIENTS: Final = 48
_OLDER_CLIENTS: Final = 16
"""Clients that MPS serves on one GPU."""
_VOLTA: Final = (7, 0)
_PATIENCE: Final = 2.0
_SHM: Final = "/dev/shm"  # noqa: S108 - where MPS clients look for it
_MIB: Final = 1 << 20
_MAX_PATH: Final = 107


def problem(root: Path, resource: str) -> str:
    """Return why the control daemon of ``resource`` cannot be used; empty if it answers.

    ``root`` is where this plugin sees mps-root.
    """
    path = root / resource / "pipe" / "control"
    if len(os.fsencode(path)) > _MAX_PATH:
        return f"the path of the MPS control daemon is too long: {path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PATIENCE)
        try:
            client.connect(str(path))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            return f"the MPS control daemon does not answer on {path}: {reason}"
    return ""


def too_many(units: Iterable[Unit]) -> dict[str, str]:
    """Return why units cannot be served, by id: MPS limits the number of clients of a GPU."""
    found = {}
    for unit in units:
        most = _VOLTA_CLIENTS if unit.gpu.compute >= _VOLTA else _OLDER_CLIENTS
        if unit.replica is not None and unit.replica >= most:
            found[unit.id] = f"GPU {unit.gpu.uuid} can have {most} replicas with MPS at most"
    return found


def allocation(units: Sequence[Unit], replicas: int, root: Path) -> dp.Allocation:
    """Return what a container needs to be a client, and the limits that it gets.

    Each of the ``replicas`` of a GPU may use an equal part of its memory and of its threads.
    ``root`` is mps-root on the host.
    """
    pipe = f"{units[0].resource}/pipe"
    gpus = {unit.gpu.uuid: unit.gpu for unit in units}
    counts = {uuid: sum(unit.gpu.uuid == uuid for unit in units) for uuid in gpus}
    memory = {uuid: gpu.memory * counts[uuid] // replicas // _MIB for uuid, gpu in gpus.items()}
    envs = {
        "CUDA_MPS_PIPE_DIRECTORY": f"/mps/{pipe}",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(min(counts.values()) * 100 // replicas),
    }
    if all(memory.values()):
        limits = (f"{ordinal}={size}M" for ordinal, size in enumerate(memory.values()))
        envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    mounts = [dp.Mount(str(root / pipe), f"/mps/{pipe}"), dp.Mount(str(root / "shm"), _SHM)]
    return dp.Allocation(envs=envs, mounts=mounts)
