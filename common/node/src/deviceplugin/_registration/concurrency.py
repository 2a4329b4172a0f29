"""What hundreds of resources share when all of them register at once."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from deviceplugin._platform.waiting import Waiter


class Slots:
    """A semaphore that is first come, first served, and whose waits can be ended."""

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


class SharedChannel:
    """A channel for all that call at a time: to open one costs three times as much as a call."""

    def __init__(self, connect: Callable[[], grpc.Channel]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._current: _Open | None = None

    @contextmanager
    def use(self, server: object) -> Iterator[grpc.Channel]:
        """Hold the channel in the context.

        It is shared only by users of an equal ``server``, and by none after the context of one of
        them has raised: a channel that could not connect lets its next calls fail, too.
        """
        with self._lock:
            mine = self._current
            if mine is None or mine.server != server:
                mine = self._current = _Open(server, self._connect())
            mine.users += 1
        try:
            yield mine.channel
        except BaseException:
            with self._lock:
                self._forget(mine)
            raise
        finally:
            with self._lock:
                mine.users -= 1
                if is_unused := not mine.users:
                    self._forget(mine)
            if is_unused:
                mine.channel.close()

    def _forget(self, channel: "_Open") -> None:
        if self._current is channel:
            self._current = None


@dataclass(eq=False)
class _Open:
    server: object
    channel: grpc.Channel
    users: int = 0
