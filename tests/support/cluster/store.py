"""The objects of the stand-in for a cluster, in memory, and what has happened to them."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Condition
from typing import NamedTuple
from uuid import uuid4

from cluster.kinds import EVENT, KINDS, NAMESPACE, POD, Kind, Object


class RefusedError(Exception):
    """The API server says no. ``causes`` are fields and what is wrong with each."""

    def __init__(
        self, code: int, reason: str, message: str, causes: Sequence[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.causes = code, reason, causes

    def status(self) -> Object:
        """Return what the API server answers."""
        causes = [{"field": field, "message": message} for field, message in self.causes]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": self.reason,
            "message": str(self),
            "code": self.code,
            **({"details": {"causes": causes}} if causes else {}),
        }


class Change(NamedTuple):
    """One thing that happened; its place in the history is its resource version."""

    event: str
    kind: Kind
    object: Object


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """What is read and given is a copy. ``changed`` is notified whenever anything changes."""

    def __init__(self) -> None:
        self.changed = Condition()
        self._objects: dict[Kind, dict[tuple[str, str], str]] = {kind: {} for kind in KINDS}
        """As JSON, which is the quickest to copy."""
        self._history: list[Change] = []

    @property
    def version(self) -> int:
        return len(self._history)

    def since(self, version: int) -> list[Change]:
        with self.changed:
            return self._history[version:]

    def wait(self, version: int, timeout: float) -> None:
        """Wait until anything is newer than ``version``."""
        with self.changed:
            self.changed.wait_for(lambda: self.version > version, timeout)

    def list(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return all of a kind, in order of their names, in one namespace or all."""
        with self.changed:
            found = sorted(self._objects[kind].items())
            return [json.loads(one) for (place, _), one in found if namespace in {"", place}]

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        with self.changed:
            found = self._objects[kind].get((namespace, name))
            if found is None:
                raise RefusedError(404, "NotFound", f'{kind.resource} "{name}" not found')
            return _copy(found)

    def exists(self, kind: Kind, namespace: str, name: str) -> bool:
        with self.changed:
            return (namespace, name) in self._objects[kind]

    def create(self, kind: Kind, made: Object, *, dry: bool = False) -> Object:
        """Create an object, or with ``dry`` only return what would have been created."""
        metadata = made["metadata"]
        name = metadata.setdefault("name", f"{metadata.get('generateName', '')}{uuid4().hex[:5]}")
        place = (metadata.get("namespace", ""), name)
        with self.changed:
            if place in self._objects[kind]:
                message = f'{kind.resource} "{name}" already exists'
                raise RefusedError(409, "AlreadyExists", message)
            metadata |= {"uid": str(uuid4()), "creationTimestamp": now(), "generation": 1}
            if dry:
                return made
            return self._put("ADDED", kind, made)

    def change(
        self, kind: Kind, namespace: str, name: str, edit: Callable[[Object], Object | None]
    ) -> Object:
        """Let ``edit`` change the object, or return it anew. What is the same stays as it is."""
        with self.changed:
            old, draft = self.get(kind, namespace, name), self.get(kind, namespace, name)
            new = edit(draft) or draft
            if new == old:
                return old
            if new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            return self._put("MODIFIED", kind, new)

    def delete(self, kind: Kind, namespace: str, name: str, grace: int | None = None) -> Object:
        """Remove the object, or mark it for who has to clean up first; return it as it is then."""
        with self.changed:
            found = self.get(kind, namespace, name)
            if kind == NAMESPACE:
                return self.change(kind, namespace, name, _terminate)
            if kind == POD and found["spec"].get("nodeName") and grace != 0:
                usual = found["spec"]["terminationGracePeriodSeconds"]
                return self.change(kind, namespace, name, _mark(usual if grace is None else grace))
            return self.remove(kind, namespace, name)

    def remove(self, kind: Kind, namespace: str, name: str) -> Object:
        with self.changed:
            gone = self.get(kind, namespace, name)
            self._put("DELETED", kind, gone)
            del self._objects[kind][namespace, name]
            return gone

    def _put(self, event: str, kind: Kind, made: Object) -> Object:
        metadata = made["metadata"]
        metadata["resourceVersion"] = str(len(self._history) + 1)
        kept = json.dumps(made)
        self._objects[kind][metadata.get("namespace", ""), metadata["name"]] = kept
        self._history.append(Change(event, kind, _copy(kept)))
        self.changed.notify_all()
        return _copy(kept)


def _copy(kept: str) -> Object:
    found: Object = json.loads(kept)
    return found


def _mark(grace: int) -> Callable[[Object], None]:
    def mark(found: Object) -> None:
        metadata = found["metadata"]
        metadata.setdefault("deletionTimestamp", now())
        metadata["deletionGracePeriodSeconds"] = grace

    return mark


def _terminate(found: Object) -> None:
    found["metadata"].setdefault("deletionTimestamp", now())
    found["status"] = {"phase": "Terminating"}


def tell(store: Store, about: Object, reason: str, message: str) -> None:
    """Create an Event about an object, of which there is one for each reason."""
    metadata = about["metadata"]
    name = f"{metadata['name']}.{reason.lower()}"
    namespace = metadata.get("namespace", "default")
    if not store.exists(EVENT, namespace, name):
        made = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                **{key: about[key] for key in ("apiVersion", "kind")},
                **{key: metadata[key] for key in ("name", "uid")},
                "namespace": namespace,
            },
            "reason": reason,
            "message": message,
            "type": "Warning",
            "count": 1,
            "firstTimestamp": now(),
            "lastTimestamp": now(),
        }
        store.create(EVENT, made)
