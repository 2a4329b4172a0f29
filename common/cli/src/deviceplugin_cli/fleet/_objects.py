"""What the operator says of its DevicePlugin objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

PATH: Final = "/apis/deviceplugin.dev/v1alpha1/deviceplugins"


@dataclass(frozen=True, slots=True)
class PluginObject:
    """What is kept of an object.

    Attributes:
        name: Its name.
        plugin: The plugin that it is for.
        ready: Whether everything is as it asks for.
        reason: Why not, in a word; or why it is.
        message: The same in full.
        resources: Each resource of its nodes, as in the status.
        problems: The nodes with the most unhealthy devices, as in the status.
    """

    name: str
    plugin: str
    ready: bool
    reason: str
    message: str
    resources: tuple[Mapping[str, Any], ...]
    problems: tuple[Mapping[str, Any], ...]


def plugin_object(found: Mapping[str, Any]) -> PluginObject:
    """Return what matters of an object."""
    metadata, status = found["metadata"], found.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    is_current = ready.get("observedGeneration") == metadata.get("generation")
    holds = ready.get("status") == "True" and is_current
    reason, message = str(ready.get("reason", "")), str(ready.get("message", ""))
    if not is_current:
        reason, message = "NotSeen", "the operator has not seen the object as it is now: is it up?"
    return PluginObject(
        metadata["name"],
        str(found.get("spec", {}).get("plugin", "")),
        holds,
        reason,
        message,
        tuple(status.get("resources") or ()),
        tuple(status.get("problems") or ()),
    )
