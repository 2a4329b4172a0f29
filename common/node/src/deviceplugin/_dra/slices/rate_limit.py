"""Limiting how often something is done, with bursts."""

from deviceplugin._platform.clock import Clock


class Bucket:
    """Permits ``burst`` uses at once, and one more every ``refill`` seconds. For one thread."""

    def __init__(self, burst: int, refill: float, clock: Clock) -> None:
        self._burst = burst
        self._refill = refill
        self._clock = clock
        self._left = float(burst)
        self._at = clock.now()

    def wait(self) -> float:
        """Return in how many seconds the next use is permitted; 0 if it is now."""
        now = self._clock.now()
        self._left = min(self._burst, self._left + (now - self._at) / self._refill)
        self._at = now
        return max(0.0, (1 - self._left) * self._refill)

    def take(self) -> None:
        """Count one use."""
        self._left -= 1
