"""Limiting evictions: a fault of a node, or of a driver everywhere, must not empty it at once."""

from collections import deque
from threading import Lock
from typing import Final

_SPANS: Final = (60.0, 3600.0)


class Budget:
    """At most ``per_minute`` in any minute and ``per_hour`` in any hour. Thread-safe.

    Args:
        within: A budget that several share, and which must allow it as well.
    """

    def __init__(self, per_minute: int, per_hour: int, within: "Budget | None" = None) -> None:
        self._limits = (per_minute, per_hour)
        self._within = within
        self._spent: deque[float] = deque()
        self._lock = Lock()

    def allows(self, now: float) -> bool:
        """Return whether one more pod may be evicted at ``now``, in monotonic seconds."""
        with self._lock:
            return self._allows(now) and (self._within is None or self._within.allows(now))

    def take(self, now: float) -> bool:
        """Record that a pod is evicted at ``now``, if one more may be; return whether."""
        with self._lock:
            if not self._allows(now) or not (self._within is None or self._within.take(now)):
                return False
            self._spent.append(now)
            return True

    def give_back(self, now: float) -> None:
        """Undo the record of ``now``: the pod was not evicted."""
        with self._lock:
            self._spent.remove(now)
            if self._within is not None:
                self._within.give_back(now)

    def _allows(self, now: float) -> bool:
        while self._spent and now - self._spent[0] >= _SPANS[-1]:
            self._spent.popleft()
        return all(
            sum(now - moment < span for moment in self._spent) < limit
            for span, limit in zip(_SPANS, self._limits, strict=True)
        )
