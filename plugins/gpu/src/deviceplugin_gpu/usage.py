"""Who uses a shared GPU, and how much: memory and time of each container, as far as it is known.

What is unknown is absent, and the log says why. Nobody is charged for a process that may be
another's: one that has just started, whose id was given again, or that is in no pod's container.
"""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from deviceplugin.kit.containers import Container, Process, Processes
from deviceplugin.kit.log import Problems
from deviceplugin_gpu.nvml.api import NvmlError, Session, call
from deviceplugin_gpu.nvml.processes import Share, memory_by_pid, shares
from deviceplugin_gpu.recent import Recent
from deviceplugin_gpu.snapshot import Gpu, Mig, Snapshot

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)

_LABELS: Final = ("uuid", "resource", "device", "namespace", "pod", "container")
_MEMORY, _RATIO = "memory_used_bytes", "utilization_ratio"
_CONTAINER: Final = "deviceplugin_gpu_container_"
_MEASURED: Final = {
    _MEMORY: "Memory of a GPU or MIG device that a container uses, in bytes.",
    _RATIO: "Share of time in which a container kept the multiprocessors busy, 0 to 1.",
}
_OTHERS: Final = (
    f"deviceplugin_gpu_unattributed_{_MEMORY}",
    "Memory that processes use whose pod is unknown, or that are in none, in bytes.",
)
_MOST: Final = 1000
"""Rows. A GPU has contexts for a few hundred processes."""
_LONGEST: Final = 60.0
"""Seconds for which samples are averaged at most; otherwise since they were last read."""
_TRANSLATING: Final = 515
"""The first driver known to write ids of processes as the PID namespace of the caller has them."""

Holder = tuple[str, ...]
"""Resource, device, namespace, pod and container; the first two are empty if it was not given."""


class Row(NamedTuple):
    """What a container uses of a GPU or a MIG device."""

    gpu: str
    uuid: str
    container: Container | None
    """None: all processes of no container, or of an unknown one."""
    used: Mapping[str, float]
    """By the end of the metric's name. NaN is unknown."""


class GpuUsage:
    """What containers use of the GPUs. Thread-safe; ``clock`` returns monotonic seconds."""

    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._session, self._clock = session, clock
        self.recent = Recent[Sequence[Row]]("gpu-usage", (), clock)
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
        now, before, wall = self._clock(), processes.now(), time.time()
        since = wall - min(now - self._read_at, _LONGEST)
        self._read_at = now
        of_machine = processes.of_machine()
        used: dict[tuple[str, str], Mapping[int, float]] = {}
        busy: dict[str, Mapping[int, Share]] = {}
        for gpu, mig in _parts(gpus):
            try:
                with self._session.use():
                    device = self._session.gpu(gpu.uuid, gpu.pci)
                    if mig:
                        device = call("nvmlDeviceGetMigDeviceHandleByIndex", device, mig.index)
                    uuid = call("nvmlDeviceGetUUID", device)
                    used[gpu.uuid, uuid] = memory_by_pid(device)
                    if of_machine:
                        busy[uuid] = shares(device, since)
            except NvmlError as error:
                problems.append(f"{gpu.uuid}: {error}")
        found = processes.find({pid for pids in used.values() for pid in pids}, before)
        for names, memory in used.items():
            sums = _sums(memory, busy.get(names[1]), found, wall - before)
            yield from (Row(*names, *each) for each in sums.items())


def _translation_problem(processes: Processes, driver: str) -> str:
    major = driver.partition(".")[0]
    if processes.of_machine() or (major.isdecimal() and int(major) >= _TRANSLATING):
        return ""
    return f"this node is a container: driver {driver} writes ids of processes as the machine does"


def _parts(gpus: Iterable[Gpu]) -> Iterator[tuple[Gpu, Mig | None]]:
    """Yield GPUs with their parts, or None for the whole."""
    for gpu in gpus:
        if not gpu.problem:  # its health has the reason
            for mig in gpu.migs if gpu.mig_enabled else [None]:
                yield gpu, mig


def _sums(
    memory: Mapping[int, float],
    busy: Mapping[int, Share] | None,
    found: Mapping[int, Process],
    epoch: float,
) -> Mapping[Container | None, Mapping[str, float]]:
    sums = defaultdict[Container | None, dict[str, float]](_zeros)
    for pid in memory.keys() & found.keys():
        share = Share() if busy is None else busy.get(pid, Share(ratio=0))
        # A sample can be older than the process that has the id now.
        is_its = share.sampled >= found[pid].started + epoch
        total = sums[found[pid].container]
        total[_MEMORY] += memory[pid]
        total[_RATIO] = min(total[_RATIO] + (share.ratio if is_its else math.nan), 1)
    return sums


def _zeros() -> dict[str, float]:
    return dict.fromkeys(_MEASURED, 0)


def _charged(
    rows: Iterable[Row], holders: Iterable[Holder], made: Mapping[str, str]
) -> Iterator[tuple[Row, Holder]]:
    """Yield each row with who is charged; an empty holder if that is unknown.

    Of several shares of one GPU that a container has, the first is charged.
    """
    given: dict[tuple[str, ...], Holder] = {}
    for holder in sorted(holders, key=lambda one: (len(one[1]), one[1])):
        uuid = made.get(holder[1]) or holder[1].partition("::")[0]
        given.setdefault((uuid, *holder[2:5]), holder[:5])
    for row in rows:
        owner = row.container or ()
        held = given.get((row.uuid, *owner)) or given.get((row.gpu, *owner))
        yield row, held or (owner and ("", "", *owner))


def families(
    rows: Iterable[Row], holders: Iterable[Holder], made: Mapping[str, str]
) -> "list[Metric]":
    """Return ``rows`` as metrics. ``made`` has the UUIDs of parts by their ids."""
    from prometheus_client.metrics_core import GaugeMetricFamily

    found = {
        name: GaugeMetricFamily(_CONTAINER + name, text, labels=_LABELS)
        for name, text in _MEASURED.items()
    }
    others = {_MEMORY: GaugeMetricFamily(*_OTHERS, labels=["uuid"])}
    for row, holder in _charged(rows, holders, made):
        for name, family in (found if holder else others).items():
            if not math.isnan(row.used[name]):
                family.add_metric([row.uuid, *holder], row.used[name])
    return [family for family in (*found.values(), *others.values()) if family.samples]


def by_holder(
    rows: Iterable[Row], holders: Iterable[Holder], made: Mapping[str, str]
) -> Mapping[Holder, Mapping[str, float]]:
    """Return what holders use of their devices: of a whole GPU, what they use of its parts."""
    found = defaultdict[Holder, dict[str, float]](_zeros)
    for row, holder in _charged(rows, holders, made):
        for name, value in row.used.items():
            found[holder][name] += value
    found.pop((), None)
    return {
        holder: {name: value for name, value in used.items() if not math.isnan(value)}
        for holder, used in found.items()
    }
