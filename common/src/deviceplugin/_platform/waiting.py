"""Waiting of one thread, which others can poke and end."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from deviceplugin._platform.clock import MONOTONIC, Clock


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

    def until(self, condition: Callable[[], bool], seconds: float = math.inf) -> bool:
        """Wait until ``condition`` holds, and return whether it does.

        It does not after ``seconds``, or once the waiter is over.
        """
        deadline = self.clock.now() + seconds
        while not (holds := condition()) and not self.is_over() and self.clock.now() < deadline:
            self._wait(deadline)
        return holds

    def until_poked(self, seconds: float = math.inf) -> None:
        """Wait for a poke, ``seconds`` at most; not at all once the waiter is over."""
        if not self.is_over():
            self._wait(self.clock.now() + seconds)

    def pause(self, seconds: float) -> None:
        """Wait ``seconds``, or until the waiter is over."""
        self.until(lambda: False, seconds)

    def _wait(self, deadline: float) -> None:
        self.clock.wait(self._poked, deadline)
        self._poked.clear()
