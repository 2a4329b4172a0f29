"""What hundreds of resources share when all of them register at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from deviceplugin._platform.waiting import Waiter


class Slots:
    """A semaphore that is first come, first served, and whose waits can be ended.

    Those who stand first in the row have a slot; each is a waiter of its own.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._lock = threading.Lock()
        self._row: list[Waiter] = []

    @contextmanager
    def slot(self, waiter: Waiter) -> Iterator[bool]:
        """Wait for a slot, and hold it in the context. Yield False if ``waiter`` is over first."""
        with self._lock:
            self._row.append(waiter)
        try:
            yield waiter.until(lambda: waiter in self._first())
        finally:
            with self._lock:
                self._row.remove(waiter)
            for each in self._first():
                each.poke()

    def _first(self) -> list[Waiter]:
        with self._lock:
            return self._row[: self._slots]


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
    """A channel that is in use."""

    server: object
    channel: grpc.Channel
    users: int = 0
