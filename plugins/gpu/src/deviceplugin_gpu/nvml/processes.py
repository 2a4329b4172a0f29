"""The processes that use a GPU or a MIG device, and how much of it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple

from deviceplugin_gpu.nvml.api import (
    FUNCTION_NOT_FOUND,
    MISSING,
    NOT_FOUND,
    Handle,
    NvmlError,
    call,
)

_LISTS: Final = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
_NONE: Final = 1 << 63
"""From here on a number means that there is no value."""
_ALL: Final = 100
"""Percent."""
_IDLE: Final = frozenset({0, NOT_FOUND})
"""What pynvml raises if there are no samples."""


class Share(NamedTuple):
    """How busy a process kept the multiprocessors of a GPU, of 1."""

    sampled: float
    """In seconds since the epoch."""
    ratio: float


def memory_by_pid(device: Handle) -> Mapping[int, int | None]:
    """Return the bytes that each process on ``device`` uses; None for one that are unknown.

    Raise NvmlError if the processes are unknown. A process can be in several lists, with the same
    memory.
    """
    found: dict[int, int | None] = {}
    for function in _LISTS:
        try:
            processes = _listed(function, device)
        except NvmlError as error:
            if error.code not in MISSING or function == _LISTS[0]:
                raise
            continue  # there are no graphics, or no MPS
        for one in processes:
            memory = one.usedGpuMemory
            known = None if memory is None or memory >= _NONE else int(memory)
            before = found.get(one.pid)
            found[one.pid] = known if before is None else max(before, known or 0)
    return found


def _listed(function: str, device: Handle) -> Any:
    try:
        return call(f"{function}_v3", device)
    except NvmlError as error:
        if error.code != FUNCTION_NOT_FOUND:
            raise
        return call(f"{function}_v2", device)


def shares(gpu: Handle, since: float) -> Mapping[int, Share | None]:
    """Return how busy processes kept ``gpu`` since then, which is in seconds since the epoch.

    One that is missing was idle, and None is unknown: the driver sometimes reports more than 100 %.
    Raise NvmlError if nothing is known, as of a GPU that was busy while no process was.
    """
    try:
        samples = call("nvmlDeviceGetProcessUtilization", gpu, int(since * 1e6))
    except NvmlError as error:
        if error.code not in _IDLE or call("nvmlDeviceGetUtilizationRates", gpu).gpu:
            raise
        return {}
    found = defaultdict[int, list[Share]](list)
    for one in samples:
        if one.timeStamp > since * 1e6:
            found[one.pid].append(Share(one.timeStamp / 1e6, one.smUtil / _ALL))
    return {pid: _mean(all_of_it) for pid, all_of_it in found.items()}


def _mean(samples: Sequence[Share]) -> Share | None:
    if any(one.ratio > 1 for one in samples):
        return None
    return Share(min(one.sampled for one in samples), fmean(one.ratio for one in samples))
