"""The latest events, for people. They are kept in memory only."""

import threading
import time
from collections import deque
from typing import Final, NamedTuple

from deviceplugin._telemetry.allowance import Allowance

MAX_EVENTS: Final = 100
"""Events that are kept; earlier ones are in the log."""
_MAX_TEXT: Final = 300
"""Characters of each string that are kept."""


class Event(NamedTuple):
    """Something that happened."""

    at: float
    """The time, in seconds since the epoch."""
    event: str
    """A constant text, the same as in the log."""
    resource: str
    device: str
    detail: str


class Events:
    """The latest events. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.registrations = Allowance()
        """Of lines about resources that come and go; metrics count them all."""

    def add(self, event: str, *, resource: str = "", device: str = "", detail: str = "") -> None:
        """Record that ``event`` happened now."""
        new = Event(time.time(), event, resource, device[:_MAX_TEXT], detail[:_MAX_TEXT])
        with self._lock:
            self._events.append(new)

    def latest(self) -> list[Event]:
        """Return all kept events, the latest first."""
        with self._lock:
            return list(reversed(self._events))
