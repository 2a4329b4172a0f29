"""What a node says of its devices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deviceplugin.apiserver import devices_in


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is kept of a node.

    Attributes:
        name: Its name.
        total: The devices of each resource.
        healthy: How many of these are allocatable.
        fault: Why pods on it may not run; empty if they do.
        cordoned: Whether no new pods are scheduled to it.
    """

    name: str
    total: Mapping[str, int]
    healthy: Mapping[str, int]
    fault: str
    cordoned: bool


def facts(node: Mapping[str, Any], is_wanted: Callable[[str], bool]) -> NodeFacts:
    """Return what matters of ``node``: of its resources, those that are wanted."""
    status = node.get("status") or {}
    total, healthy = (
        {
            name: count
            for name, count in devices_in(status.get(key) or {}).items()
            if is_wanted(name)
        }
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
