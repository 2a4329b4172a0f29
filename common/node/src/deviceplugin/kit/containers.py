"""Which container each process of this node is in, as the kernel and the kubelet say.

A process is in the container that the outermost part of its control group's path names: what is
below that, its container may have made itself. The links that the kubelet keeps to the logs of
containers have their ids, and lead to directories named after their pods. Neither a token nor the
container runtime is needed.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Container", "Process", "Processes"]

_UID: Final = r"(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
_SLICES: Final = r"(?:[^/]+-)?kubepods"
_CLASS: Final = rf"(?:/(?:{_SLICES}-)?(?:burstable|besteffort)(?:\.slice)?)?"
_POD: Final = rf"/(?:{_SLICES}-(?:burstable-|besteffort-)?)?pod{_UID}(?:\.slice)?"
# containerd without SystemdCgroup, below a kubelet with the systemd driver, writes colons.
_BELOW: Final = rf"{_CLASS}{_POD}(?:/|:cri-containerd:)"
_ID: Final = r"(?:(?:cri-containerd|crio|docker)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)"
_ROOTS: Final = (
    *("/kubepods", "/kubepods.slice", "/kubelet/kubepods"),
    *("/kubelet.slice/kubelet-kubepods.slice", "/system.slice/containerd.service"),
)
"""Where a kubelet has its pods, for a process that is in none of them."""
_ABOVE: Final = r"(?:/\.\.)"
"""In a control group namespace: from our container up to all pods, or only to our pod."""
_OWN: Final = re.compile(rf"(?P<root>.*?){_BELOW}{_ID}(?:/container)?")
_SHORTEST: Final = 8
"""Digits. The kubelet cuts the names of links to 255 characters, and with them the ids."""
_LINK: Final = re.compile(rf".+-(?P<id>[0-9a-f]{{{_SHORTEST},64}})\.log")
_LOG: Final = re.compile(
    r".*/(?P<namespace>[a-z0-9-]{1,63})_(?P<pod>[a-z0-9.-]{1,253})_(?P<uid>[0-9a-f-]{32,36})"
    r"/(?P<name>[a-z0-9-]{1,63})/[^/]+"
)
_MOST_BYTES: Final = 64 * 1024
_MACHINE: Final = "pid:[4026531836]"
"""The PID namespace of the machine; its number is a constant of the kernel."""


class Container(NamedTuple):
    """A container, by its names."""

    namespace: str
    pod: str
    name: str


class Process(NamedTuple):
    """A process of the node."""

    started: float
    """In seconds of ``CLOCK_BOOTTIME``."""
    container: Container | None
    """None if it is in none of a pod, or its pod is unknown."""


class Processes:
    """The processes in ``proc``, and the kubelet's links in ``logs``. Reads them at each call.

    ``now`` returns seconds of ``CLOCK_BOOTTIME``. Methods raise OSError if this is not a node's, or
    the system has no file descriptor left.
    """

    def __init__(
        self,
        proc: Path,
        logs: Path,
        now: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._proc, self._logs, self.now = proc, logs, now
        self._ticks = os.sysconf("SC_CLK_TCK")

    def of_machine(self) -> bool:
        """Return whether ids of processes are those of the machine, not of a container."""
        return str((self._proc / "self/ns/pid").readlink()) == _MACHINE

    def problem(self) -> str:
        """Return why processes cannot be attributed to pods, or an empty string."""
        first, own = self._groups("1"), self._groups("self")
        is_ours = first == own or _place(first, _seen_from(own))
        if is_ours and not self.of_machine():
            return "processes of other pods are not visible: the pod needs hostPID: true"
        if next(self._links(), None) is None:
            return f"{self._logs}: the kubelet has no links to logs of containers there"
        return ""

    def find(self, pids: Iterable[int], before: float) -> Mapping[int, Process]:
        """Return those of ``pids`` that had started at ``before`` and still run.

        With the time before the ids were learned, none is taken for a later process of its id. One
        that may not be read counts as started at ``before``, and as in no container.
        """
        links = dict(self._links())
        pods = _seen_from(self._groups("self"))
        found: dict[int, Process] = {}
        for pid in pids:
            try:
                started = self._started(pid)
                place = _place(self._groups(str(pid)), pods)
                if started == self._started(pid) and started + 1 / self._ticks <= before:
                    found[pid] = Process(started, self._named(place, links))
            except PermissionError:
                found[pid] = Process(before, None)
            except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
                continue  # it has ended
        return found

    def _started(self, pid: int) -> float:
        # A process chooses the name in parentheses, which may have any character.
        fields = self._read(f"{pid}/stat").rpartition(")")[2].split()
        return int(fields[19]) / self._ticks

    def _groups(self, pid: str) -> frozenset[str]:
        lines = self._read(f"{pid}/cgroup").splitlines()
        return frozenset(line.split(":", 2)[-1] for line in lines)

    def _read(self, name: str) -> str:
        with (self._proc / name).open(errors="replace") as file:
            return file.read(_MOST_BYTES)

    def _links(self) -> Iterator[tuple[str, str]]:
        with os.scandir(self._logs) as links:
            for link in links:
                if match := _LINK.fullmatch(link.name):
                    yield match["id"], link.name

    def _named(self, place: tuple[str, str] | None, links: Mapping[str, str]) -> Container | None:
        uid, own = place or ("", "")
        ids = (own[:digits] for digits in range(len(own), _SHORTEST - 1, -1))
        link = next((links[each] for each in ids if each in links), None)
        log = _LOG.fullmatch(str((self._logs / link).readlink())) if link else None
        if log is None or uid not in {"", log["uid"]}:
            return None
        return Container(log["namespace"], log["pod"], log["name"])


def _seen_from(own: Iterable[str]) -> re.Pattern[str]:
    """Return what containers of pods match, as a process sees them whose own paths are ``own``."""
    roots = {found["root"] for path in own if (found := _OWN.fullmatch(path))}
    pods = "|".join([*map(re.escape, sorted(roots) or _ROOTS), f"{_ABOVE}{{1,4}}"])
    return re.compile(rf"(?:(?:{pods}){_BELOW}|{_ABOVE}{{1,2}}/){_ID}")


def _place(paths: Iterable[str], pods: re.Pattern[str]) -> tuple[str, str] | None:
    """Return the UID of a pod, empty for our own, and the id of its container.

    None if no path is of a container, or they disagree: each hierarchy of control groups has one.
    """
    found = {(match["uid"] or "", match["id"]) for path in paths if (match := pods.match(path))}
    if len(found) != 1:
        return None
    uid, container = found.pop()
    return uid.replace("_", "-"), container
