"""Limiting evictions, so that a fault of the whole node does not empty it at once."""

from collections import deque
from typing import Final

_SPANS: Final = (60.0, 3600.0)


class Budget:
    """At most ``per_minute`` in any minute and ``per_hour`` in any hour."""

    def __init__(self, per_minute: int, per_hour: int) -> None:
        self._limits = (per_minute, per_hour)
        self._spent: deque[float] = deque(maxlen=max(self._limits))

    def allows(self, now: float) -> bool:
        """Return whether one more pod may be evicted at ``now``, in monotonic seconds."""
        return all(
            sum(now - moment < span for moment in self._spent) < limit
            for span, limit in zip(_SPANS, self._limits, strict=True)
        )

    def spend(self, now: float) -> None:
        """Record that a pod was evicted at ``now``."""
        self._spent.append(now)
