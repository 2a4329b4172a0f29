"""What mostly sleeps, by a clock of the test's own."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import NoReturn

import pytest

from deviceplugin._app import threads as _sleepers
from deviceplugin._app.threads import Sleepers
from held_clock import HeldClock
from patience import PATIENCE, eventually

Ran = SimpleQueue[tuple[str, str]]
"""The name of each that ran, and the name of its thread."""


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def ran() -> Ran:
    return SimpleQueue()


def unguarded(_name: str, run: Callable[[], None]) -> Callable[[], None]:
    return run


@contextmanager
def running(clock: HeldClock) -> Iterator[Sleepers]:
    sleepers = Sleepers(unguarded, clock)
    thread = threading.Thread(target=sleepers.run)
    thread.start()
    try:
        yield sleepers
    finally:
        sleepers.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def steps(ran: Ran, name: str, *seconds: float) -> Iterator[float]:
    for each in seconds:
        ran.put((name, threading.current_thread().name))
        yield each


def next_of(ran: Ran) -> str:
    name, thread = ran.get(timeout=PATIENCE)
    assert name == thread
    return name


def test_each_wakes_in_its_own_time_and_ends(clock: HeldClock, ran: Ran) -> None:
    with running(clock) as sleepers:
        slow = sleepers.start("slow", steps(ran, "slow", 5.0, math.inf))
        assert "slow" == next_of(ran)
        quick = sleepers.start("quick", steps(ran, "quick", 1.0, 1.0))
        assert "quick" == next_of(ran)
        eventually(lambda: not (slow.awake or quick.awake), "both to sleep")
        assert 1.0 == clock.skip_wait()
        assert "quick" == next_of(ran)
        eventually(lambda: not quick.awake, "it to sleep again")
        assert 1.0 == clock.skip_wait()
        quick.join(PATIENCE)
        assert (False, True) == (quick.is_alive(), slow.is_alive())
        assert 3.0 == clock.skip_wait()
        assert "slow" == next_of(ran)
        slow.wake()
        slow.join(PATIENCE)
        slow.wake()  # which has ended, and stays so
        assert ran.empty()


def test_what_is_woken_while_it_is_awake_does_not_sleep(clock: HeldClock) -> None:
    def wake_itself() -> Iterator[float]:
        for _ in range(3):
            one.wake()
            yield math.inf

    go_on = threading.Event()

    def wait() -> Iterator[float]:
        go_on.wait(PATIENCE)
        yield from wake_itself()

    with running(clock) as sleepers:
        one = sleepers.start("one", wait())
        go_on.set()
        one.join(PATIENCE)
        assert not one.is_alive()


def test_only_some_have_threads_at_a_time_unless_these_hang(clock: HeldClock) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> Iterator[float]:
        begun.release()
        go_on.wait(PATIENCE)
        yield math.inf

    limit = _sleepers._AT_A_TIME
    with running(clock) as sleepers:
        eventually(lambda: sleepers._running, "the thread to run")
        all_ = [sleepers.start(f"{number}", hang()) for number in range(limit + 2)]
        for _ in range(limit):
            assert begun.acquire(timeout=PATIENCE)
        for _ in range(2):
            assert not begun.acquire(blocking=False)
            assert _sleepers._OVERTIME == pytest.approx(clock.skip_wait())
            assert begun.acquire(timeout=PATIENCE)
        go_on.set()
        eventually(lambda: not any(each.awake for each in all_), "all to sleep")


def test_the_next_has_a_thread_as_soon_as_one_gives_it_up(clock: HeldClock) -> None:
    places = [threading.Event() for _ in range(3 * _sleepers._AT_A_TIME)]

    def pass_on(number: int) -> Iterator[float]:
        places[number].set()
        yield math.inf

    with running(clock) as sleepers:
        for number in range(len(places)):
            sleepers.start(f"{number}", pass_on(number))
        assert all(place.wait(PATIENCE) for place in places)


def test_without_a_thread_it_sleeps_on(
    clock: HeldClock, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_name: str, _task: Callable[[], None]) -> NoReturn:
        raise RuntimeError("can't start new thread")

    with running(clock) as sleepers:
        with monkeypatch.context() as patch:
            patch.setattr(_sleepers._THREADS, "run", no_thread)
            one = sleepers.start("one", steps(ran, "one", math.inf))
            eventually(lambda: not one.awake, "it to sleep")
        assert 5.0 == clock.skip_wait()
        assert "one" == next_of(ran)


def test_it_works_before_there_is_a_thread_for_all_and_after(clock: HeldClock, ran: Ran) -> None:
    sleepers = Sleepers(unguarded, clock)
    one = sleepers.start("one", steps(ran, "one", math.inf, math.inf))
    assert "one" == next_of(ran)
    sleepers._running = True
    sleepers.start("late", steps(ran, "late", math.inf))
    assert ran.empty()
    sleepers.stop()
    sleepers.run()
    assert "late" == next_of(ran), "what is due when all stops gets its thread"
    eventually(lambda: not one.awake, "it to sleep")
    one.wake()
    assert "one" == next_of(ran)
    eventually(lambda: not one.awake, "it to sleep")
    one.wake()
    one.join(PATIENCE)
    assert not one.is_alive()


def test_one_that_fails_is_over_and_its_error_is_not_lost(clock: HeldClock) -> None:
    errors: list[str] = []

    def guarded(name: str, run: Callable[[], None]) -> Callable[[], None]:
        def guard() -> None:
            try:
                run()
            except ZeroDivisionError:
                errors.append(name)

        return guard

    def fail() -> Iterator[float]:
        yield 1 / 0

    sleepers = Sleepers(guarded, clock)
    one = sleepers.start("one", fail())
    one.join(PATIENCE)
    eventually(lambda: ["one"] == errors, "the error")
    assert not one.is_alive()
