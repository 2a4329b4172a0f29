import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Semaphore

import pytest

from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration.concurrency import Turns
from patience import PATIENCE


class Waiting:
    """A thread that waits for its turn; ``got`` is what came of it, once it is over."""

    def __init__(self, turns: Turns, pool: ThreadPoolExecutor, done: Callable[[], None]) -> None:
        in_row = Event()
        self.looked = Semaphore(0)

        def is_moot() -> bool:
            in_row.set()
            self.looked.release()
            return False

        self.waiter = Waiter().unless(is_moot)

        def wait() -> bool:
            with turns.turn(self.waiter) as has_place:
                done()
                return has_place

        self.got: Future[bool] = pool.submit(wait)
        assert in_row.wait(PATIENCE)

    def give_up(self) -> None:
        """Let its wish be moot."""
        self.waiter.end()


@pytest.fixture
def turns() -> Turns:
    return Turns(1)


def test_who_finds_a_place_free_has_it_at_once() -> None:
    turns = Turns(2)
    with turns.turn(Waiter()) as first, turns.turn(Waiter()) as second:
        assert (True, True) == (first, second)


def test_a_place_goes_to_who_has_waited_longest(turns: Turns) -> None:
    order: list[int] = []
    with ThreadPoolExecutor(3) as pool:
        with turns.turn(Waiter()):
            threads = [Waiting(turns, pool, lambda n=n: order.append(n)) for n in range(3)]  # type: ignore[misc]
            assert not any(thread.got.done() for thread in threads)
        assert [True] * 3 == [thread.got.result(PATIENCE) for thread in threads]
    assert [0, 1, 2] == order


def test_who_does_not_want_it_any_more_leaves_the_row(turns: Turns) -> None:
    with ThreadPoolExecutor(2) as pool:
        with turns.turn(Waiter()):
            first = Waiting(turns, pool, lambda: None)
            second = Waiting(turns, pool, lambda: None)
            first.give_up()
            assert not first.got.result(PATIENCE)
        assert second.got.result(PATIENCE)
    with turns.turn(Waiter()) as is_free_again:
        assert is_free_again


def test_who_is_woken_for_another_reason_waits_on(turns: Turns) -> None:
    with ThreadPoolExecutor(1) as pool:
        with turns.turn(Waiter()):
            thread = Waiting(turns, pool, lambda: None)
            while thread.looked.acquire(blocking=False):
                pass
            thread.waiter.poke()
            assert thread.looked.acquire(timeout=PATIENCE)
            assert not thread.got.done()
        assert thread.got.result(PATIENCE)


def fail() -> bool:
    raise LookupError


def test_who_fails_while_waiting_or_with_a_place_keeps_none(turns: Turns) -> None:
    with turns.turn(Waiter()), pytest.raises(LookupError), turns.turn(Waiter().unless(fail)):
        pass
    with pytest.raises(LookupError), turns.turn(Waiter()):
        fail()
    with turns.turn(Waiter().unless(fail)) as is_free_again:
        assert is_free_again


def test_a_place_that_comes_to_who_fails_goes_to_the_next(turns: Turns) -> None:
    place = turns.turn(Waiter())

    def moot() -> bool:
        place.__exit__(None, None, None)
        return fail()

    assert place.__enter__()
    with pytest.raises(LookupError), turns.turn(Waiter().unless(moot)):
        pass
    with turns.turn(Waiter().unless(fail)) as is_free_again:
        assert is_free_again


def test_however_many_come_and_go_no_more_than_that_many_are_in(turns: Turns) -> None:
    turns = Turns(3)
    inside, most, lock = 0, 0, threading.Lock()

    def work(number: int) -> None:
        nonlocal inside, most
        # Some find their wish moot at once, in any state of the row.
        with turns.turn(Waiter().unless(lambda: number % 3 == 0)) as has_place:
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
    with turns.turn(Waiter()) as a, turns.turn(Waiter()) as b:
        assert (True, True) == (a, b)
