"""A semaphore that is first come, first served, and whose waits can be ended."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from deviceplugin._platform.waiting import Waiter


class Slots:
    """A number of slots, and a queue of threads that wait for one, each with its own waiter."""

    def __init__(self, slots: int) -> None:
        self._lock = threading.Lock()
        self._free = slots
        self._waiting: deque[Waiter] = deque()
        self._called: set[Waiter] = set()

    @contextmanager
    def slot(self, waiter: Waiter) -> Iterator[bool]:
        """Wait for a slot, and hold it in the context. Yield False if ``waiter`` is over first."""
        has_slot = self._wait(waiter)
        try:
            yield has_slot
        finally:
            if has_slot:
                self._give_up_slot()

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
                self._give_up_slot()
            raise
        return self._leave(waiter)

    def _leave(self, waiter: Waiter) -> bool:
        """Stop waiting, and return whether a slot was granted meanwhile."""
        with self._lock:
            if waiter in self._called:
                self._called.remove(waiter)
                return True
            self._waiting.remove(waiter)
            return False

    def _give_up_slot(self) -> None:
        with self._lock:
            if not self._waiting:
                self._free += 1
                return
            waiter = self._waiting.popleft()
            self._called.add(waiter)
        waiter.poke()
