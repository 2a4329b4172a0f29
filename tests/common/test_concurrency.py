import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Semaphore
from typing import Any

import pytest

from deviceplugin._platform.waiting import Waiter
from deviceplugin._registration.concurrency import SharedChannel, Slots
from patience import PATIENCE


class Waiting:
    """A thread that waits for a slot; ``got`` is what came of it, once it is over."""

    def __init__(self, slots: Slots, pool: ThreadPoolExecutor, done: Callable[[], None]) -> None:
        in_row = Event()
        self.looked = Semaphore(0)

        def is_cancelled() -> bool:
            in_row.set()
            self.looked.release()
            return False

        self.waiter = Waiter().unless(is_cancelled)

        def wait() -> bool:
            with slots.slot(self.waiter) as has_slot:
                done()
                return has_slot

        self.got: Future[bool] = pool.submit(wait)
        assert in_row.wait(PATIENCE)


@pytest.fixture
def slots() -> Slots:
    return Slots(1)


def test_a_slot_goes_to_who_has_waited_longest(slots: Slots) -> None:
    order: list[int] = []
    with ThreadPoolExecutor(3) as pool:
        with slots.slot(Waiter()):
            threads = [Waiting(slots, pool, lambda n=n: order.append(n)) for n in range(3)]  # type: ignore[misc]
            assert not any(thread.got.done() for thread in threads)
        assert [True] * 3 == [thread.got.result(PATIENCE) for thread in threads]
    assert [0, 1, 2] == order


def test_who_does_not_want_it_any_more_leaves_the_queue_and_who_is_only_woken_waits_on(
    slots: Slots,
) -> None:
    with ThreadPoolExecutor(2) as pool:
        with slots.slot(Waiter()):
            first = Waiting(slots, pool, lambda: None)
            second = Waiting(slots, pool, lambda: None)
            while second.looked.acquire(blocking=False):
                pass
            second.waiter.poke()
            assert second.looked.acquire(timeout=PATIENCE)
            assert not second.got.done()
            first.waiter.end()
            assert not first.got.result(PATIENCE)
        assert second.got.result(PATIENCE)
    with slots.slot(Waiter()) as is_free_again:
        assert is_free_again


def fail() -> bool:
    raise LookupError


def test_who_fails_while_waiting_or_with_a_slot_keeps_none(slots: Slots) -> None:
    with slots.slot(Waiter()), pytest.raises(LookupError), slots.slot(Waiter().unless(fail)):
        pass
    with pytest.raises(LookupError), slots.slot(Waiter()):
        fail()
    with slots.slot(Waiter().unless(fail)) as is_free_again:
        assert is_free_again


def test_a_slot_that_comes_to_who_fails_goes_to_the_next(slots: Slots) -> None:
    slot = slots.slot(Waiter())

    def cancelled() -> bool:
        slot.__exit__(None, None, None)
        return fail()

    assert slot.__enter__()
    with pytest.raises(LookupError), slots.slot(Waiter().unless(cancelled)):
        pass
    with slots.slot(Waiter().unless(fail)) as is_free_again:
        assert is_free_again


def test_however_many_come_and_go_no_more_than_that_many_are_in(slots: Slots) -> None:
    slots = Slots(3)
    inside, most, lock = 0, 0, threading.Lock()

    def work(number: int) -> None:
        nonlocal inside, most
        # Some are cancelled at once, whatever the state of the queue.
        with slots.slot(Waiter().unless(lambda: number % 3 == 0)) as has_slot:
            if has_slot:
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(2000)))
    assert most <= 3
    assert 0 == inside
    with slots.slot(Waiter()) as a, slots.slot(Waiter()) as b:
        assert (True, True) == (a, b)


class Channel:
    """Only knows whether it is open."""

    is_open = True

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def opened() -> list[Channel]:
    """All that have been opened."""
    return []


@pytest.fixture
def shared(opened: list[Channel]) -> SharedChannel:
    def open_another() -> Any:
        opened.append(Channel())
        return opened[-1]

    return SharedChannel(open_another)


def are_open(channels: Iterable[Channel]) -> list[bool]:
    return [one.is_open for one in channels]


def test_a_channel_to_a_server_is_shared_until_its_last_user_is_done(
    shared: SharedChannel, opened: list[Channel]
) -> None:
    with shared.use("kubelet") as first:
        with shared.use("kubelet") as second, shared.use("next kubelet") as other:
            assert (True, False) == (second is first, other is first)
            with shared.use("next kubelet") as another:
                assert another is other
        assert [True, False] == are_open(opened)
    assert [False, False] == are_open(opened)
    with shared.use("kubelet") as third:
        assert third is not first


def test_a_channel_on_which_a_call_failed_gets_no_more_users_and_keeps_its_others(
    shared: SharedChannel, opened: list[Channel]
) -> None:
    with shared.use("kubelet") as first:
        with pytest.raises(OSError, match="unavailable"), shared.use("kubelet"):
            raise OSError("unavailable")
        assert [True] == are_open(opened)
        with shared.use("kubelet") as second:
            assert second is not first
    assert [False, False] == are_open(opened)
