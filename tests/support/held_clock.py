"""A clock that a test holds: time passes when the test says so, and not for a slow machine."""

import math
import threading
from collections.abc import Iterable

from typing_extensions import override

from deviceplugin._platform.clock import Clock
from patience import PATIENCE


def are_within(waits: Iterable[float], bounds: Iterable[float]) -> list[bool]:
    """Return for each whether it is at most its bound, and at least half of it."""
    return [bound / 2 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True)]


class HeldClock(Clock):
    """Stands still until ``advance`` or ``skip_wait``; waits for events end by events as usual."""

    def __init__(self) -> None:
        self._now = 0.0
        self._changed = threading.Condition()
        self._waits: dict[threading.Event, float] = {}
        """Until when each is waited for."""

    @override
    def now(self) -> float:
        return self._now

    @override
    def wait(self, event: threading.Event, until: float) -> None:
        with self._changed:
            if until <= self._now:
                return
            self._waits[event] = until
            self._changed.notify_all()
        event.wait()
        with self._changed:
            del self._waits[event]

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        with self._changed:
            self._now += seconds
            for event, until in self._waits.items():
                if until <= self._now:
                    event.set()

    def skip_wait(self) -> float:
        """Let time pass until the next wait ends, once there is one; return how long that took."""
        self.wait_for_wait()
        with self._changed:
            seconds = min(self._ends()) - self._now
        self.advance(seconds)
        return seconds

    def end_waits(self) -> None:
        """Let time pass until the next wait ends, if anybody waits for the time."""
        with self._changed:
            seconds = min(self._ends(), default=self._now) - self._now
        self.advance(seconds)

    def wait_for_wait(self, count: int = 1) -> None:
        """Return once ``count`` threads wait for the time."""
        with self._changed:
            waiting = self._changed.wait_for(lambda: len(self._ends()) >= count, PATIENCE)
            assert waiting, f"fewer than {count} wait for the time"

    def _ends(self) -> list[float]:
        """Return when waits that nothing has ended yet will end by time."""
        return [
            until
            for event, until in self._waits.items()
            if not event.is_set() and not math.isinf(until)
        ]
