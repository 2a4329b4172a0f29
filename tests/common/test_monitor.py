"""Waiting of several threads for what they share."""

import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from deviceplugin_testing.simulator._monitor import Monitor
from held_clock import HeldClock
from patience import PATIENCE


class Shared:
    """A number that threads share, and a thread for each that waits for it."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.clock = HeldClock()
        self.monitor = Monitor(self.clock)
        self.number = 0
        self._pool = pool
        self._looks = threading.Semaphore(0)

    def until(self, least: int, seconds: float = math.inf) -> Future[bool]:
        """Let a thread wait for the number, and return once it has looked for the first time."""

        def enough() -> bool:
            self._looks.release()
            return self.number >= least

        found = self._pool.submit(self.monitor.until, enough, seconds)
        self.looked(1)
        return found

    def looked(self, times: int) -> None:
        assert all(self._looks.acquire(timeout=PATIENCE) for _ in range(times))

    def become(self, number: int) -> None:
        with self.monitor:
            self.number = number
            self.monitor.poke()


@pytest.fixture
def shared() -> Iterator[Shared]:
    with ThreadPoolExecutor(4) as pool:
        made = Shared(pool)
        try:
            yield made
        finally:
            made.monitor.end()


def test_a_poke_has_all_look_again_and_those_go_on_who_wait_no_more(shared: Shared) -> None:
    one, another, two = shared.until(1), shared.until(1), shared.until(2)
    shared.become(1)
    shared.looked(3)
    assert [True, True] == [one.result(PATIENCE), another.result(PATIENCE)]
    assert not two.done()
    shared.become(2)
    assert two.result(PATIENCE)


def test_each_waits_for_as_long_as_it_said(shared: Shared) -> None:
    short, long = shared.until(1, 1.0), shared.until(1, 3.0)
    shared.clock.wait_for_wait(2)
    assert 1.0 == shared.clock.skip_wait()
    assert not short.result(PATIENCE)
    assert 2.0 == shared.clock.skip_wait()
    assert not long.result(PATIENCE)


def test_the_lock_is_free_while_threads_wait_and_held_while_they_look(shared: Shared) -> None:
    holder: list[bool] = []

    def take() -> None:
        holder.append(shared.monitor._lock.acquire(blocking=False))

    def look() -> bool:
        taken = threading.Thread(target=take)
        taken.start()
        taken.join()
        return shared.number == 1

    waiting = shared.until(1)
    with shared.monitor, shared.monitor:  # which a thread may take again
        shared.number = 1
    assert shared.monitor.until(look)
    assert [False] == holder
    shared.monitor.poke()
    assert waiting.result(PATIENCE)


def test_once_it_is_over_nobody_waits_nor_whoever_failed_to_look(shared: Shared) -> None:
    def fail() -> bool:
        raise LookupError

    with pytest.raises(LookupError):
        shared.monitor.until(fail)
    assert set() == shared.monitor._waiters
    waiting = shared.until(1)
    shared.monitor.end()
    assert not waiting.result(PATIENCE)
    assert not shared.monitor.until(lambda: False)
    shared.monitor.pause()
    assert shared.monitor.is_over()
    assert shared.monitor.until(lambda: True)
