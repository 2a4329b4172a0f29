"""What is kept of nodes, of pods, and of the objects of the operator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from deviceplugin.apiserver import devices_in
from deviceplugin.tools._requests import requested

PATH: Final = "/apis/deviceplugin.dev/v1alpha1/deviceplugins"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    name: str
    total: Mapping[str, int]
    healthy: Mapping[str, int]
    """How many of these are allocatable."""
    fault: str
    """Why pods on it may not run; empty if they do."""
    cordoned: bool
    """Whether no new pods are scheduled to it."""


def node_facts(node: Mapping[str, Any], is_wanted: Callable[[str], bool]) -> NodeFacts:
    """Return what matters of ``node``: of its resources, those that are wanted."""
    status = node.get("status") or {}
    total, healthy = (
        {name: n for name, n in devices_in(status.get(key) or {}).items() if is_wanted(name)}
        for key in ("capacity", "allocatable")
    )
    cordoned = bool((node.get("spec") or {}).get("unschedulable"))
    return NodeFacts(node["metadata"]["name"], total, healthy, _fault(status), cordoned)


def _fault(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready":
            if condition["status"] == "True":
                return ""
            return f"node is not ready: {condition.get('reason') or 'no reason'}"
    return "node is not ready: its kubelet has not reported yet"


class Held(NamedTuple):
    """What a pod holds of a device plugin, on which node."""

    node: str
    devices: Mapping[str, int]


def held(pod: Mapping[str, Any]) -> Held:
    """Return the devices of a pod, and its node; an empty name if it has none yet.

    Those that the scheduler took from DRA for its limits are held by a claim.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    through = status.get("extendedResourceClaimStatus") or {}
    names = {one.get("resourceName") for one in through.get("requestMappings") or ()}
    own = {name: n for name, n in requested(spec).items() if name not in names}
    return Held(spec.get("nodeName") or "", own)


@dataclass(frozen=True, slots=True)
class PluginObject:
    name: str
    plugin: str
    ready: bool
    """Whether everything is as it asks for."""
    reason: str
    """Why not, in a word; or why it is."""
    message: str
    resources: tuple[Mapping[str, Any], ...]
    """Each resource of its nodes, as in the status."""
    problems: tuple[Mapping[str, Any], ...]
    """The nodes with the most unhealthy devices, as in the status."""


def plugin_object(found: Mapping[str, Any]) -> PluginObject:
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
