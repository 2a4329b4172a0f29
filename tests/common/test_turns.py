import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import pytest

from deviceplugin._registration.concurrency import Turns


def never() -> bool:
    return False


class Waiting:
    """A thread that waits for its turn; ``got`` is what came of it, once it is over."""

    def __init__(self, turns: Turns, pool: ThreadPoolExecutor, done: Callable[[], None]) -> None:
        self.wake, self.moot = Event(), Event()
        in_row = Event()

        def is_moot() -> bool:
            in_row.set()
            return self.moot.is_set()

        def wait() -> bool:
            with turns.turn(self.wake, is_moot) as has_place:
                done()
                return has_place

        self.got: Future[bool] = pool.submit(wait)
        assert in_row.wait(10)

    def give_up(self) -> None:
        """Let its wish be moot."""
        self.moot.set()
        self.wake.set()


@pytest.fixture
def turns() -> Turns:
    return Turns(1)


def test_who_finds_a_place_free_has_it_at_once() -> None:
    turns = Turns(2)
    with turns.turn(Event(), never) as first, turns.turn(Event(), never) as second:
        assert (True, True) == (first, second)


def test_a_place_goes_to_who_has_waited_longest(turns: Turns) -> None:
    order: list[int] = []
    with ThreadPoolExecutor(3) as pool:
        with turns.turn(Event(), never):
            threads = [Waiting(turns, pool, lambda n=n: order.append(n)) for n in range(3)]  # type: ignore[misc]
            assert not any(thread.got.done() for thread in threads)
        assert [True] * 3 == [thread.got.result(10) for thread in threads]
    assert [0, 1, 2] == order


def test_who_does_not_want_it_any_more_leaves_the_row(turns: Turns) -> None:
    with ThreadPoolExecutor(2) as pool:
        with turns.turn(Event(), never):
            first = Waiting(turns, pool, lambda: None)
            second = Waiting(turns, pool, lambda: None)
            first.give_up()
            assert not first.got.result(10)
        assert second.got.result(10)
    with turns.turn(Event(), never) as is_free_again:
        assert is_free_again


def test_who_is_woken_for_another_reason_waits_on(turns: Turns) -> None:
    with ThreadPoolExecutor(1) as pool:
        with turns.turn(Event(), never):
            thread = Waiting(turns, pool, lambda: None)
            thread.wake.set()
            deadline = time.monotonic() + 10
            while thread.wake.is_set():
                assert time.monotonic() < deadline
                Event().wait(0.001)
            assert not thread.got.done()
        assert thread.got.result(10)


def fail() -> bool:
    raise LookupError


def test_who_fails_while_waiting_or_with_a_place_keeps_none(turns: Turns) -> None:
    with turns.turn(Event(), never), pytest.raises(LookupError), turns.turn(Event(), fail):
        pass
    with pytest.raises(LookupError), turns.turn(Event(), never):
        fail()
    with turns.turn(Event(), fail) as is_free_again:
        assert is_free_again


def test_a_place_that_comes_to_who_fails_goes_to_the_next(turns: Turns) -> None:
    place = turns.turn(Event(), never)

    def moot() -> bool:
        place.__exit__(None, None, None)
        return fail()

    assert place.__enter__()
    with pytest.raises(LookupError), turns.turn(Event(), moot):
        pass
    with turns.turn(Event(), fail) as is_free_again:
        assert is_free_again


def test_however_many_come_and_go_no_more_than_that_many_are_in(turns: Turns) -> None:
    turns = Turns(3)
    inside, most, lock = 0, 0, threading.Lock()

    def work(number: int) -> None:
        nonlocal inside, most
        # Some find their wish moot at once, in any state of the row.
        with turns.turn(Event(), lambda: number % 3 == 0) as has_place:
            if has_place:
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(2000)))
    assert most <= 3
    assert 0 == inside
    with turns.turn(Event(), never) as a, turns.turn(Event(), never) as b:
        assert (True, True) == (a, b)
