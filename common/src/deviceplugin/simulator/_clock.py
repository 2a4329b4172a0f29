"""Time that passes only when told to, and how much of the real one may."""

from typing import Final

PATIENCE: Final = 30.0
"""Seconds to wait for what should be there soon: a busy machine is late with everything."""


class ManualClock:
    """A clock for ``SimulatedKubelet(clock=...)``: 5 minutes pass with ``advance(300)``."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        """Return the seconds that have passed."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass. Nothing happens by itself; the next look at the clock tells."""
        self._now += seconds
