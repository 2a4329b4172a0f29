"""Events of the kernel: real ones, for who may write to sysfs, and pretended ones."""

import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from typing_extensions import override

from deviceplugin.kit import udev

UEVENT: Final = Path("/sys/devices/virtual/mem/null/uevent")
_MANY: Final = 200
"""Events that do not fit into the smallest buffer of a socket."""


def emit(uevent: Path = UEVENT) -> None:
    """Have the kernel send an event of a device."""
    try:
        uevent.write_text("change")
    except OSError as error:
        pytest.skip(f"the kernel cannot be asked for events here: {error}")


def overflow(monitor: Any) -> None:
    """Have the kernel send ``monitor`` more events than it has room for."""
    with socket.socket(fileno=os.dup(monitor.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    for _ in range(_MANY):
        emit()


class _Monitor:
    """What the kernel says next, and then nothing."""

    def __init__(self, events: list[SimpleNamespace]) -> None:
        self._events = events

    def poll(self, timeout: float) -> SimpleNamespace | None:
        del timeout
        return self._events.pop(0) if self._events else None


def pretend(
    monkeypatch: pytest.MonkeyPatch, *subsystems: str, action: str = "change", **properties: str
) -> None:
    """Have ``kit.udev`` hear of these subsystems, and then of nothing more."""
    events = [
        SimpleNamespace(
            action=action,
            subsystem=one,
            properties={"ACTION": action, "SUBSYSTEM": one, **properties},
        )
        for one in subsystems
    ]
    monkeypatch.setattr(udev, "_problem", lambda: None)
    monkeypatch.setattr(udev, "_monitor", lambda _wanted: _Monitor(events))


class Turns(threading.Event):
    """Is set once it was asked, or waited for, so many times."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self._turns = turns

    @override
    def is_set(self) -> bool:
        self._turns -= 1
        return self._turns < 0

    @override
    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        return self.is_set()
