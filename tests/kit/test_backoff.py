"""What plugins wait with is what the core waits with."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from deviceplugin._platform import backoff, clock, waiting
from deviceplugin.kit.backoff import MONOTONIC, Backoff, Clock, Waiter
from held_clock import HeldClock
from patience import PATIENCE


def test_it_is_the_cores_own() -> None:
    assert (backoff.Backoff, clock.Clock, clock.MONOTONIC, waiting.Waiter) == (
        *(Backoff, Clock, MONOTONIC),
        Waiter,
    )


def test_a_pause_ends_when_its_time_has_passed() -> None:
    held, event = HeldClock(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        paused = pool.submit(held.pause, event, 30.0)
        assert 30.0 == held.skip_wait()
        paused.result(PATIENCE)


@pytest.mark.parametrize("is_set_before", [True, False])
def test_a_pause_ends_at_once_when_it_is_time_to_stop(is_set_before: bool) -> None:
    stop = threading.Event()
    if is_set_before:
        stop.set()
    with ThreadPoolExecutor(1) as pool:
        paused = pool.submit(MONOTONIC.pause, stop, 3600.0)
        stop.set()
        paused.result(PATIENCE)
