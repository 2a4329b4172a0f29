"""Time that passes only when told to."""


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
