"""The objects of the cluster, in memory, and what has happened to them."""

import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin_testing.simulator._control_plane.kinds import POD, Kind, Object
from deviceplugin_testing.simulator._control_plane.refusals import absent, exists, expired
from deviceplugin_testing.simulator._monitor import Monitor

ENDED: Final = frozenset({"Succeeded", "Failed"})
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE: Final = 58
_GRACE: Final = 30
Edit = Callable[[Object], Object | None]
Page = list[Object]


class Change(NamedTuple):
    """One thing that happened. ``before`` is None for a creation, ``after`` for a deletion."""

    version: int
    kind: Kind
    before: Object | None
    after: Object | None
    last: Object
    """The object as it is now, or as it was removed."""


class Store:
    """Objects by kind, namespace and name. Thread-safe; what is given and returned is a copy.

    ``seed`` is that of random names and UIDs; watches wait by ``waits``.
    """

    def __init__(
        self,
        kinds: Iterable[Kind],
        *,
        clock: Callable[[], float] = time.time,
        seed: int = 0,
        waits: Clock = MONOTONIC,
    ) -> None:
        self.changed = Monitor(waits)
        """Holds the lock, and is poked at every change."""
        self.kinds = tuple(kinds)
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._objects: dict[Kind, dict[tuple[str, str], str]] = {kind: {} for kind in self.kinds}
        self._history: list[Change] = []
        self._forgotten = 0
        self._pages: dict[int, list[str]] = {}

    @property
    def version(self) -> int:
        """The resource version of the last change."""
        return self._forgotten + len(self._history)

    def now(self) -> str:
        """Return the time as objects have it."""
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def seconds(self) -> float:
        """Return the time, in seconds since 1970."""
        return self._clock()

    def since(self, version: int) -> Sequence[Change]:
        """Return the changes after ``version``; raise ``RefusedError``."""
        with self.changed:
            if version < self._forgotten:
                message = f"too old resource version: {version} ({self._forgotten})"
                raise expired(message)
            return self._history[version - self._forgotten :]

    def forget(self) -> None:
        """Forget what has happened, as the server does after some minutes; watches must resume."""
        with self.changed:
            self._forgotten = self.version
            self._history.clear()
            self._pages.clear()

    def list(self, kind: Kind, namespace: str = "") -> Page:
        """Return all objects of a kind in the order of their names, in one namespace or all."""
        with self.changed:
            found = sorted(self._objects[kind].items())
            return [json.loads(one) for (place, _), one in found if namespace in {"", place}]

    def keep_page(self, version: int, objects: Iterable[Object]) -> None:
        """Keep a list as it is at ``version``, for its next pages."""
        with self.changed:
            self._pages.setdefault(version, [json.dumps(one) for one in objects])

    def page(self, version: int) -> Page | None:
        """Return the list that was kept at ``version``, or None if it is forgotten."""
        with self.changed:
            kept = self._pages.get(version)
            return None if kept is None else [json.loads(one) for one in kept]

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Return an object; raise ``RefusedError`` if there is none."""
        with self.changed:
            found = self._objects[kind].get((namespace, name))
            if found is None:
                raise absent(kind, name)
            return _copy(found)

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        with self.changed:
            found = self._objects[kind].get((namespace, name))
            return None if found is None else _copy(found)

    def complete_name(self, metadata: Object) -> None:
        """Give what only has ``generateName`` a name."""
        base = metadata.get("generateName", "")
        if not metadata.get("name") and base:
            end = "".join(self._random.choices(_LETTERS, k=5))
            metadata["name"] = f"{base[:_LONGEST_BASE]}{end}"

    def new_uid(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def create(self, kind: Kind, made: Object, *, dry_run: bool = False) -> Object:
        """Create an object and return it; raise ``RefusedError`` if there is one of its name.

        With ``dry_run`` it is returned as it would have been created.
        """
        with self.changed:
            made = _copy(json.dumps(made))
            metadata = made.setdefault("metadata", {})
            self.complete_name(metadata)
            if (metadata.get("namespace", ""), metadata["name"]) in self._objects[kind]:
                raise exists(kind, metadata["name"])
            metadata |= {"uid": self.new_uid(), "creationTimestamp": self.now()}
            if kind.counts_generations:
                metadata["generation"] = 1
            return made if dry_run else self._put(kind, None, made)

    def change(self, kind: Kind, namespace: str, name: str, edit: Edit) -> Object:
        """Let ``edit`` change the object, or return it anew; return it. No change, no version.

        What is being deleted vanishes with its last finalizer.
        """
        with self.changed:
            old, draft = self.get(kind, namespace, name), self.get(kind, namespace, name)
            new = edit(draft) or draft
            if new == old:
                return old
            if kind.counts_generations and new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            is_last = "deletionTimestamp" in new["metadata"] and kind != POD
            if is_last and not new["metadata"].get("finalizers"):
                return self._remove(kind, new)
            return self._put(kind, old, new)

    def delete(self, kind: Kind, namespace: str, name: str, grace: int | None = None) -> Object:
        """Remove the object, or mark it for who has to clean up first; return it as it is then."""
        with self.changed:
            found = self.get(kind, namespace, name)
            if kind == POD and _is_on_node(found) and grace != 0:
                usual = found["spec"].get("terminationGracePeriodSeconds", _GRACE)
                return self._mark(kind, found, usual if grace is None else grace)
            if found["metadata"].get("finalizers"):
                return self._mark(kind, found, 0)
            return self._remove(kind, found)

    def _mark(self, kind: Kind, found: Object, grace: int) -> Object:
        metadata = found["metadata"]
        if "deletionTimestamp" in metadata:
            return found
        stamp = {"deletionTimestamp": self.now(), "deletionGracePeriodSeconds": grace}

        def mark(draft: Object) -> None:
            draft["metadata"] |= stamp
            if kind.counts_generations:
                draft["metadata"]["generation"] += 1

        return self.change(kind, metadata.get("namespace", ""), metadata["name"], mark)

    def _remove(self, kind: Kind, gone: Object) -> Object:
        metadata = gone["metadata"]
        place = (metadata.get("namespace", ""), metadata["name"])
        old = _copy(self._objects[kind].pop(place))
        metadata["resourceVersion"] = str(self.version + 1)
        self._happened(Change(self.version + 1, kind, old, None, gone))
        return gone

    def _put(self, kind: Kind, old: Object | None, made: Object) -> Object:
        metadata = made["metadata"]
        metadata["resourceVersion"] = str(self.version + 1)
        kept = json.dumps(made)
        self._objects[kind][metadata.get("namespace", ""), metadata["name"]] = kept
        self._happened(Change(self.version + 1, kind, old, _copy(kept), _copy(kept)))
        return _copy(kept)

    def _happened(self, change: Change) -> None:
        self._history.append(change)
        self.changed.poke()


def _copy(kept: str) -> Object:
    found: Object = json.loads(kept)
    return found


def _is_on_node(pod: Object) -> bool:
    """Return whether a kubelet has to stop the pod first."""
    is_over = pod.get("status", {}).get("phase") in ENDED
    return bool(pod["spec"].get("nodeName")) and not is_over
