"""Waiting of one thread, which others can poke and end."""

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from deviceplugin._platform.clock import MONOTONIC, Clock

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """What one thread waits with; ``poke`` and ``end`` are for the others.

    A poke has the thread look again at what it waits for. It is kept for a thread that does not
    wait at that moment, so none is lost. Once the waiter is over, nothing is waited for any more.
    """

    clock: Clock = MONOTONIC
    _poked: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _is_moot: Callable[[], bool] = bool  # which is False

    def poke(self) -> None:
        """Have what is waited for looked at again."""
        self._poked.set()

    def end(self) -> None:
        """Be over from now on, and with it all waiters of this thread that ``unless`` made."""
        self._ended.set()
        self._poked.set()

    def is_over(self) -> bool:
        """Return whether there is nothing to wait for any more."""
        return self._ended.is_set() or self._is_moot()

    def unless(self, is_moot: Callable[[], bool]) -> "Waiter":
        """Return this waiter, which is over also while ``is_moot`` says so.

        A poke has that asked again.
        """
        return replace(self, _is_moot=lambda: self.is_over() or is_moot())

    def until(
        self, condition: Callable[[], _T], seconds: float = math.inf, *, every: float = math.inf
    ) -> _T:
        """Wait until ``condition`` returns something true, and return what it returned last.

        That is false after ``seconds``, or once the waiter is over. It is asked after each poke,
        and at intervals of ``every`` seconds for what nobody pokes about.
        """
        deadline = self.clock.now() + seconds
        while not (found := condition()) and not self.is_over():
            now = self.clock.now()
            if now >= deadline:
                break
            self._wait(min(deadline, now + every))
        return found

    def until_poked(self, seconds: float = math.inf) -> None:
        """Wait for a poke, ``seconds`` at most; not at all once the waiter is over."""
        if not self.is_over():
            self._wait(self.clock.now() + seconds)

    def pause(self, seconds: float) -> None:
        """Wait ``seconds``, or until the waiter is over."""
        self.until(lambda: False, seconds)

    def ticks(self, seconds: float) -> Iterator[None]:
        """Yield after ``seconds`` each time, until the waiter is over."""
        while True:
            self.pause(seconds)
            if self.is_over():
                return
            yield

    def _wait(self, deadline: float) -> None:
        self.clock.wait(self._poked, deadline)
        self._poked.clear()
