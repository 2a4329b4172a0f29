"""What the operator knows of its objects, and watches that miss changes."""

import threading
from collections.abc import Callable
from typing import Any, Final

from deviceplugin.apiserver import Page
from deviceplugin_operator import names

Object = dict[str, Any]

OWNERS: Final = names.PLURAL
DAEMON_SETS: Final = "daemonsets"
CONFIG_MAPS: Final = "configmaps"
KINDS: Final = (OWNERS, DAEMON_SETS, CONFIG_MAPS)
LATE: Final = 60.0
"""Seconds within which a watch must show what a list has shown."""


class Seen:
    """Objects by kind and name. Thread-safe.

    Do not change what it returns. An older state never replaces a newer one, because a watch
    reports our own writes late.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}

    def put(self, kind: str, found: Object) -> bool:
        """Take in ``found``, and return whether it is newer than what was known."""
        metadata = found["metadata"]
        with self._lock:
            old = self._objects[kind].get(metadata["name"])
            if old is not None and version(found) <= version(old):
                return False
            self._objects[kind][metadata["name"]] = found
            return True

    def drop(self, kind: str, gone: Object) -> bool:
        """Forget ``gone``, unless another object has its name now."""
        metadata = gone["metadata"]
        with self._lock:
            old = self._objects[kind].get(metadata["name"])
            if old is None or old["metadata"].get("uid") != metadata.get("uid"):
                return False
            del self._objects[kind][metadata["name"]]
            return True

    def take_all(self, kind: str, listed: Page, before: dict[str, Object]) -> list[Object]:
        """Take in a complete list, and return the objects that are new, changed or gone.

        ``before`` is what was known when it was asked for. What has not changed since is as listed,
        also if that is older: the API server's store can have been restored from a backup.
        """
        found = {one["metadata"]["name"]: one for one in listed.items}
        with self._lock:
            known = self._objects[kind]
            same = {name for name in before | found if known.get(name) is before.get(name)}
            gone = [known.pop(name) for name in sorted(same - found.keys())]
            news = [
                one
                for name, one in found.items()
                if name in same and _differs(one, known.get(name))
            ]
            known |= {one["metadata"]["name"]: one for one in news}
        more = [one for name, one in found.items() if name in known and self.put(kind, one)]
        return gone + news + more

    def get(self, kind: str, name: str) -> Object | None:
        """Return an object, if there is one."""
        with self._lock:
            return self._objects[kind].get(name)

    def known(self, kind: str) -> dict[str, Object]:
        """Return all objects of a kind by name."""
        with self._lock:
            return dict(self._objects[kind])

    def all(self, kind: str) -> list[Object]:
        """Return all objects of a kind."""
        with self._lock:
            return list(self._objects[kind].values())

    def owners(self) -> list[Object]:
        """Return all ``DevicePlugin`` objects."""
        return self.all(OWNERS)

    def of(self, kind: str, owner: str) -> list[Object]:
        """Return the objects that were created for ``owner``."""
        return [one for one in self.all(kind) if owner_of(kind, one) == owner]


def owner_of(kind: str, found: Object) -> str:
    """Return the name of the ``DevicePlugin`` that ``found`` is, or was created for."""
    metadata = found["metadata"]
    if kind == OWNERS:
        return str(metadata["name"])
    return str((metadata.get("labels") or {}).get(names.OWNER, ""))


def _differs(found: Object, known: Object | None) -> bool:
    return known is None or version(found) != version(known)


def version(found: Object) -> int:
    """Return the version of an object; a later one is greater."""
    given = found["metadata"].get("resourceVersion", "0")
    return int(given) if given.isdecimal() else 0


class Hearing:
    """By kind: what lists have shown and watches have not. Thread-safe.

    A watch that is open but silent looks like a quiet cluster.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[str, int, float]] = {}
        """The name, the version, and since when a list has shown it."""

    def listed(self, kind: str, found: Object) -> None:
        """Note that a list has shown an unknown state of an object."""
        shown = (found["metadata"]["name"], version(found), self._clock())
        with self._lock:
            self._waiting.setdefault(kind, shown)

    def heard(self, kind: str, found: Object) -> None:
        """Note that a watch has shown ``found``, and thus everything older of its kind."""
        with self._lock:
            waiting = self._waiting.get(kind)
            if waiting and version(found) >= waiting[1]:
                del self._waiting[kind]

    def deaf(self, seen: Seen) -> str:
        """Return a kind whose watch has missed an object that still exists, or an empty string."""
        with self._lock:
            for kind, (name, _, since) in list(self._waiting.items()):
                if seen.get(kind, name) is None:  # no watch shows what is gone
                    del self._waiting[kind]
                elif self._clock() - since > LATE:
                    return kind
        return ""
