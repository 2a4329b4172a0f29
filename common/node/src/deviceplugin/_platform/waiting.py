"""Waiting, which other threads can interrupt and end; and how often something may be done."""

import math
import threading
from collections.abc import Callable, Iterator
from copy import copy
from typing import Final, TypeVar

from deviceplugin._platform.clock import MONOTONIC, Clock

_T = TypeVar("_T")


class Waiter:
    """Waits for one thread; ``poke`` and ``end`` are for the other threads.

    A poke makes it check its condition again, now or in its next wait. Once it is over, none waits.
    """

    __slots__ = ("_ended", "_is_pointless", "_poked", "_rested", "clock")

    def __init__(self, clock: Clock = MONOTONIC) -> None:
        self.clock = clock
        self._poked = threading.Event()
        self._rested = threading.Event()
        """Set at the end only: whoever pauses is not woken by each poke."""
        self._ended = threading.Event()
        self._is_pointless: Callable[[], bool] = bool  # which is False

    def poke(self) -> None:
        """Make the thread check its condition again."""
        self._poked.set()

    def end(self) -> None:
        """End all waits of this thread, now and later, also those of waiters from ``unless``."""
        self._ended.set()
        self._rested.set()
        self._poked.set()

    def is_over(self) -> bool:
        """Return whether there is nothing to wait for any more."""
        return self._ended.is_set() or self._is_pointless()

    def unless(self, is_pointless: Callable[[], bool]) -> "Waiter":
        """Return a waiter for the same thread that is also over while ``is_pointless()``."""
        other = copy(self)
        other._is_pointless = lambda: self.is_over() or is_pointless()  # noqa: SLF001 - ours
        return other

    def until(
        self, condition: Callable[[], _T], seconds: float = math.inf, *, every: float = math.inf
    ) -> _T:
        """Wait until ``condition()`` is true, and return its last value.

        The value is false after ``seconds``, or once the waiter is over. The condition is checked
        after each poke, and every ``every`` seconds for changes that nobody pokes about.
        """
        deadline = self.clock.now() + seconds
        while not (found := condition()) and not self.is_over():
            now = self.clock.now()
            if now >= deadline:
                break
            self._wait(min(deadline, now + every))
        return found

    def until_poked(self, seconds: float = math.inf) -> None:
        """Wait for a poke, at most ``seconds``; return at once if the waiter is over."""
        if not self.is_over():
            self._wait(self.clock.now() + seconds)

    def pause(self, seconds: float) -> None:
        """Wait ``seconds``, or until the waiter is over. Pokes of this time are forgotten."""
        if self._is_pointless is not bool:  # a poke may be about that
            self.until(lambda: False, seconds)
        elif seconds > 0 and not self.is_over():
            self.clock.wait(self._rested, self.clock.now() + seconds)
            self._rested.clear()  # which the clock of a test has set
            self._poked.clear()

    def pause_while(
        self, is_busy: Callable[[], bool], step: float = 0.05, most: float = 0.5
    ) -> None:
        """Wait ``step`` seconds, and go on while ``is_busy()``, until ``most`` have passed.

        So changes that come together are handled together, and after what a pod waits for.
        """
        end = self.clock.now() + most
        self.pause(step)
        while is_busy() and self.clock.now() < end and not self.is_over():
            self.pause(step)

    def ticks(self, seconds: float) -> Iterator[None]:
        """Yield every ``seconds``, until the waiter is over."""
        while True:
            self.pause(seconds)
            if self.is_over():
                return
            yield

    def _wait(self, deadline: float) -> None:
        self.clock.wait(self._poked, deadline)
        self._poked.clear()


_ROUNDING: Final = 1e-6
"""Of one use, what is left of it by adding fractions: a time that short does not pass."""


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
        missing = 1 - self._left
        return missing * self._refill if missing > _ROUNDING else 0.0

    def take(self) -> None:
        self._left -= 1
