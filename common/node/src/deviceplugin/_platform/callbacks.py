"""Functions that are called when something has changed."""

import threading
from collections.abc import Callable


class Listeners:
    """The functions to call after a change. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: tuple[Callable[[], None], ...] = ()

    def add(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed`` after each change; return a function that ends this."""
        with self._lock:
            self._all = (*self._all, changed)

        def end() -> None:
            with self._lock:
                self._all = tuple(each for each in self._all if each != changed)

        return end

    def call(self) -> None:
        """Call all of them. The caller must not hold a lock that they may wait for."""
        for changed in self._all:
            changed()
