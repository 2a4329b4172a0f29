"""Wait longer after each failure, by a clock that a test can hold. The core does the same.

``Backoff`` says how long to wait. ``changes(stop)`` waits by ``clock.pause(stop, seconds)``; a
thread of its own, which others wake and end, has a ``Waiter``.
"""

from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter

__all__ = ["MONOTONIC", "Backoff", "Clock", "Waiter"]
