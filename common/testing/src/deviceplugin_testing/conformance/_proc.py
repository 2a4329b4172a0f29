"""Facts from ``/proc`` about a process and its descendants.

If a process ends, or starts another, while it is being read, only what was still there counts.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")

_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Holdings:
    """The memory, threads and descriptors of a process tree at one moment."""

    rss: int
    """Resident bytes. A shared page counts for each process."""
    pss: int
    """Proportional resident bytes. Of a page that N processes share, 1/N counts for each."""
    threads: int
    descriptors: int
    sockets: int
    """Descriptors that are sockets."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The work of the threads of a process tree so far. The difference of two is their work."""

    by_thread: Mapping[int, tuple[int, int]]
    """Nanoseconds of CPU time, and number of times that the thread went to sleep, by thread id."""

    @property
    def total(self) -> int:
        """Nanoseconds of CPU time of all threads that there are."""
        return sum(cpu for cpu, _ in self.by_thread.values())

    def since(self, earlier: "Activity") -> tuple[float, int]:
        """Return CPU seconds and wake-ups since ``earlier``.

        A thread that was started since counts in full; one that has ended does not count.
        """
        cpu = wakeups = 0
        for thread, (now_cpu, now_wakeups) in self.by_thread.items():
            then_cpu, then_wakeups = earlier.by_thread.get(thread, (0, 0))
            cpu += now_cpu - then_cpu
            wakeups += now_wakeups - then_wakeups
        return cpu / 1e9, wakeups


def holdings(pid: int) -> Holdings:
    """Return what ``pid`` and its descendants have now; zeros if there is no such process."""
    pids = list(family(pid))
    sizes = [_sizes(PROC / str(each) / "smaps_rollup") for each in pids]
    links = [link for each in pids for link in _descriptors(each)]
    return Holdings(
        rss=sum(rss for rss, _ in sizes),
        pss=sum(pss for _, pss in sizes),
        threads=sum(len(list(_threads(each))) for each in pids),
        descriptors=len(links),
        sockets=sum(link.startswith("socket:") for link in links),
    )


def activity(pid: int) -> Activity:
    """Return what the threads of ``pid`` and its descendants have done so far."""
    found = {}
    for each in family(pid):
        for thread in _threads(each):
            with suppress(OSError):
                found[int(thread.name)] = (_cpu(thread), _sleeps(thread))
    return Activity(found)


def family(pid: int) -> Iterator[int]:
    """Yield ``pid`` and its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parents.setdefault(_parent(entry), []).append(int(entry.name))
    todo = [pid]
    while todo:
        each = todo.pop()
        todo += parents.get(each, [])
        yield each


def _parent(process: Path) -> int:
    # The second field is the command in parentheses, which can contain anything.
    text = (process / "stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[1])


def _threads(pid: int) -> Iterator[Path]:
    with suppress(OSError):
        yield from (PROC / str(pid) / "task").iterdir()


def _descriptors(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for path in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                yield str(path.readlink())


def _sizes(rollup: Path) -> tuple[int, int]:
    with suppress(OSError):
        fields = _fields(rollup)
        return int(fields["Rss"].split()[0]) * _KIB, int(fields["Pss"].split()[0]) * _KIB
    return 0, 0


def _cpu(thread: Path) -> int:
    try:
        return int((thread / "schedstat").read_text(encoding="ascii").split()[0])
    except FileNotFoundError:  # a kernel without it only has ticks of 10 ms
        text = (thread / "stat").read_text(encoding="utf-8", errors="replace")
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _sleeps(thread: Path) -> int:
    return int(_fields(thread / "status")["voluntary_ctxt_switches"])


def _fields(path: Path) -> Mapping[str, str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}
