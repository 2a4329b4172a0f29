"""Time for many threads at once, which passes only while all of them wait."""

import math
import threading
from typing import Final

from typing_extensions import override

from deviceplugin._platform.clock import Clock
from patience import PATIENCE

_LOOK: Final = 0.005


class DrivenClock(Clock):
    """Stands still until ``run``, which lets all threads do what is due, however slow the machine.

    All threads that are started after it must do all their waiting by this clock, and be ended
    before it is forgotten.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._others = threading.enumerate()
        """Threads that there were before, and wait for whatever they like, or end."""
        self._changed = threading.Condition()
        self._waits: dict[int, tuple[threading.Event, float]] = {}
        """For what and until when each thread waits."""

    @override
    def now(self) -> float:
        return self._now

    @override
    def wait(self, event: threading.Event, until: float) -> None:
        own = threading.get_ident()
        with self._changed:
            if until <= self._now:
                return
            self._waits[own] = event, until
            if len(self._waits) >= self._count():
                self._changed.notify_all()
        event.wait()
        with self._changed:
            del self._waits[own]

    def run(self, seconds: float, *, step: float = 0.0) -> None:
        """Let ``seconds`` pass. Waits that end within ``step`` of each other end together."""
        end = self._now + seconds
        self.settle()
        while self._now < end:
            with self._changed:
                due = min((until for _, until in self._waits.values()), default=math.inf)
                self._now = min(end, max(due, self._now + step))
                for event, until in self._waits.values():
                    if until <= self._now:
                        event.set()
            self.settle()

    def settle(self) -> None:
        """Return once all threads wait for time to pass."""
        with self._changed:
            looks = 0
            # A thread that ends says nothing, so it is looked for.
            while not self._is_quiet():
                before = dict(self._waits)
                self._changed.wait(_LOOK)
                looks = looks + 1 if before == self._waits else 0
                assert looks * _LOOK < 4 * PATIENCE, "a thread does not wait by this clock"

    def _count(self) -> int:
        every = threading.active_count()  # first: one that ends meanwhile is counted once more
        known: dict[int | None, threading.Thread] = vars(threading)["_active"]
        return every - sum(known.get(one.ident) is one for one in self._others)

    def _is_quiet(self) -> bool:
        return len(self._waits) >= self._count() and not any(
            event.is_set() for event, _ in self._waits.values()
        )
