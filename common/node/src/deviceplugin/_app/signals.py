"""Signals: SIGTERM and SIGINT stop the process, SIGHUP makes it read its settings again."""

import os
import select
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NoReturn

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""In the order in which they are handled: a stop goes first."""

_DEFAULTS: Final[Mapping[int, Any]] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}


@contextmanager
def handled(handler: Any, *numbers: int) -> Iterator[None]:
    """In the context, have ``handler`` handle the signals ``numbers``, and later who did before.

    Only the main thread can do that: in another one, nothing changes.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {one: signal.signal(one, handler) for one in numbers if is_main}
    try:
        yield
    finally:
        for one, former in before.items():
            signal.signal(one, former)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """In the context, let SIGTERM and SIGINT end the process, unless it has handlers of its own.

    It is for imports: there is nothing to stop, and a traceback would be of no use. By itself the
    first process of a container would not even notice SIGTERM.
    """
    ours = [kind for kind, usual in _DEFAULTS.items() if signal.getsignal(kind) == usual]
    with handled(end_by, *ours):
        yield


def end_by(number: int, _frame: FrameType | None = None) -> NoReturn:
    """End the process as the signal ``number`` does, which is what its shell looks for."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(128 + number)  # the first process of a container survives its own signals


def set_when_stopped() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set, from now on."""
    stop = threading.Event()
    for number in _DEFAULTS:
        signal.signal(number, lambda *_: stop.set())
    return stop


class Signals:
    """Pending signals, and the end of the host. Several signals of one kind count as one.

    A wake-up descriptor ends the wait. Python's signal handlers alone are not enough: if a signal
    arrives just before the wait, its handler does not run until the next signal.
    """

    def __init__(self) -> None:
        self._came: set[int] = set()
        self._ended = False
        self._inbox, self._outbox = socket.socketpair()
        for end in (self._inbox, self._outbox):
            end.settimeout(0)  # a wake-up descriptor must be non-blocking
        signal.set_wakeup_fd(self._outbox.fileno(), warn_on_full_buffer=False)
        for kind in _SIGNALS:
            signal.signal(kind, lambda number, _frame: self._came.add(number))

    def end(self) -> None:
        """Make ``next`` return 0."""
        self._ended = True
        self._wake()

    def ask_for_reload(self) -> None:
        """Act as if SIGHUP had arrived."""
        self._came.add(signal.SIGHUP)
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # it is full, so the other end is readable anyway
            self._outbox.send(b"\0")

    def next(self) -> int:
        """Wait for a signal and return its number, a stop first; 0 after ``end``."""
        while not (self._came or self._ended):
            select.select([self._inbox], [], [])
            with suppress(BlockingIOError):
                self._inbox.recv(4096)
        for kind in _SIGNALS:
            if kind in self._came:
                self._came.discard(kind)
                return kind
        return 0
