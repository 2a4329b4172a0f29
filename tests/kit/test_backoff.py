"""What plugins wait with is what the core waits with."""

import threading
from concurrent.futures import ThreadPoolExecutor

from deviceplugin._platform import backoff, clock, waiting
from deviceplugin.kit.backoff import MONOTONIC, Backoff, Clock, Waiter
from patience import PATIENCE


def test_it_is_the_cores_own() -> None:
    ours = (backoff.Backoff, clock.Clock, clock.MONOTONIC, waiting.Waiter)
    assert ours == (Backoff, Clock, MONOTONIC, Waiter)


def test_a_pause_ends_at_once_when_it_is_time_to_stop() -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        paused = pool.submit(MONOTONIC.pause, stop, 3600.0)
        stop.set()
        paused.result(PATIENCE)
