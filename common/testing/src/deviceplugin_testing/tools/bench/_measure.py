"""The measurements. Each takes a running plugin, or one to start, and returns figures."""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.conformance._kubelet import Stream
from deviceplugin_testing.conformance._process import Holdings, activity
from deviceplugin_testing.tools.bench import _subject
from deviceplugin_testing.tools.bench._figures import BenchError, Figure
from deviceplugin_testing.tools.bench._subject import BenchSubject, Run, running

_MIB: Final = 1024 * 1024
_MINUTE: Final = 60.0
_REST: Final = 0.1
"""Least seconds between changes, so that they are not combined."""
_LONGEST_DOWN: Final = 0.05
"""Most seconds that the kubelet is down in a restart."""
_LONGEST_UP: Final = 0.1
"""Most seconds between restarts."""
COUNTED: Final = ("threads", "descriptors", "sockets")
"""The holdings that can leak."""
_TOUCHED: Final = "dp-bench"
"""The entry that is added to and removed from the directory to touch."""


def starts(subject: BenchSubject, count: int) -> list[Figure]:
    """Start and stop ``subject`` ``count`` times, each time on a new kubelet."""
    registered, cpu, listed, rss, threads, stopped = [], [], [], [], [], []
    for _ in range(count):
        with running(subject) as run:
            registered.append(run.wait_registered() - run.started_at)
            cpu.append(activity(run.pid).total / 1e9)
            listed.append(run.wait_listed() - run.started_at)
            holdings = run.holdings()
            rss.append(holdings.rss / _MIB)
            threads.append(holdings.threads)
            stopped.append(run.stop())
    which = "registered" if subject.resources == 1 else f"{subject.resources} resources registered"
    return [
        _milliseconds(f"start to {which}", registered),
        _milliseconds("CPU until registered", cpu),
        _milliseconds("start to first list", listed),
        Figure("RSS at first list", "MiB", rss),
        Figure("threads at first list", "", threads),
        _milliseconds("SIGTERM to exit", stopped),
    ]


def memory(run: Run, when: str) -> list[Figure]:
    """Return what is resident, and what of that is private and written to."""
    holdings = run.holdings()
    return [
        Figure(f"RSS {when}", "MiB", [holdings.rss / _MIB]),
        Figure(f"private {when}", "MiB", [holdings.private / _MIB]),
    ]


def size(run: Run) -> list[Figure]:
    holdings = run.holdings()
    return [
        *memory(run, "idle"),
        Figure("PSS idle", "MiB", [holdings.pss / _MIB]),
        Figure("threads idle", "", [holdings.threads]),
        Figure("descriptors idle", "", [holdings.descriptors]),
        Figure("of them sockets", "", [holdings.sockets]),
    ]


def message(run: Run) -> list[Figure]:
    """Return the number of devices, and the size of a list of them on the wire."""
    lists = [run.kubelet.devices(name) for name in sorted(run.kubelet.registered)]
    sizes = [
        pb.ListAndWatchResponse(
            devices=[pb.Device(ID=id_, health=health) for id_, health in devices.items()]
        ).ByteSize()
        for devices in lists
    ]
    return [
        Figure("devices per list", "", [len(devices) for devices in lists]),
        Figure("bytes per list, without topology", "bytes", sizes),
    ]


def idle(run: Run, seconds: float, *, settle: float = 0.0) -> list[Figure]:
    """Leave the plugin alone for ``settle``, then measure its work for ``seconds``."""
    time.sleep(settle)
    before, begin = activity(run.pid), time.monotonic()
    time.sleep(seconds)
    cpu, wakeups = activity(run.pid).since(before)
    took = time.monotonic() - begin
    return [
        Figure("CPU per idle minute", "ms", [cpu * 1000 * _MINUTE / took]),
        Figure("wake-ups per idle second", "per s", [wakeups / took]),
    ]


def allocations(run: Run, count: int, ids: int, *, timeout: float = 10.0) -> list[Figure]:
    """Allocate ``ids`` devices ``count`` times; return no figures if there are fewer devices."""
    resource = min(run.kubelet.registered)
    devices = run.kubelet.devices(resource)
    healthy = sorted(id_ for id_, health in devices.items() if health == "Healthy")
    if len(healthy) < ids:
        return []
    took = []
    for _ in range(count):
        begin = time.perf_counter()
        run.kubelet.allocate(resource, healthy[:ids], timeout=timeout)
        took.append((time.perf_counter() - begin) * 1e6)
    noun = "device" if ids == 1 else "devices"
    return [Figure(f"Allocate of {ids} {noun}", "us", took)]


def changes(run: Run, count: int) -> list[Figure]:
    """Make and remove an entry ``count`` times; return no figures without a directory for it."""
    directory = run.touch_dir
    if directory is None:
        return []
    took: list[float] = []
    for _ in range(count):
        # A plugin may rest after a discovery, so that changes do not keep it busy.
        time.sleep(max([_REST, *took[-1:]]))
        took.append(_change(run, directory / _TOUCHED))
    return [_milliseconds("device change to list", took)]


def _change(run: Run, path: Path) -> float:
    names = run.kubelet.registered

    def lists() -> int:
        return sum(map(run.kubelet.lists_received, names))

    before, begin = lists(), time.monotonic()
    _subject.toggle_entry(path, run.subject.entries)
    run.wait(lambda: lists() > before, f"a list after a change of {path}")
    return run.listed_at(names) - begin


def restarts(run: Run, count: int, *, seed: int, settle: float = 3.0) -> list[Figure]:
    """Restart the kubelet ``count`` times at random moments; return times and leaks.

    Threads and descriptors are counted after the first restart and after the last one. So what the
    plugin creates only once is not a leak. What disappears within ``settle`` seconds is not a leak
    either.
    """
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    took = [_restart(run, rng)]
    before, files = _rested(run, settle), _socket_files(run)
    took += [_restart(run, rng) for _ in range(count - 1)]
    after = _rested(run, settle, not_above=before)
    return [
        _milliseconds("kubelet listening to registered", took),
        *_gained(before, after, count),
        Figure(f"socket files gained by {count} restarts", "", [_socket_files(run) - files]),
        Figure(f"RSS after {count} restarts", "MiB", [after.rss / _MIB]),
    ]


def _gained(before: Holdings, after: Holdings, count: int) -> Iterator[Figure]:
    for name in COUNTED:
        gained = getattr(after, name) - getattr(before, name)
        yield Figure(f"{name} gained by {count} restarts", "", [gained])


def _restart(run: Run, rng: random.Random) -> float:
    time.sleep(rng.uniform(0, _LONGEST_UP))
    run.kubelet.stop()
    time.sleep(rng.uniform(0, _LONGEST_DOWN))
    run.kubelet.start()
    # start() returns within a fraction of a millisecond after the socket has its name.
    listening = time.monotonic()
    return max(0.0, run.wait_registered() - listening)


def _rested(run: Run, settle: float, not_above: Holdings | None = None) -> Holdings:
    """Return the least holdings of the plugin within ``settle`` seconds, or until ``not_above``."""
    run.wait_listed()
    deadline = time.monotonic() + settle
    least = run.holdings()
    while time.monotonic() < deadline and not _within(least, not_above):
        time.sleep(_REST)
        now = run.holdings()
        counts = {name: min(getattr(least, name), getattr(now, name)) for name in COUNTED}
        least = replace(now, **counts)
    return least


def _within(holdings: Holdings, limit: Holdings | None) -> bool:
    return limit is not None and all(
        getattr(holdings, name) <= getattr(limit, name) for name in COUNTED
    )


def _socket_files(run: Run) -> int:
    return sum(path.is_socket() for path in run.kubelet.plugin_dir.iterdir())


def calibrate(count: int) -> Figure:
    """Do the same small work ``count`` times: the spread of the times is the machine's noise."""
    took = []
    for _ in range(count):
        begin = time.perf_counter()
        sum(number * number for number in range(50_000))
        took.append(time.perf_counter() - begin)
    return _milliseconds("the same work, again and again", took)


def _milliseconds(name: str, seconds: Sequence[float]) -> Figure:
    return Figure(name, "ms", [value * 1000 for value in seconds])


_FIRST_LIST: Final = 5.0
"""Seconds for all streams to bring a first list, before they count as refused."""
_ALLOCATE: Final = 10.0
"""Seconds for Allocate. A kubelet would wait for ever."""


def allocations_under(run: Run, count: int, streams: int) -> list[Figure]:
    """Allocate one device ``count`` times while ``streams`` more ListAndWatch are open.

    A plugin may refuse some of them. One of the figures is how many it accepted.
    """
    resource = min(run.kubelet.registered)
    path = run.kubelet.socket_of(resource)
    with ExitStack() as stack:
        opened = [stack.enter_context(Stream(path)) for _ in range(streams)]
        deadline = time.monotonic() + _FIRST_LIST
        taken = sum(stream.wait(max(0.0, deadline - time.monotonic())) for stream in opened)
        try:
            figures = [
                Figure(f"{figure.name} under {streams} streams", figure.unit, figure.values)
                for figure in allocations(run, count, 1, timeout=_ALLOCATE)
            ]
        except grpc.RpcError as error:  # many plugins have no worker left for it
            raise BenchError(
                f"Allocate under {streams} streams: {rpc.status_text(error)}"
            ) from error
    return [Figure(f"of {streams} streams more, taken", "", [taken]), *figures]
