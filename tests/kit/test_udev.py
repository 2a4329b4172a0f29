"""Kernel events call for discoveries, and what is said where there can be none."""

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

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
monitor = udev._monitor()
print("ready", flush=True)
for _ in range(15):
    if monitor.poll(timeout=0.1) is not None:
        print("heard")
        break
"""
BEGINS = 1


def heard(monkeypatch: pytest.MonkeyPatch, *subsystems: str, **given: Any) -> int:
    """Return how many of the events call for a discovery."""
    pretend(monkeypatch, *subsystems, action=given.pop("action", "add"))
    return len(list(udev.changes(Turns(len(subsystems) + 2), **given))) - BEGINS


def test_events_of_what_has_nodes_call_for_a_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 == heard(monkeypatch, "tty", "net", "usb", "bdi", "module", "queues")
    assert 1 == heard(monkeypatch, "tty", "usb", without=["tty"])


def test_events_of_some_subsystems_only_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 == heard(monkeypatch, "tty", "net", "usb", subsystems={"tty", "net"})


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        *((one, 1) for one in ("add", "remove", "change", "move", "bind", "unbind")),
        *((one, 0) for one in ("offline", "online", None)),
    ],
)
def test_actions_that_are_no_change_of_a_device_call_for_nothing(
    monkeypatch: pytest.MonkeyPatch, action: str | None, expected: int
) -> None:
    assert expected == heard(monkeypatch, "tty", action=action)


def test_something_else_can_be_asked_for_at_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True, False])
    assert 1 == heard(monkeypatch, "net", "net", also=lambda: next(answers))


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
    stop, listening, again = threading.Event(), threading.Event(), threading.Event()
    heard: list[Mapping[str, str]] = []

    def listen() -> None:
        calls = udev.changes(stop, subsystems=["mem"], heard=heard.append)
        for number, _ in enumerate(calls):
            (again if number else listening).set()

    thread = threading.Thread(target=listen)
    thread.start()
    assert listening.wait(PATIENCE)
    emit()
    assert again.wait(PATIENCE)
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert ("change", "/devices/virtual/mem/null") == (heard[0]["ACTION"], heard[0]["DEVPATH"])


def test_a_discovery_is_called_for_when_listening_begins_and_when_events_were_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emit()
    monitors: list[Any] = []
    make = udev._monitor

    def monitor() -> Any:
        monitors.append(make())
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


def test_without_events_it_ends_as_soon_as_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyudev", None)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: list(udev.changes(stop)))
    thread.start()
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
