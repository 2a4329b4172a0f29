"""The latest events, for people, and how many lines may be logged of what changes all the time."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

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
        new = Event(time.time(), event, resource, device[:_MAX_TEXT], detail[:_MAX_TEXT])
        with self._lock:
            self._events.append(new)

    def latest(self) -> list[Event]:
        """Return all kept events, the latest first."""
        with self._lock:
            return list(reversed(self._events))


AT_ONCE: Final = 10
"""Lines about one subject without a pause."""
PAUSE: Final = 600.0
"""Seconds between further lines about one subject."""
ALL_AT_ONCE: Final = 100
ALL_PAUSE: Final = 30.0
"""The same for all subjects together: some 3,000 lines a day."""


class _Budget:
    """Lines: ``most`` at once, and then one each ``pause`` seconds."""

    __slots__ = ("_at", "_left", "_most", "_pause")

    def __init__(self, most: int, pause: float, now: float) -> None:
        self._most = most
        self._pause = pause
        self._left = float(most)
        self._at = now

    def left(self, now: float) -> float:
        return min(self._most, self._left + (now - self._at) / self._pause)

    def take(self, now: float) -> None:
        self._left, self._at = self.left(now) - 1, now


class Allowance:
    """Allows a number of lines, about each subject and in all. Thread-safe.

    A subject is remembered only until it has all of its lines again, so names that somebody makes
    up take no memory: each of them has used up a line of all.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._all = _Budget(ALL_AT_ONCE, ALL_PAUSE, clock())
        self._subjects: dict[str, _Budget] = {}

    def has(self, subject: str) -> bool:
        """Return whether a line about ``subject`` alone would be allowed."""
        with self._lock:
            known = self._subjects.get(subject)
            return known is None or known.left(self._clock()) >= 1

    def take(self, subject: str = "") -> bool:
        """Return whether a line is allowed, and count it if so; without subject, as one of all."""
        now = self._clock()
        with self._lock:
            over = [one for one, budget in self._subjects.items() if budget.left(now) >= AT_ONCE]
            for one in over:
                del self._subjects[one]
            own = self._subjects.get(subject) or _Budget(AT_ONCE, PAUSE, now)
            if self._all.left(now) < 1 or (subject and own.left(now) < 1):
                return False
            self._all.take(now)
            if subject:
                own.take(now)
                self._subjects[subject] = own
        return True
