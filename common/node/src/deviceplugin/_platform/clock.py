"""Time, and waiting. Code that needs either is given a clock."""

import threading
import time
from typing import Final


class Clock:
    """A monotonic clock, in seconds. Thread-safe.

    A test derives its own, in which time passes under the test's control.
    """

    def now(self) -> float:
        """Return the time, in seconds since an arbitrary moment."""
        return time.monotonic()

    def wait(self, event: threading.Event, until: float) -> None:
        """Return once ``event`` is set or it is ``until``, which may be ``math.inf``."""
        event.wait(min(max(0.0, until - self.now()), threading.TIMEOUT_MAX))

    def pause(self, event: threading.Event, seconds: float) -> None:
        """Return once ``event`` is set or ``seconds`` have passed."""
        self.wait(event, self.now() + seconds)


MONOTONIC: Final = Clock()
"""The clock of the machine."""
