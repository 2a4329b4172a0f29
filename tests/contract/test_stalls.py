"""The threads that tests can let stall."""

import threading
from collections.abc import Callable

from stalls import stalls


def call_often(stop: Callable[[], bool]) -> None:
    """Call functions of ours for long enough to stall, or until ``stop()``."""
    for _ in range(100_000):
        if stop():
            return


def test_each_thread_stalls_and_none_after_the_context() -> None:
    stalled: list[threading.Thread] = []

    def sleep(seconds: float) -> None:
        assert 0 < seconds < 1
        stalled.append(threading.current_thread())

    with stalls(1, sleep):
        here, other = threading.current_thread(), threading.Thread(target=lambda: look(other))

        def look(thread: threading.Thread) -> None:
            call_often(lambda: thread in stalled)

        look(here)
        other.start()
        other.join()
        assert {here, other} == set(stalled)
        stalled.clear()
    call_often(lambda: bool(stalled))
    assert [] == stalled
