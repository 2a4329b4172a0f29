"""What somebody who waits for a list is told."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

from deviceplugin._platform.clock import MONOTONIC, Clock

_PATIENCE: Final = 0.5
"""Seconds after which somebody at a terminal wants to know. The start has taken some before."""
_INTERVAL: Final = 10.0
"""Seconds between lines elsewhere."""
_USUAL: Final = 80
"""Columns of a terminal that does not say it."""
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """A line that is replaced on a terminal, and a line now and then elsewhere.

    Nothing is written of what is done within half a second, or elsewhere within ten. ``found``
    returns what is known so far, for a terminal.
    """

    def __init__(self, out: TextIO, clock: Clock = MONOTONIC, command: str = "fleet") -> None:
        self._out = out
        self._command = command
        self._clock = clock
        self._is_terminal = out.isatty()
        self._next = clock.now() + (_PATIENCE if self._is_terminal else _INTERVAL)
        self._shown = False
        self.found: Callable[[], str] = str

    def show(self, what: str, count: int, total: int | None) -> None:
        """Say that ``count`` have been read, of ``total`` if that is known."""
        if self._clock.now() < self._next:
            return
        line = f"reading {what}: {count}" + (f" of {total}" if total is not None else "")
        if self._is_terminal:
            found = self.found()
            self._out.write(
                f"{_CLEAR}{line}{found and ': '}{found}"[: len(_CLEAR) + _columns(self._out)]
            )
            self._shown = True
        else:
            self._out.write(f"deviceplugin {self._command}: {line}\n")
            self._next = self._clock.now() + _INTERVAL
        self._out.flush()

    def end(self) -> None:
        if self._shown:
            self._out.write(_CLEAR)
            self._out.flush()
            self._shown = False


def _columns(out: TextIO) -> int:
    """Return how long a line on ``out`` can be that is replaced: the output may be elsewhere."""
    columns = 0
    with suppress(OSError):
        columns = os.get_terminal_size(out.fileno()).columns
    return (columns or _USUAL) - 1
