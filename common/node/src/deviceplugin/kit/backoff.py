"""Waiting longer after each failure, by a clock that tests can control.

The framework itself uses the same classes. ``Backoff`` computes how long to wait. The hook
``changes(stop)`` waits with ``clock.pause(stop, seconds)``. A thread that others wake and end uses
a ``Waiter``.
"""

from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter

__all__ = ["MONOTONIC", "Backoff", "Clock", "Waiter"]
