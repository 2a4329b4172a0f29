"""Who uses a shared GPU, and how much: memory and time of each container, as far as it is known.

What is unknown is absent, and the log says why. Nobody is charged for a process that may be
another's: one that has just started, whose id was given again, or that is in no pod's container.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

from deviceplugin.kit.containers import Container, Process, Processes
from deviceplugin.kit.log import Problems
from deviceplugin_gpu.nvml.api import NvmlError, Session, call
from deviceplugin_gpu.nvml.processes import Share, memory_by_pid, shares
from deviceplugin_gpu.recent import Recent
from deviceplugin_gpu.snapshot import Gpu, Snapshot

log = logging.getLogger(__name__)

_PREFIX: Final = "deviceplugin_gpu_"
_LABELS: Final = ("uuid", "resource", "device", "namespace", "pod", "container")
_MEMORY, _RATIO = "memory_used_bytes", "utilization_ratio"
_MEASURED: Final = {
    _MEMORY: "Memory of a GPU or MIG device that a container uses, in bytes.",
    _RATIO: "Share of time in which a container kept the multiprocessors busy, 0 to 1.",
}
_OTHERS: Final = "Memory that processes use whose pod is unknown, or that are in none, in bytes."
_MOST: Final = 1000
"""Rows. A GPU has contexts for a few hundred processes."""
_SHORTEST, _LONGEST = 1.0, 60.0
"""Seconds for which samples are averaged: since they were last read, within these."""
_TRANSLATING: Final = 515
"""The first driver known to write ids of processes as the PID namespace of the caller has them."""

Holder = tuple[str, ...]
"""Resource, device, namespace, pod and container; the first two are empty if it was not given."""


class Row(NamedTuple):
    """What a container uses of a GPU or a MIG device. None is unknown."""

    gpu: str
    uuid: str
    container: Container | None
    """None: all processes of no container, or of an unknown one."""
    memory: float | None
    ratio: float | None


class GpuUsage:
    """What containers use of the GPUs. Thread-safe; ``clock`` returns monotonic seconds."""

    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._session, self._clock = session, clock
        nothing: Sequence[Row] = ()
        self.recent = Recent("gpu-usage", nothing, clock)
        self._problems = Problems(log)
        self._read_at = float("-inf")

    def begin(self, snapshot: Snapshot, processes: Processes) -> Callable[[], Sequence[Row]]:
        """Begin to measure, and return what has what is known: of the last 5 s if possible."""
        return self.recent.begin(partial(self._read, snapshot, processes))

    def _read(self, snapshot: Snapshot, processes: Processes) -> Sequence[Row]:
        problems: list[str] = []
        rows: list[Row] = []
        try:
            if why := processes.problem() or _translation_problem(processes, snapshot.driver):
                problems.append(why)
            else:
                rows += self._rows(snapshot.gpus, processes, problems)
        except OSError as error:
            problems.append(f"{error.filename}: {error.strerror}")
        if len(rows) > _MOST:
            problems.append(f"{len(rows) - _MOST} containers more than {_MOST}")
        self._problems.say_all("GPU usage incomplete", problems)
        return rows[:_MOST]

    def _rows(
        self, gpus: Iterable[Gpu], processes: Processes, problems: list[str]
    ) -> Iterator[Row]:
        now, before = self._clock(), processes.now()
        epoch = time.time() - before
        since = time.time() - min(max(now - self._read_at, _SHORTEST), _LONGEST)
        self._read_at = now
        used: dict[tuple[str, str], Mapping[int, int | None]] = {}
        busy: dict[str, Mapping[int, Share | None]] = {}
        for gpu in gpus:
            if gpu.problem:
                continue  # its health has the reason
            for uuid in [mig.uuid for mig in gpu.migs] if gpu.mig_enabled else [gpu.uuid]:
                try:
                    with self._session.use():
                        device = call("nvmlDeviceGetHandleByUUID", uuid)
                        used[gpu.uuid, uuid] = memory_by_pid(device)
                        if processes.of_machine():
                            busy[uuid] = shares(device, since)
                except NvmlError as error:
                    problems.append(f"{gpu.uuid}: {error}")
        found = processes.find({pid for pids in used.values() for pid in pids}, before)
        for names, memory in used.items():
            yield from _of_device(names, memory, busy.get(names[1]), found, epoch)


def _translation_problem(processes: Processes, driver: str) -> str:
    major = driver.partition(".")[0]
    if processes.of_machine() or (major.isdigit() and int(major) >= _TRANSLATING):
        return ""
    return f"this node is a container: driver {driver} writes ids of processes as the machine does"


def _of_device(
    names: tuple[str, str],
    memory: Mapping[int, int | None],
    busy: Mapping[int, Share | None] | None,
    found: Mapping[int, Process],
    epoch: float,
) -> Iterator[Row]:
    pids = defaultdict[Container | None, list[int]](list)
    for pid in memory.keys() & found.keys():
        pids[found[pid].container].append(pid)

    def ratio(pid: int) -> float | None:
        if busy is None or pid not in busy:
            return None if busy is None else 0.0
        share = busy[pid]
        # A sample can be older than the process that has the id now.
        is_its = share and share.sampled >= found[pid].started + epoch
        return share.ratio if share and is_its else None

    for container, own in pids.items():
        total = _sum(map(ratio, own))
        used = _sum(memory[pid] for pid in own)
        yield Row(*names, container, used, None if total is None else min(total, 1.0))


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of ``values``; None if one is unknown."""
    known = [*values]
    return None if None in known else sum(filter(None, known))


def _charged(
    rows: Iterable[Row], holders: Iterable[Holder]
) -> Iterator[tuple[str, Holder, Mapping[str, float]]]:
    """Yield the UUID, the container and what is known, by the end of the metric's name.

    Of several shares of one GPU that a container has, the first is charged.
    """
    given: dict[tuple[str, ...], Holder] = {}
    for holder in sorted(holders, key=lambda one: (len(one[1]), one[1])):
        given.setdefault((holder[1].partition("::")[0], *holder[2:5]), holder[:5])
    for row in rows:
        if owner := row.container:
            held = given.get((row.uuid, *owner)) or given.get((row.gpu, *owner))
            values = {_MEMORY: row.memory, _RATIO: row.ratio}
            known = {name: value for name, value in values.items() if value is not None}
            yield row.uuid, held or ("", "", *owner), known


def families(rows: Sequence[Row], holders: Iterable[Holder]) -> list[Metric]:
    """Return ``rows`` as metrics."""
    found = {
        name: GaugeMetricFamily(f"{_PREFIX}container_{name}", text, labels=_LABELS)
        for name, text in _MEASURED.items()
    }
    for uuid, holder, values in _charged(rows, holders):
        for name, value in values.items():
            found[name].add_metric([uuid, *holder], value)
    others = GaugeMetricFamily(f"{_PREFIX}unattributed_{_MEMORY}", _OTHERS, labels=["uuid"])
    for row in rows:
        if row.container is None and row.memory is not None:
            others.add_metric([row.uuid], row.memory)
    return [family for family in (*found.values(), others) if family.samples]


def by_holder(rows: Iterable[Row], holders: Iterable[Holder]) -> Mapping[Holder, dict[str, float]]:
    """Return what holders use of their devices: of a whole GPU, what they use of its parts."""
    found = defaultdict[Holder, dict[str, float]](dict)
    for _, holder, values in _charged(rows, holders):
        for name, value in values.items():
            found[holder][name] = found[holder].get(name, 0) + value
    return found
