"""Letting only a few threads do something at a time, first come, first served."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from deviceplugin._platform.waiting import Waiter


class Turns:
    """So many places, and those who wait for one, each with a waiter of its own."""

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._free = places
        self._waiting: deque[Waiter] = deque()
        self._called: set[Waiter] = set()

    @contextmanager
    def turn(self, waiter: Waiter) -> Iterator[bool]:
        """Wait for a place and have it for the block; False without one: ``waiter`` is over."""
        has_place = self._wait(waiter)
        try:
            yield has_place
        finally:
            if has_place:
                self._give_up_place()

    def _wait(self, waiter: Waiter) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            self._waiting.append(waiter)
        try:
            waiter.until(lambda: waiter in self._called)
        except BaseException:
            if self._leave(waiter):
                self._give_up_place()
            raise
        return self._leave(waiter)

    def _leave(self, waiter: Waiter) -> bool:
        """Wait no longer, and tell whether there is a place: it may have come just now."""
        with self._lock:
            if waiter in self._called:
                self._called.remove(waiter)
                return True
            self._waiting.remove(waiter)
            return False

    def _give_up_place(self) -> None:
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            waiter = self._waiting.popleft()
            self._called.add(waiter)
        waiter.poke()
