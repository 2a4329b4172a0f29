"""Signals of the process: SIGTERM and SIGINT stop it, SIGHUP has it read its settings again."""

import select
import signal
import socket
from contextlib import suppress
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A stop before all else."""


class Signals:
    """Signals that have come, and the end of the host. Several of one kind are one.

    A wake-up descriptor ends the wait: of handlers in Python alone, one can come just before the
    wait that it should end, and is then not run before the next signal.
    """

    def __init__(self) -> None:
        self._came: set[int] = set()
        self._ended = False
        self._inbox, self._outbox = socket.socketpair()
        for end in (self._inbox, self._outbox):
            end.settimeout(0)  # as a wake-up descriptor has to be
        signal.set_wakeup_fd(self._outbox.fileno(), warn_on_full_buffer=False)
        for kind in _SIGNALS:
            signal.signal(kind, lambda number, _frame: self._came.add(number))

    def end(self) -> None:
        """Report the end."""
        self._ended = True
        self._wake()

    def ask_for_reload(self) -> None:
        """Do as if SIGHUP had come."""
        self._came.add(signal.SIGHUP)
        self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # then it is readable anyway
            self._outbox.send(b"\0")

    def next(self) -> int:
        """Wait for a signal and return its number, a stop first; 0 at the end."""
        while not (self._came or self._ended):
            select.select([self._inbox], [], [])
            with suppress(BlockingIOError):
                self._inbox.recv(4096)
        for kind in _SIGNALS:
            if kind in self._came:
                self._came.discard(kind)
                return kind
        return 0
