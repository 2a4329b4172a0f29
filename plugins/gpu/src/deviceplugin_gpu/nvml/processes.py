"""The processes that use a GPU or a MIG device, and how much of it."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from deviceplugin_gpu.nvml.api import NOT_FOUND, Handle, NvmlError, ask, call

_LIST: Final = "nvmlDeviceGet{}RunningProcesses_v3"
_ALL: Final = 100
"""Percent."""


class Share(NamedTuple):
    """How busy a process kept the multiprocessors of a GPU, of 1."""

    sampled: float = math.inf
    """In seconds since the epoch."""
    ratio: float = math.nan
    """NaN is unknown: the driver sometimes reports more than 100 %."""


def memory_by_pid(device: Handle) -> Mapping[int, float]:
    """Return the bytes that each process on ``device`` uses; NaN for one that are unknown.

    Raise NvmlError if the processes are unknown. A process can be in several lists, with the same
    memory.
    """
    listed = [*call(_LIST.format("Compute"), device)]
    for kind in ("Graphics", "MPSCompute"):  # not every GPU has these
        listed += ask((), _LIST.format(kind), device)
    found = defaultdict[int, list[int]](list)
    for one in listed:
        found[one.pid] += [] if one.usedGpuMemory is None else [one.usedGpuMemory]
    return {pid: max(own, default=math.nan) for pid, own in found.items()}


def shares(gpu: Handle, since: float) -> Mapping[int, Share]:
    """Return how busy processes kept ``gpu`` since then, which is in seconds since the epoch.

    One that is missing was idle. Raise NvmlError if nothing is known, as of a GPU that was busy
    while no process was.
    """
    try:
        samples = call("nvmlDeviceGetProcessUtilization", gpu, int(since * 1e6))
    except NvmlError as error:
        # Without samples, pynvml raises success.
        if error.code not in {0, NOT_FOUND} or call("nvmlDeviceGetUtilizationRates", gpu).gpu:
            raise
        return {}
    found = defaultdict[int, list[Any]](list)
    for one in samples:
        if one.timeStamp > since * 1e6:
            found[one.pid].append(one)
    return {pid: _mean(own) for pid, own in found.items()}


def _mean(samples: Sequence[Any]) -> Share:
    percents = [one.smUtil for one in samples]
    ratio = sum(percents) / len(percents) / _ALL if max(percents) <= _ALL else math.nan
    return Share(min(one.timeStamp for one in samples) / 1e6, ratio)
