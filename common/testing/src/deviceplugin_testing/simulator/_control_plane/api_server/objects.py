"""What the API server does with objects, apart from HTTP: create, replace, patch, delete, list."""

import base64
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, ClassVar, Final, cast

from deviceplugin_testing.simulator._control_plane.api_server.request import Request
from deviceplugin_testing.simulator._control_plane.kinds import NAMESPACE, POD, Kind, Object
from deviceplugin_testing.simulator._control_plane.refusals import (
    RefusedError,
    absent,
    bad_request,
    conflict,
    expired,
    precondition,
)
from deviceplugin_testing.simulator._control_plane.rules.by_kind import admit, admit_change
from deviceplugin_testing.simulator._control_plane.rules.fields import known_fields
from deviceplugin_testing.simulator._control_plane.rules.gates import Gates
from deviceplugin_testing.simulator._control_plane.store import Store

MERGE: Final = "application/merge-patch+json"


def merged(found: Object, patch: Object) -> Object:
    """Return ``found`` as the patch says: ``None`` removes a key, objects are merged."""
    result = deepcopy(found)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            inner: Any = result.get(name)
            result[name] = merged(inner if isinstance(inner, dict) else {}, value)
        else:
            result[name] = deepcopy(value)
    return result


EDIT: Final = "application/json-patch+json"


def edited(found: Object, operations: Any) -> Object:
    """Return ``found`` as a JSON patch says; raise ``RefusedError`` if it cannot be applied."""
    result: Any = deepcopy(found)
    try:
        for one in operations:
            *parents, last = one["path"].split("/")[1:]
            place = result
            for name in parents:
                place = place[int(name) if isinstance(place, list) else name]
            _operate(one, place, last)
    except (LookupError, TypeError, ValueError) as error:
        message = "the server rejected our request due to an error in our request"
        raise RefusedError(422, "Invalid", message, {}) from error
    return cast("Object", result)


def _operate(operation: Object, place: Any, name: str) -> None:
    is_list, kind = isinstance(place, list), operation["op"]
    if kind == "add" and is_list:
        place.insert(len(place) if name == "-" else int(name), operation["value"])
    elif kind == "add":
        place[name] = operation["value"]
    else:
        key = int(name) if is_list else name
        place[key]  # it must be there
        if kind == "replace":
            place[key] = operation["value"]
        else:
            del place[key]


_STALE: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
_OLD_PAGE: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter."
)
_OWN: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
               "generation", "generateName")  # fmt: skip
"""Metadata that no request changes."""


class Objects:
    """The objects of ``store``, as the API server lets them be read and written.

    ``gates`` say which features are on.
    """

    patches: ClassVar[Mapping[str, Callable[[Object, Any], Object]]] = {
        MERGE: merged,
        EDIT: edited,
    }
    """How a patch is applied, by its media type."""

    def __init__(self, store: Store, gates: Gates = Gates()) -> None:  # noqa: B008 - immutable
        self.store = store
        self.gates = gates

    def create(self, kind: Kind, namespace: str, made: Object, *, dry_run: bool = False) -> Object:
        """Create an object, and return it; raise ``RefusedError``.

        With ``dry_run`` nothing is created.
        """
        with self.store.changed:
            made = self.read(kind, made)
            metadata = made["metadata"]
            if metadata.get("resourceVersion"):
                raise RefusedError(
                    500, "", "resourceVersion should not be set on objects to be created"
                )
            _place(kind, namespace, metadata)
            if kind.namespaced and self.store.find(NAMESPACE, "", namespace) is None:
                raise absent(NAMESPACE, namespace)
            for name in ("uid", "generation", "creationTimestamp", "deletionTimestamp"):
                metadata.pop(name, None)
            self.store.complete_name(metadata)
            self.gates.drop_disabled(kind, made, None)
            self.admit(kind, made, dry_run=dry_run)
            return self.store.create(kind, made, dry_run=dry_run)

    def read(self, kind: Kind, made: Object) -> Object:
        """Return what is kept of an object that somebody sent; raise ``RefusedError``."""
        return known_fields(kind, made)

    def admit(self, kind: Kind, made: Object, *, dry_run: bool) -> None:  # noqa: ARG002
        """Add defaults to a new object; raise ``RefusedError`` if it is not to be created."""
        admit(self.store, kind, made, includes=self.gates.lists)

    def admit_change(self, kind: Kind, old: Object, new: Object, part: str) -> None:
        """Add defaults to a changed object; raise ``RefusedError`` if it is not to be changed."""
        admit_change(self.store, kind, old, new, part, includes=self.gates.lists)

    def replace(
        self, kind: Kind, namespace: str, name: str, made: Object, part: str = ""
    ) -> Object:
        """Put an object, or a part of it, in place of what is there; raise ``RefusedError``."""
        new = self.read(kind, made)
        _place(kind, namespace, new["metadata"])
        given = new["metadata"].get("name", name)
        if given != name:
            raise bad_request(
                f"the name of the object ({given}) does not match the name on the URL ({name})"
            )
        return self.store.change(kind, namespace, name, self._edit(kind, lambda _: new, part))

    def patch(self, request: Request, patch: Any, media: str | None) -> Object:
        """Change an object by a patch; raise ``RefusedError``."""
        kind, apply = request.kind, self.patches.get(media or "")
        if apply is None:
            raise RefusedError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})

        def change(old: Object) -> Object:
            return self.read(kind, apply(old, patch))

        edit = self._edit(kind, change, request.part)
        return self.store.change(kind, request.namespace, request.name, edit)

    def _edit(
        self, kind: Kind, change: Callable[[Object], Object], part: str
    ) -> Callable[[Object], Object]:
        def edit(old: Object) -> Object:
            new = change(old)
            _check_version(kind, old["metadata"], new["metadata"])
            found = _merged_parts(kind, old, new, part)
            self.gates.drop_disabled(kind, found, old)
            self.admit_change(kind, old, found, part)
            return found

        return edit

    def delete(
        self, kind: Kind, namespace: str, name: str, options: Mapping[str, Any] | None = None
    ) -> Object:
        """Delete an object, or mark it; return it as it is then; raise ``RefusedError``."""
        options = options or {}
        with self.store.changed:
            metadata = self.store.get(kind, namespace, name)["metadata"]
            wanted = options.get("preconditions") or {}
            uid, version = wanted.get("uid"), wanted.get("resourceVersion")
            if uid not in {None, metadata["uid"]}:
                problem = f"the UID in the precondition ({uid}) does not match the UID in record "
                rest = "The object might have been deleted and then recreated"
                raise precondition(kind, name, f"{problem}({metadata['uid']}). {rest}")
            if version not in {None, metadata["resourceVersion"]}:
                problem = f"the ResourceVersion in the precondition ({version}) does not match the "
                rest = "The object might have been modified"
                record = f"ResourceVersion in record ({metadata['resourceVersion']})"
                raise precondition(kind, name, f"{problem}{record}. {rest}")
            return self.store.delete(kind, namespace, name, options.get("gracePeriodSeconds"))

    def evict(self, request: Request, eviction: Object) -> Object:
        """Delete a pod as an Eviction asks; raise ``RefusedError``. There are no budgets."""
        options, name = eviction.get("deleteOptions") or {}, request.name
        given = eviction.get("metadata", {}).get("name", name)
        if given != name:
            raise bad_request("name in URL does not match name in Eviction object")
        if not options.get("dryRun"):
            self.delete(POD, request.namespace, name, options)
        usual: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
        return usual | {"status": "Success", "code": 201}

    def list(self, request: Request) -> Object:
        """Return the list, or the page of it, that ``request`` asks for; raise ``RefusedError``."""
        store, kind, wants = self.store, request.kind, request.filter()
        with store.changed:
            version, start = _position(request.option("continue"), store.version)
            kept = store.page(version) if start else store.list(kind, request.namespace)
            if kept is None:
                raise expired(_OLD_PAGE)
            found = [*filter(wants, kept)]
            limit = request.number("limit")
            metadata: Object = {"resourceVersion": str(version)}
            rest = len(found) - start - limit
            if limit and rest > 0:
                store.keep_page(version, kept)
                metadata["continue"] = _token(version, start + limit)
                if not request.option("fieldSelector") and not request.option("labelSelector"):
                    metadata["remainingItemCount"] = rest
            items = found[start : start + limit] if limit else found[start:]
        return {
            "kind": f"{kind.name}List",
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": [_without_kind(one) for one in items],
        }


def _place(kind: Kind, namespace: str, metadata: Object) -> None:
    if not kind.namespaced:
        metadata.pop("namespace", None)
    elif metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _check_version(kind: Kind, old: Object, new: Object) -> None:
    version, uid = new.get("resourceVersion"), new.get("uid")
    if version and not version.isdecimal():
        problem = f'strconv.ParseUint: parsing "{version}": invalid syntax'
        raise RefusedError(500, "", problem)
    if uid and uid != old["uid"]:
        place = f"Key: /registry/{kind.plural}/{old['name']}, ResourceVersion: 0"
        problem = f"Precondition failed: UID in precondition: {uid}, UID in object meta"
        text = f"StorageError: invalid object, Code: 4, {place}, AdditionalErrorMsg: {problem}: "
        text += old["uid"]
        raise conflict(kind, old["name"], text)
    if version and version != old["resourceVersion"]:
        raise conflict(kind, old["name"], _STALE)


def _merged_parts(kind: Kind, old: Object, new: Object, part: str) -> Object:
    """Return the object with what a request to this address may write, and else as it was."""
    if part == "status":
        return {**old, "status": new.get("status", {})}
    metadata = {name: value for name, value in new["metadata"].items() if name not in _OWN}
    metadata |= {name: old["metadata"][name] for name in _OWN if name in old["metadata"]}
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    found = {**new, "metadata": metadata}
    if kind.has_status:
        found.pop("status", None)
        found |= {"status": old["status"]} if "status" in old else {}
    return found


def _position(token: str, version: int) -> tuple[int, int]:
    if not token:
        return version, 0
    try:
        found = json.loads(base64.urlsafe_b64decode(token))
        return int(found["rv"]), int(found["start"])
    except (ValueError, LookupError, TypeError) as error:
        problem = f"invalid continue token: continue key is not valid: {error}"
        raise bad_request(problem) from error


def _token(version: int, start: int) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(text.encode()).decode()


def _without_kind(found: Object) -> Object:
    return {name: value for name, value in found.items() if name not in {"kind", "apiVersion"}}
