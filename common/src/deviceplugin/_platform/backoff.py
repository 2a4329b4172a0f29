"""Waiting longer after each failure. This is the only module that decides how long."""

from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    wait_exponential,
    wait_random_exponential,
)

from deviceplugin._platform.waiting import Waiter

_T = TypeVar("_T")


class Backoff:
    """How long to wait before the next attempt, in seconds. For one thread.

    The longest wait doubles from ``first`` to ``longest``. The actual wait is random, at least half
    of that: clients that fail together do not try again together. With ``full_jitter`` it can be
    any time from ``first`` on.

    Args:
        first: The longest wait after the first failure, in seconds; more than 0.
        longest: The longest wait after many failures, in seconds.
        full_jitter: Use it where thousands fail together, such as all nodes of a cluster.
    """

    def __init__(self, first: float, longest: float, *, full_jitter: bool = False) -> None:
        half = first / 2, longest / 2
        self._wait = (
            wait_random_exponential(first, longest, min=first)
            if full_jitter
            else wait_exponential(*half) + wait_random_exponential(*half)
        )
        self.reset()

    def reset(self) -> None:
        """Begin with ``first`` again, after a success."""
        self._attempts = RetryCallState(Retrying(), None, (), {})

    def next_wait(self) -> float:
        """Return how long to wait after one more failure."""
        wait = self._wait(self._attempts)
        self._attempts.prepare_for_next_attempt()
        return wait

    def retry(
        self,
        attempt: Callable[[], _T],
        *,
        on: type[Exception],
        waiter: Waiter,
        give_up: Callable[[], bool],
        before_wait: Callable[[BaseException | None], None],
    ) -> _T:
        """Return what ``attempt`` returns. After each error of the class ``on``, wait and retry.

        ``before_wait`` is called with the error. Waits begin with ``first``, as after ``reset``.

        Raises:
            on: The last error, once ``waiter`` is over or ``give_up`` returns true.
        """

        def before_sleep(state: RetryCallState) -> None:
            before_wait(state.outcome.exception() if state.outcome else None)

        retrying = Retrying(
            retry=retry_if_exception_type(on),
            wait=self._wait,
            stop=lambda _: waiter.is_over() or give_up(),
            sleep=waiter.pause,
            before_sleep=before_sleep,
            reraise=True,
        )
        return retrying(attempt)
