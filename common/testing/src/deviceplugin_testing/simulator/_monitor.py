"""State that threads share, and waiting for it to change."""

import math
import threading
from collections.abc import Callable
from typing import TypeVar

from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter

_T = TypeVar("_T")


class Monitor:
    """A lock around shared state, and waiting for conditions on that state.

    ``with monitor:`` holds the lock, which is reentrant. A thread that changes the state calls
    ``poke``, and all waiting threads check their conditions again. Once the monitor is over, all
    waits end.
    """

    def __init__(self, clock: Clock = MONOTONIC) -> None:
        self.clock = clock
        self._lock = threading.RLock()
        self._waiters: set[Waiter] = set()
        self._over = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def poke(self) -> None:
        """Make all waiting threads check their conditions again."""
        with self._lock:
            for waiter in self._waiters:
                waiter.poke()

    def end(self) -> None:
        """End all waits, now and later."""
        self._over = True
        self.poke()

    def is_over(self) -> bool:
        return self._over

    def until(
        self, condition: Callable[[], _T], seconds: float = math.inf, *, every: float = math.inf
    ) -> _T:
        """Wait as ``Waiter.until`` does; ``condition`` is called with the lock held.

        The thread must not hold the lock itself, because then nothing could change.
        """

        def checked() -> _T:
            with self._lock:
                return condition()

        waiter = Waiter(self.clock).unless(self.is_over)
        with self._lock:
            self._waiters.add(waiter)
        try:
            return waiter.until(checked, seconds, every=every)
        finally:
            with self._lock:
                self._waiters.discard(waiter)

    def pause(self, seconds: float = math.inf) -> None:
        """Wait ``seconds``, or until the monitor is over."""
        self.until(lambda: False, seconds)
