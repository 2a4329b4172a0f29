"""Finds watches that miss changes: an open but silent one looks like a quiet cluster."""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from deviceplugin_operator.observed.seen import Object, Seen, version

LATE: Final = 60.0
"""Seconds within which a watch must show what a list has shown."""


class _Listed(NamedTuple):
    name: str
    version: int
    since: float


class Hearing:
    """By kind: what lists have shown and watches have not. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, _Listed] = {}

    def listed(self, kind: str, found: Object) -> None:
        """Note that a list has shown an unknown state of an object."""
        shown = _Listed(found["metadata"]["name"], version(found), self._clock())
        with self._lock:
            self._waiting.setdefault(kind, shown)

    def heard(self, kind: str, found: Object) -> None:
        """Note that a watch has shown ``found``, and thus everything older of its kind."""
        with self._lock:
            waiting = self._waiting.get(kind)
            if waiting and version(found) >= waiting.version:
                del self._waiting[kind]

    def deaf(self, seen: Seen) -> str:
        """Return a kind whose watch has missed an object that still exists, or an empty string."""
        with self._lock:
            for kind, one in list(self._waiting.items()):
                if seen.get(kind, one.name) is None:  # no watch shows what is gone
                    del self._waiting[kind]
                elif self._clock() - one.since > LATE:
                    return kind
        return ""
