"""Waiting longer after each failure. This is the only module that decides how long.

``tenacity`` is imported at the first failure: most starts have none, and it brings asyncio's half.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tenacity import RetryCallState
    from tenacity.wait import wait_base


class Backoff:
    """How long to wait before the next attempt, in seconds. For one thread.

    The longest wait doubles from ``first`` to ``longest``. The actual wait is random, at least half
    of that: clients that fail together do not try again together. Where thousands may fail, such as
    all nodes of a cluster, ``full_jitter`` makes it any time from ``first`` on, and ``spread`` are
    the seconds by which the first wait is longer at most.
    """

    def __init__(
        self, first: float, longest: float, *, full_jitter: bool = False, spread: float = 0.0
    ) -> None:
        self._first: Final = first
        self._longest: Final = longest
        self._full_jitter: Final = full_jitter
        self._spread: Final = spread
        self._attempts: RetryCallState | None = None
        self.reset()

    def _waits(self) -> "wait_base":
        from tenacity import (
            wait_chain,
            wait_exponential,
            wait_none,
            wait_random,
            wait_random_exponential,
        )

        half = self._first / 2, self._longest / 2
        exponential = (
            wait_random_exponential(self._first, self._longest, min=self._first)
            if self._full_jitter
            else wait_exponential(*half) + wait_random_exponential(*half)
        )
        return exponential + wait_chain(wait_random(0, self._spread), wait_none())

    def reset(self) -> None:
        """Begin with ``first`` again, after a success."""
        self._attempts = None

    def next_wait(self) -> float:
        """Return how long to wait after one more failure."""
        from tenacity import RetryCallState, Retrying

        if self._attempts is None:
            self._attempts = RetryCallState(Retrying(), None, (), {})
        wait = self._waits()(self._attempts)
        self._attempts.prepare_for_next_attempt()
        return wait
