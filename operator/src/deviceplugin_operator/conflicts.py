"""Two objects that would bring two plugins of one kind to a node: the younger one waits."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from deviceplugin_operator.catalogue import CUSTOM
from deviceplugin_operator.fleet import Fleet
from deviceplugin_operator.seen import Object

_SHOWN: Final = 5


def conflict(owner: Object, others: Iterable[Object], fleet: Fleet) -> str:
    """Return which older object is for a node of this one too, or an empty string.

    The kubelet would read the lists of both plugins, and take either's for the whole.
    """
    for other in sorted(others, key=_age):
        if _age(other) >= _age(owner):
            return ""
        if _clash(owner["spec"], other["spec"]) and (both := _both(owner, other, fleet)):
            more = f" and {len(both) - _SHOWN} more" if len(both) > _SHOWN else ""
            nodes = ", ".join(both[:_SHOWN])
            return f"{other['metadata']['name']} is for these nodes too: {nodes}{more}"
    return ""


def _age(found: Object) -> tuple[str, str]:
    metadata = found["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["name"]


def _clash(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two plugins on a node would be in each other's way."""
    if one.get("plugin") != other.get("plugin"):
        return False
    if one.get("plugin") != CUSTOM:
        return True
    return bool(_offered(one) & _offered(other))


def _offered(spec: Mapping[str, Any]) -> set[str]:
    custom = spec.get(CUSTOM) or {}
    return set(custom.get("resources") or ()) or {str(spec.get("image"))}


def _both(one: Object, other: Object, fleet: Fleet) -> list[str]:
    """Return the nodes that two objects are for."""
    joined: dict[str, str] = {}
    for found in (one, other):
        for label, value in (found["spec"].get("nodeSelector") or {}).items():
            if joined.setdefault(label, value) != value:
                return []
    return [node.name for node in fleet.matching(joined)]
