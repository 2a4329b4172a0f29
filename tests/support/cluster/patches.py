"""Patches, as kubectl sends them: strategic for Kubernetes' own kinds, merge for others."""

from copy import deepcopy
from typing import Any

from cluster.kinds import Object

_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists whose entries are one if they have the same key; all other lists are taken as a whole."""
_ORDER = "$setElementOrder/"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"


def patched(found: Object, patch: Object, content_type: str) -> Object | None:
    """Return ``found`` as the patch says, or None for a patch of a type that is not known here."""
    result = deepcopy(found)
    if content_type not in {STRATEGIC, MERGE}:
        return None
    _merge(result, patch, strategic=content_type == STRATEGIC)
    return result


def _merge(place: Object, patch: Object, *, strategic: bool) -> None:
    kept = patch.get("$retainKeys", place)
    for name in set(place) - set(kept):
        del place[name]
    for name, value in patch.items():
        if not name.startswith("$"):
            _merge_field(place, name, value, strategic=strategic)
    _order(place, patch)


def _merge_field(place: Object, name: str, value: Any, *, strategic: bool) -> None:
    if value is None:
        place.pop(name, None)
    elif isinstance(value, dict):
        # Nothing is merged into what is no object, but the nulls of a patch are never kept.
        inner = place.get(name)
        place[name] = inner if isinstance(inner, dict) else {}
        _merge(place[name], value, strategic=strategic)
    elif strategic and _keyed(name, value):
        _merge_entries(place.setdefault(name, []), value, _KEYS[name])
    else:
        place[name] = deepcopy(value)


def _keyed(name: str, entries: Any) -> bool:
    """Tell whether entries are merged; the ports of a network policy are not a container's."""
    key = _KEYS.get(name, "")
    return isinstance(entries, list) and bool(key) and all(key in entry for entry in entries)


def _merge_entries(place: list[Object], entries: list[Object], key: str) -> None:
    for entry in entries:
        found = next((one for one in place if one.get(key) == entry[key]), None)
        if entry.get("$patch") == "delete":
            if found is not None:
                place.remove(found)
            continue
        if found is None:
            found = {}
            place.append(found)
        _merge(found, entry, strategic=True)


def _order(place: Object, patch: Object) -> None:
    for name, wanted in patch.items():
        if name.startswith(_ORDER):
            entries, key = place.get(name.removeprefix(_ORDER), []), _KEYS[name[len(_ORDER) :]]
            order = [one[key] for one in wanted]
            entries.sort(key=lambda one: order.index(one[key]) if one[key] in order else len(order))
