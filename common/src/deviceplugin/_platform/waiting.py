"""Waiting that ends early."""

import threading
import time
from collections.abc import Callable


def wait_unless(moot: Callable[[], bool], wake: threading.Event, seconds: float) -> None:
    """Wait ``seconds``, or less once ``moot``, which is asked again when ``wake`` is set."""
    deadline = time.monotonic() + seconds
    while not moot() and (left := deadline - time.monotonic()) > 0:
        wake.wait(left)
        wake.clear()
