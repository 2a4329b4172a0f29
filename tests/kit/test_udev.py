"""Kernel events call for discoveries, and what is said where there can be none."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from deviceplugin._platform.pollable_event import PollableEvent
from deviceplugin.errors import DiscoveryError
from deviceplugin.kit import udev
from hardware.kernel_events import Turns, emit, overflow, pretend
from hardware.namespaces import unshared
from patience import PATIENCE

LISTEN = """
import logging, threading
from deviceplugin.kit import udev
logging.basicConfig(format="%(error)s", force=True)
calls = udev.changes(threading.Event(), also=lambda: True)
next(calls)
print("listening", flush=True)
calls.close()
monitor = udev._monitor(lambda _: True)
print("ready", flush=True)
for _ in range(5):
    if monitor.poll(timeout=0.1) is not None:
        print("heard")
        break
"""
BEGINS = 1


def heard(monkeypatch: pytest.MonkeyPatch, *subsystems: str, **given: Any) -> int:
    """Return how many of the events call for a discovery."""
    pretend(monkeypatch, *subsystems, action=given.pop("action", "add"))
    return len(list(udev.changes(Turns(len(subsystems) + 2), **given))) - BEGINS


def test_events_of_what_has_nodes_or_was_asked_for_call_for_a_discovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 2 == heard(monkeypatch, "tty", "net", "usb", "bdi", "module", "queues")
    assert 1 == heard(monkeypatch, "tty", "usb", without=["tty"])
    assert 2 == heard(monkeypatch, "tty", "net", "usb", subsystems={"tty", "net"})


def test_actions_that_are_no_change_of_a_device_call_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for action in ("add", "remove", "change", "move", "bind", "unbind"):
        assert 1 == heard(monkeypatch, "tty", action=action)
    for other in ("offline", "online", None):
        assert 0 == heard(monkeypatch, "tty", action=other)


def test_something_else_can_be_asked_for_at_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True, False])
    assert 1 == heard(monkeypatch, "net", "net", also=lambda: next(answers))


@pytest.mark.parametrize(
    ("pause", "expected"), [(0, 0.5), (0.5, 0.5), (7.5, 7.5), (float("inf"), 3600.0)]
)
def test_it_sleeps_for_as_long_as_nothing_else_is_due(
    monkeypatch: pytest.MonkeyPatch, pause: float, expected: float
) -> None:
    asked: list[float | None] = []

    def next_event(*_of: object, most: float | None) -> None:
        asked.append(most)

    pretend(monkeypatch)
    monkeypatch.setattr(udev, "_next_event", next_event)
    calls = udev.changes(Turns(3), also=lambda: False, pause=lambda: pause)
    assert BEGINS == len(list(calls))
    assert {expected} == set(asked)


def test_without_events_it_sleeps_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyudev", None)
    waits: list[float | None] = []

    class Stop(threading.Event):
        @override
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return len(waits) > 1

    assert [] == list(udev.changes(Stop(), also=lambda: False, pause=lambda: 4.0))
    assert [4.0, 4.0] == waits


def test_what_only_the_event_says_is_given_before_the_discovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, "net", "drm", WEDGED="rebind")
    told: list[str] = []
    calls = udev.changes(Turns(4), subsystems=["drm"], heard=lambda one: told.append(one["WEDGED"]))
    next(calls)
    assert [] == told
    next(calls)
    assert ["rebind"] == told


def test_the_kernels_own_events_are_heard() -> None:
    emit()
    heard: list[Mapping[str, str]] = []
    calls = udev.changes(threading.Event(), subsystems=["mem"], heard=heard.append)
    next(calls)
    emit()
    next(calls)
    assert ("change", "/devices/virtual/mem/null") == (heard[0]["ACTION"], heard[0]["DEVPATH"])


def test_a_discovery_is_called_for_when_listening_begins_and_when_events_were_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emit()
    monitors: list[Any] = []
    make = udev._monitor

    def monitor(wanted: Callable[[str], bool]) -> Any:
        monitors.append(make(wanted))
        return monitors[-1]

    monkeypatch.setattr(udev, "_monitor", monitor)
    calls = udev.changes(threading.Event())
    next(calls)
    overflow(monitors[0])
    next(calls)
    assert 2 == len(monitors)
    emit()
    next(calls)
    assert 2 == len(monitors)


def test_a_kernel_that_cannot_be_listened_to_now_is_a_failed_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refusing:
        @staticmethod
        def Context() -> None:  # noqa: N802 - pyudev's name
            return None

        class Monitor:
            @staticmethod
            def from_netlink(_context: object, *, source: str) -> Any:
                raise OSError(24, f"Too many open files, {source}")

    monkeypatch.setitem(sys.modules, "pyudev", Refusing)
    monkeypatch.setattr(udev, "_are_sent", lambda: True)
    with pytest.raises(DiscoveryError, match=r"no kernel events: .* open files, kernel"):
        next(udev.changes(threading.Event()))


def test_events_of_interfaces_do_not_even_reach_the_process() -> None:
    emit()
    monitor = udev._monitor(lambda subsystem: subsystem not in udev.WITHOUT_NODES)
    emit(Path("/sys/devices/virtual/net/lo/uevent"))
    emit()
    event = monitor.poll(timeout=PATIENCE)
    assert "/devices/virtual/mem/null" == event.device_path


def test_a_kernel_without_filters_sends_all_events(monkeypatch: pytest.MonkeyPatch) -> None:
    emit()

    def refuse(_end: int, _wanted: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(udev, "attach", refuse)
    monitor = udev._monitor(lambda _: False)
    emit()
    assert "/devices/virtual/mem/null" == monitor.poll(timeout=PATIENCE).device_path


NET, QUEUES = "/devices/virtual/net/abcdefghijklmno", "/devices/virtual/net/veth0/queues/rx-0"


@pytest.mark.parametrize(
    ("path", "subsystem", "without", "expected"),
    [
        (NET, "net", udev.WITHOUT_NODES, False),
        (QUEUES, "queues", udev.WITHOUT_NODES, False),
        ("/devices/virtual/bdi/8:0", "bdi", udev.WITHOUT_NODES, False),
        ("/module/zfs", "module", udev.WITHOUT_NODES, False),
        # A macvtap has a device node, below an interface.
        ("/devices/virtual/net/macvtap0/tap5", "macvtap", udev.WITHOUT_NODES, True),
        ("/devices/virtual/net/v/queuex/1", "x", udev.WITHOUT_NODES, True),
        ("/devices/virtual/network/y", "network", udev.WITHOUT_NODES, True),
        ("/devices/pci0000:00/0000:00:01.0/net/eth0", "net", udev.WITHOUT_NODES, True),
        ("/devices/virtual/mem/null", "mem", udev.WITHOUT_NODES, True),
        (NET, "net", {"queues"}, True),
        (QUEUES, "queues", {"net"}, True),
        ("/devices/virtual/bdi/8:0", "bdi", {"net"}, True),
        ("/module/zfs", "module", {"net"}, True),
    ],
)
def test_the_filter_drops_only_what_is_not_wanted(
    path: str, subsystem: str, without: Collection[str], expected: bool
) -> None:
    kernel, process = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with kernel, process:
        process.setblocking(False)
        udev.attach(process.fileno(), lambda one: one not in without)
        for action in ("add", "bind", "remove", "offline"):
            said = f"ACTION={action}\0DEVPATH={path}\0SUBSYSTEM={subsystem}\0SEQNUM=1"
            text = f"{action}@{path}\0{said}".encode()
            kernel.send(text)
            with nullcontext() if expected else pytest.raises(BlockingIOError):
                assert text == process.recv(len(text))


# Where there are none.


@pytest.mark.parametrize(
    ("options", "expected", "warning"),
    [
        (["--net"], ["heard"], ""),  # as in a pod without the host's network
        (["--net", "--user", "--map-root-user"], [], "not sent to this user namespace\n"),
        (["--user", "--map-root-user"], ["heard"], ""),
    ],
)
def test_kernel_events_reach_network_namespaces_of_the_first_user_namespace(
    options: list[str], expected: list[str], warning: str
) -> None:
    emit()
    command = [*unshared(*options), sys.executable, "-c", LISTEN]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert ["listening\n", "ready\n"] == [process.stdout.readline() for _ in range(2)]
        emit()
        out, err = process.communicate(timeout=PATIENCE)
    assert (expected, warning) == (out.split(), err)


def test_a_namespace_that_cannot_be_asked_for_counts_as_one_with_events(tmp_path: Path) -> None:
    assert udev._are_sent(tmp_path / "none")


@pytest.mark.parametrize(
    ("also", "expected"), [(lambda: True, 2), (lambda: False, 0), (None, 0)], ids=["y", "n", "none"]
)
def test_without_libudev_one_warning_says_what_to_install_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    also: Callable[[], bool] | None,
    expected: int,
) -> None:
    monkeypatch.setitem(sys.modules, "pyudev", None)
    assert expected == len(list(udev.changes(Turns(2 if also else 1), also=also)))
    (record,) = caplog.records
    assert "kernel events unavailable, polling for devices" == record.message
    assert "import of pyudev halted" in vars(record)["error"]
    assert "libudev.so.1" in vars(record)["advice"]


@pytest.mark.parametrize("has_events", [True, False])
@pytest.mark.parametrize("event", [PollableEvent, threading.Event], ids=["the framework's", "any"])
def test_it_ends_as_soon_as_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, event: Callable[[], threading.Event], *, has_events: bool
) -> None:
    if not has_events:
        monkeypatch.setitem(sys.modules, "pyudev", None)
    stop, listening = event(), threading.Event()

    def listen() -> None:
        for _ in udev.changes(stop, subsystems=["nothing"]):
            listening.set()

    with ThreadPoolExecutor(1) as pool:
        over = pool.submit(listen)
        assert not has_events or listening.wait(PATIENCE)
        stop.set()
        over.result(PATIENCE)
