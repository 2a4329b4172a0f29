"""Threads that stall at random calls, as on a machine that has much else to do.

With ``make test ARGS="--stalls 1"`` all tests run like that; the number is a seed. It finds tests
and code that assume that a thread goes on at once. What fails has mostly measured a short time, or
takes for granted that another thread has done something; now and then it is a defect.
"""

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

_OURS: Final = str(Path(__file__).parents[2])
_CHANCE: Final = 0.01
"""Of a stall at each call and return of our functions."""
_REST: Final = 0.2
"""Seconds that a thread then works without one."""
_SHORTEST: Final = 0.03
_LONGEST: Final = 0.25
"""Seconds of a stall."""

_Profile = Callable[[FrameType, str, Any], object]


@contextmanager
def stalls(seed: int, sleep: Callable[[float], object] = time.sleep) -> Iterator[None]:
    """Let this thread, and those that start in the context, stall now and then.

    Once the context is left, none does.
    """
    over = threading.Event()
    numbers = random.Random(seed)

    def begin(frame: FrameType, event: str, what: object) -> None:
        profile = _stalling(random.Random(numbers.random()), sleep, over)
        sys.setprofile(profile)
        profile(frame, event, what)

    threading.setprofile(begin)
    sys.setprofile(begin)
    try:
        yield
    finally:
        over.set()
        sys.setprofile(None)
        threading.setprofile(None)


def _stalling(
    numbers: random.Random, sleep: Callable[[float], object], over: threading.Event
) -> _Profile:
    """Return the profile function of a thread."""
    rests_until = 0.0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal rests_until
        if event not in {"call", "return"} or numbers.random() >= _CHANCE:
            return
        if not frame.f_code.co_filename.startswith(_OURS) or time.monotonic() < rests_until:
            return
        if over.is_set():
            sys.setprofile(None)
            return
        sleep(numbers.uniform(_SHORTEST, _LONGEST))
        rests_until = time.monotonic() + _REST

    return profile
