"""A clock that is advanced by hand, and the default time limit for real waits."""

from typing import Final

PATIENCE: Final = 30.0
"""Seconds to wait for what should happen soon. It is long, because a busy machine is slow."""


class ManualClock:
    """A clock for ``SimulatedKubelet(clock=...)``: 5 minutes pass with ``advance(300)``."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        """Return the seconds that have passed."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass. It takes effect when the kubelet next reads the clock."""
        self._now += seconds
