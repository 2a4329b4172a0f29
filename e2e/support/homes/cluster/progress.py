"""Reports what a case on a cluster waits for, and how long it took."""

from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from patience import eventually

_T = TypeVar("_T")
PAUSE = 0.5
"""Seconds between two requests to the API server."""
LONG = 3.0
"""Seconds after which a wait is reported."""


class Progress:
    """Writes lines with ``say``: one for each finished case, and one for each long wait."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = monotonic) -> None:
        self.say, self._clock = say, clock
        self.begin("")

    def begin(self, case: str) -> None:
        self._case, self._started = case, self._clock()
        self._longest = (0.0, "")
        self._note = ""

    def note(self, why: str) -> None:
        """Set the known reason for the present wait."""
        self._note = why

    def wait(self, condition: Callable[[], _T], what: str, limit: float) -> _T:
        """Wait ``limit`` seconds for ``condition``, and return what it returned."""
        started, said = self._clock(), ""
        self._note = ""

        def watched() -> _T:
            nonlocal said
            found = condition()
            line = f"{self._case}: waiting for {what}{f' ({self._note})' if self._note else ''}"
            if not found and line != said and self._clock() - started > LONG:
                self.say(line)
                said = line
            return found

        try:
            return eventually(watched, what, timeout=limit, every=PAUSE)
        except AssertionError as error:
            if self._note:
                error.add_note(self._note)
            raise
        finally:
            self._longest = max(self._longest, (self._clock() - started, what))

    def end(self) -> None:
        seconds, what = self._longest
        rest = f", of which {seconds:.1f} s waiting for {what}" if what else ""
        self.say(f" {self._case}: {self._clock() - self._started:.1f} s{rest}")
