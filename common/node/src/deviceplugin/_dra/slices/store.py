"""The slices in the API server: what is needed of its client, and what is known of them."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from typing_extensions import override

from deviceplugin._platform.api_errors import ApiServerError

Object = dict[str, Any]
Slices = Mapping[str, Object]
"""Slices by name."""


class Watching(Protocol):
    """A watch of slices."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


class SliceStore(Protocol):
    """The slices of one driver on one node, as `deviceplugin.apiserver.ResourceSlices` has them.

    Thread-safe. All methods but ``watch`` raise ``ApiServerError``.
    """

    def owner(self) -> Mapping[str, Any] | None: ...

    def list(self) -> tuple[Slices, str]: ...

    def create(self, one: Object) -> Object: ...

    def try_out(self, one: Object) -> Object: ...

    def replace(self, one: Object) -> Object: ...

    def delete(self, name: str, uid: str) -> None: ...

    def watch(
        self, changed: Callable[[Slices, str], None], failed: Callable[[ApiServerError], None]
    ) -> Watching: ...


class KnownSlices:
    """The slices of the driver on the node, by name. Thread-safe.

    Until a watch tells of a write, its answer counts; otherwise the same would be written again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, Object] | None = None
        self._version = 0
        self._written: dict[str, Object] = {}
        """Answers to our writes that are newer than the list."""
        self._deleted: set[str] = set()
        """UIDs of slices that we have deleted and that the list still has."""
        self._generations: dict[str, int] = {}
        """The version of the content of each slice, by its UID: that which we wrote, or saw first.
        The API server counts changes of the content only, and labels are nobody's business."""

    def listed(self, slices: Mapping[str, Object], version: str) -> None:
        """Record all slices as they were at ``version``, unless a later version is known."""
        number = _number(version)
        with self._lock:
            if number < self._version:
                return
            self._last, self._version = dict(slices), number
            self._written = {
                name: one for name, one in self._written.items() if _version(one) > number
            }
            uids = {_uid(one) for one in slices.values()}
            self._deleted &= uids
            kept = uids | {_uid(one) for one in self._written.values()}
            self._generations = {u: g for u, g in self._generations.items() if u in kept}
            for one in slices.values():
                self._generations.setdefault(_uid(one), _generation(one))

    def wrote(self, one: Object) -> None:
        """Record the API server's answer to a write."""
        with self._lock:
            self._generations[_uid(one)] = _generation(one)
            if _version(one) > self._version:
                self._written[one["metadata"]["name"]] = one

    def deleted(self, uid: str) -> None:
        """Record that the slice with ``uid`` is gone."""
        with self._lock:
            self._deleted.add(uid)

    def current(self) -> list[Object] | None:
        """Return all slices, or None before the first list."""
        with self._lock:
            if self._last is None:
                return None
            found = {**self._last, **self._written}
            return [one for one in found.values() if _uid(one) not in self._deleted]

    def is_intact(self, one: Object) -> bool:
        """Return whether the content is what we wrote or saw first, or that is deleted by now."""
        with self._lock:
            return self._generations.get(_uid(one), _generation(one)) == _generation(one)


def _uid(one: Object) -> str:
    return str(one["metadata"]["uid"])


def _version(one: Object) -> int:
    return _number(str(one["metadata"]["resourceVersion"]))


def _generation(one: Object) -> int:
    return int(one["metadata"].get("generation", 0))


def _number(version: str) -> int:
    """Return a version as a number: since Kubernetes 1.35 they are promised to be comparable."""
    return int(version) if version.isdecimal() else 0


class WatchThread(threading.Thread):
    """Runs a watch, and calls ``ended`` when that ends."""

    def __init__(self, watch: Watching, ended: Callable[[], None]) -> None:
        super().__init__(name="slices-watch", daemon=True)
        self._watch = watch
        self._ended = ended
        self.error: Exception | None = None

    @override
    def run(self) -> None:
        try:
            self._watch.run()
        except Exception as error:  # the top of a thread
            self.error = error
        finally:
            self._ended()

    def end(self) -> None:
        self._watch.stop()
        self.join()
