"""A queue of object names with delays. A name is in it at most once."""

import threading
from collections.abc import Callable
from typing import Final

from deviceplugin.kit.backoff import Backoff

DEBOUNCE: Final = 0.05
"""Seconds in which several events of an object become one reconcile."""
FIRST_WAIT: Final = 1.0
LAST_WAIT: Final = 60.0


class Queue:
    """A queue for one reader. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: dict[str, float] = {}
        self._waits: dict[str, Backoff] = {}
        self._closed = False

    def add(self, name: str, after: float = DEBOUNCE) -> None:
        """Make ``name`` due in ``after`` seconds, unless it is due earlier."""
        due = self._clock() + after
        with self._changed:
            self._due[name] = min(due, self._due.get(name, due))
            self._changed.notify_all()

    def again(self, name: str) -> None:
        """Make ``name`` due again after a failure, with a growing delay."""
        backoff = self._waits.setdefault(name, Backoff(FIRST_WAIT, LAST_WAIT))
        self.add(name, backoff.next_wait())

    def done(self, name: str) -> None:
        """Forget the failures of ``name``."""
        self._waits.pop(name, None)

    def close(self) -> None:
        """Make ``take`` return None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> str | None:
        """Wait for a name that is due, and return it; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                name = min(self._due, key=self._due.__getitem__, default=None)
                left = None if name is None else self._due[name] - self._clock()
                if name is not None and left is not None and left <= 0:
                    del self._due[name]
                    return name
                self._changed.wait(left)
            return None
