"""What several threads share, and wait for."""

import math
import threading
from collections.abc import Callable
from typing import TypeVar

from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter

_T = TypeVar("_T")


class Monitor:
    """A lock around what threads share, and waiting until that is as one of them wants it.

    ``with monitor:`` holds the lock, which a thread may take again. Whoever changes something
    pokes, and all who wait look again. Once the monitor is over, nobody waits any more.
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
        """Have all who wait look again."""
        with self._lock:
            for waiter in self._waiters:
                waiter.poke()

    def end(self) -> None:
        """Be over from now on: all waits end."""
        self._over = True
        self.poke()

    def is_over(self) -> bool:
        """Return whether there is nothing to wait for any more."""
        return self._over

    def until(
        self, condition: Callable[[], _T], seconds: float = math.inf, *, every: float = math.inf
    ) -> _T:
        """Wait as ``Waiter.until`` does; ``condition`` is asked with the lock held.

        The thread must not hold the lock itself, because nothing could change then.
        """

        def asked() -> _T:
            with self._lock:
                return condition()

        waiter = Waiter(self.clock).unless(self.is_over)
        with self._lock:
            self._waiters.add(waiter)
        try:
            return waiter.until(asked, seconds, every=every)
        finally:
            with self._lock:
                self._waiters.discard(waiter)

    def pause(self, seconds: float = math.inf) -> None:
        """Wait ``seconds``, or until the monitor is over."""
        self.until(lambda: False, seconds)
