"""A progress line on a terminal."""

import shutil
from threading import Lock, Thread
from types import TracebackType
from typing import Final, Self, TextIO

from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin_testing.conformance._lanes import InOrder

_EVERY: Final = 0.5
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Shows which checks are running, and how long the run has taken, while it is open.

    It shows nothing if ``terminal`` is not a terminal.
    """

    def __init__(self, order: InOrder, terminal: TextIO, clock: Clock = MONOTONIC) -> None:
        self._order = order
        self._terminal = terminal if terminal.isatty() else None
        self._waiter = Waiter(clock)
        self._begin = clock.now()
        self._lock = Lock()
        self._thread = Thread(target=self._run, name="conformance-progress", daemon=True)

    def __enter__(self) -> Self:
        if self._terminal:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._waiter.end()
        if self._terminal:
            self._thread.join()
            self._show("")

    def print(self, text: str) -> None:
        """Print ``text`` above the progress line."""
        with self._lock:
            self._write("")
            print(text, flush=True)  # noqa: T201 - what the command is for

    def _run(self) -> None:
        for _ in self._waiter.ticks(_EVERY):
            self._show(self._line())

    def _line(self) -> str:
        order = self._order
        names = ", ".join(check.id for check in list(order.running))
        seconds = self._waiter.clock.now() - self._begin
        return f"  {seconds:.0f} s, {order.done} of {len(order.checks)} checks done; now: {names}"

    def _show(self, line: str) -> None:
        with self._lock:
            self._write(line)

    def _write(self, line: str) -> None:
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._terminal.write(_CLEAR + line[:width])
            self._terminal.flush()
