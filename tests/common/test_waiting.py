"""Waiting that others poke and end, with a clock of the test's own and with the machine's."""

import math
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

from deviceplugin._platform.waiting import Bucket, Waiter
from held_clock import HeldClock
from patience import PATIENCE

_T = TypeVar("_T")


class Waiting:
    """A waiter, its clock, and a thread to wait in."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.clock = HeldClock()
        self.waiter = Waiter(self.clock)
        self.holds = False
        self.moot = False
        self.looks = threading.Semaphore(0)
        self._pool = pool

    def condition(self) -> bool:
        self.looks.release()
        return self.holds

    def run(self, call: Callable[[], _T]) -> Future[_T]:
        """Let the thread do something."""
        return self._pool.submit(call)

    def skip_wait(self) -> float:
        """Let the wait end by time, and return how long it was once the thread has looked."""
        seconds = self.clock.skip_wait()
        assert self.looks.acquire(timeout=PATIENCE)
        return seconds

    def until(
        self, waiter: Waiter, seconds: float = 10.0, *, every: float = math.inf
    ) -> Future[bool]:
        """Let the thread wait, and return once it has looked for the first time."""
        found = self.run(lambda: waiter.until(self.condition, seconds, every=every))
        assert self.looks.acquire(timeout=PATIENCE)
        return found

    def poke(self) -> None:
        """Poke, and return once the thread has looked again."""
        self.waiter.poke()
        assert self.looks.acquire(timeout=PATIENCE)


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    with ThreadPoolExecutor(1) as pool:
        made = Waiting(pool)
        try:
            yield made
        finally:
            made.waiter.end()


def test_a_wait_ends_when_its_condition_holds_and_a_poke_has_it_looked_at(waiting: Waiting) -> None:
    found = waiting.until(waiting.waiter)
    waiting.poke()
    assert not found.done()
    waiting.holds = True
    waiting.poke()
    assert found.result(PATIENCE)


def test_a_wait_takes_at_most_so_long_however_often_it_is_poked(waiting: Waiting) -> None:
    found = waiting.until(waiting.waiter, 10.0)
    waiting.clock.advance(4.0)
    waiting.poke()
    assert 6.0 == waiting.clock.skip_wait()
    assert not found.result(PATIENCE)


def test_once_it_is_over_nothing_is_waited_for_and_what_holds_is_found(waiting: Waiting) -> None:
    found = waiting.until(waiting.waiter)
    waiting.waiter.end()
    assert not found.result(PATIENCE)
    waiting.waiter.until_poked()
    waiting.waiter.pause(10.0)
    assert waiting.waiter.is_over()
    assert waiting.waiter.until(lambda: True)


@pytest.mark.parametrize("how", ["moot", "end of the whole", "end of its own"])
def test_a_narrower_waiter_is_over_earlier_and_shares_its_pokes(waiting: Waiting, how: str) -> None:
    narrower = waiting.waiter.unless(lambda: waiting.moot).unless(lambda: False)
    found = waiting.until(narrower)
    waiting.poke()
    assert not found.done()
    ends: dict[str, Callable[[], None]] = {
        "moot": waiting.waiter.poke,
        "end of the whole": waiting.waiter.end,
        "end of its own": narrower.end,
    }
    waiting.moot = how == "moot"
    ends[how]()
    assert not found.result(PATIENCE)
    assert narrower.is_over()
    assert (how != "moot") is waiting.waiter.is_over()


def test_a_poke_that_comes_before_the_wait_is_not_lost() -> None:
    waiter = Waiter()
    for seconds in (math.inf, 2 * threading.TIMEOUT_MAX):  # longer than a machine can wait
        waiter.poke()
        waiter.until_poked(seconds)  # or this would not return


def test_the_machines_clock_lets_time_pass_until_a_poke() -> None:
    waiter = Waiter()
    before = waiter.clock.now()
    waiter.pause(0.01)
    waiter.until_poked(0.01)
    assert waiter.clock.now() - before >= 0.02
    poker = threading.Timer(0.01, waiter.poke)
    poker.start()
    waiter.until_poked()
    poker.join()


def test_what_nobody_pokes_about_is_asked_at_intervals_until_the_end(waiting: Waiting) -> None:
    found = waiting.until(waiting.waiter, 0.5, every=0.2)
    assert [0.2, 0.2, 0.1] == [round(waiting.skip_wait(), 3) for _ in range(3)]
    assert not found.result(PATIENCE)


def test_a_wait_gives_what_its_condition_gave() -> None:
    assert ["found"] == Waiter().until(lambda: ["found"])
    assert [] == Waiter().until(list, 0)


def test_ticks_come_at_intervals_until_the_waiter_is_over(waiting: Waiting) -> None:
    ticks = waiting.run(lambda: [waiting.condition() for _ in waiting.waiter.ticks(2.0)])
    assert [2.0, 2.0] == [waiting.skip_wait() for _ in range(2)]
    waiting.waiter.end()
    assert 2 == len(ticks.result(PATIENCE))


@pytest.mark.parametrize("seed", range(20))
def test_whoever_has_waited_for_the_bucket_may_use_it(seed: int) -> None:
    chance, clock = random.Random(seed), HeldClock()
    bucket = Bucket(2, 1.0, clock)
    for _ in range(50):
        clock.advance(chance.uniform(0, 1.5))
        clock.advance(bucket.wait())
        assert 0 == bucket.wait()
        bucket.take()


def test_a_pause_is_as_long_as_it_should_be_however_often_it_is_poked(waiting: Waiting) -> None:
    pause = waiting.run(lambda: waiting.waiter.pause(10.0))
    waiting.clock.wait_for_wait()
    waiting.waiter.poke()
    waiting.clock.advance(4.0)
    assert 6.0 == waiting.clock.skip_wait()
    pause.result(PATIENCE)
    found = waiting.until(waiting.waiter, 3.0)  # that poke is forgotten
    assert 3.0 == waiting.skip_wait()
    assert not found.result(PATIENCE)


def test_a_pause_ends_with_the_waiter_and_a_later_one_does_not_begin(waiting: Waiting) -> None:
    pause = waiting.run(lambda: waiting.waiter.pause(10.0))
    waiting.clock.wait_for_wait()
    waiting.waiter.end()
    pause.result(PATIENCE)
    waiting.run(lambda: waiting.waiter.pause(10.0)).result(PATIENCE)
    assert 0.0 == waiting.clock.now()


@pytest.mark.parametrize(("checks", "seconds"), [(1, 0.1), (3, 0.3), (100, 0.5)])
def test_what_can_wait_waits_while_others_are_busy_and_not_for_ever(
    waiting: Waiting, checks: int, seconds: float
) -> None:
    busy = iter([True] * (checks - 1))
    pause = waiting.run(lambda: waiting.waiter.pause_while(lambda: next(busy, False), 0.1))
    while not pause.done():
        waiting.clock.end_waits()
    pause.result(PATIENCE)
    assert seconds == pytest.approx(waiting.clock.now())
