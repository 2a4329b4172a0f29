"""Letting only a few threads do something at a time, first come, first served."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """So many places, and those who wait for one, each on an event of its own."""

    def __init__(self, places: int) -> None:
        self._lock = threading.Lock()
        self._free = places
        self._waiting: deque[threading.Event] = deque()
        self._called: set[threading.Event] = set()

    @contextmanager
    def turn(self, wake: threading.Event, moot: Callable[[], bool]) -> Iterator[bool]:
        """Wait for a place and have it for the block; False without one, because it is ``moot``.

        That is asked again whenever ``wake`` is set, which must be of this thread alone.
        """
        has_place = self._wait(wake, moot)
        try:
            yield has_place
        finally:
            if has_place:
                self._give_up_place()

    def _wait(self, wake: threading.Event, moot: Callable[[], bool]) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            self._waiting.append(wake)
        try:
            while wake not in self._called and not moot():
                wake.wait()
                wake.clear()
        except BaseException:
            if self._leave(wake):
                self._give_up_place()
            raise
        return self._leave(wake)

    def _leave(self, wake: threading.Event) -> bool:
        """Wait no longer, and tell whether there is a place: it may have come just now."""
        with self._lock:
            if wake in self._called:
                self._called.remove(wake)
                return True
            self._waiting.remove(wake)
            return False

    def _give_up_place(self) -> None:
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            wake = self._waiting.popleft()
            self._called.add(wake)
        wake.set()
