"""The time, and waiting for it; whoever needs either is given a clock."""

import math
import threading
import time
from typing import Final


class Clock:
    """Seconds that never jump."""

    def now(self) -> float:
        """Return the time, in seconds since some moment."""
        return time.monotonic()

    def wait(self, event: threading.Event, until: float) -> None:
        """Return once ``event`` is set or it is ``until``, which may be ``math.inf``."""
        event.wait(None if math.isinf(until) else max(0.0, until - self.now()))


MONOTONIC: Final = Clock()
"""The machine's."""
