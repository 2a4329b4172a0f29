"""Signals: SIGTERM and SIGINT stop the process, SIGHUP makes it read its settings again."""

import select
import signal
import socket
from contextlib import suppress
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""In the order in which they are handled: a stop goes first."""


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
