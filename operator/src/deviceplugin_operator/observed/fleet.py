"""The nodes of the cluster: labels, readiness and devices."""

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, NotFoundError, devices_in

NODES: Final = "/api/v1/nodes"
PAGE: Final = 100
"""Nodes in one page of a list; a Node object has some 10 kB."""
_FEW: Final = 20
"""Up to this number, nodes are read one by one."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known about a node."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    total: Mapping[str, int]
    """Devices by resource: the capacity."""
    healthy: Mapping[str, int]
    """Devices by resource: what is allocatable."""
    reported: str = field(default="", compare=False)
    """When the kubelet last reported all of this, by the node's clock."""
    taints: tuple[Mapping[str, str], ...] = ()

    def offers(self, patterns: Iterable[str]) -> dict[str, int]:
        """Return the allocatable devices of the resources that match ``patterns``."""
        return {name: count for name, count in self.healthy.items() if _is_of(name, patterns)}


class Fleet:
    """The nodes as they were at the last look. Thread-safe."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeFacts] = {}
        self._looked = float("-inf")
        self._changes = 0

    @property
    def changes(self) -> int:
        """How often the nodes have changed; a new heartbeat is no change."""
        with self._lock:
            return self._changes

    def refresh(self, older_than: float = 0.0) -> None:
        """List all nodes in pages, unless that was begun within ``older_than`` seconds.

        Raises:
            ApiServerError: The request failed; what was known stays.
        """
        began = time.monotonic()
        if began - self._looked < older_than:
            return
        found: dict[str, NodeFacts] = {}
        for page in self._api.pages(NODES, size=PAGE):
            found |= {one.name: one for one in map(_facts, page.items)}
        with self._lock:
            if began < self._looked:
                return  # another thread began later, and was quicker
            self._changes += found != self._nodes
            self._nodes = found
            self._looked = began

    def look_at(self, names: Collection[str]) -> None:
        """Read some nodes again, or list all of them if that takes fewer requests."""
        if len(names) > _FEW:
            self.refresh(older_than=1.0)
            return
        for name in names:
            try:
                facts = _facts(self._api.get(f"{NODES}/{name}"))
            except NotFoundError:
                with self._lock:
                    self._changes += self._nodes.pop(name, None) is not None
                continue
            with self._lock:
                self._changes += facts != self._nodes.get(name)
                self._nodes[name] = facts

    def nodes(self) -> list[NodeFacts]:
        """Return all nodes, by name."""
        with self._lock:
            return sorted(self._nodes.values(), key=lambda one: one.name)

    def matching(self, selector: Mapping[str, str]) -> list[NodeFacts]:
        """Return the nodes with the labels of ``selector``, by name."""
        return [one for one in self.nodes() if selector.items() <= one.labels.items()]


def _facts(node: Mapping[str, Any]) -> NodeFacts:
    metadata, status = node["metadata"], node.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    return NodeFacts(
        metadata["name"],
        metadata.get("labels") or {},
        ready.get("status") == "True",
        devices_in(status.get("capacity") or {}),
        devices_in(status.get("allocatable") or {}),
        ready.get("lastHeartbeatTime") or "",
        tuple((node.get("spec") or {}).get("taints") or ()),
    )


def _is_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def of_resources(nodes: Iterable[NodeFacts], patterns: Iterable[str]) -> dict[str, list[NodeFacts]]:
    """Return, for each resource that matches ``patterns``, the nodes that have devices of it."""
    wanted, found = tuple(patterns), dict[str, list[NodeFacts]]()
    for node in nodes:
        for name, count in node.total.items():
            if count and _is_of(name, wanted):
                found.setdefault(name, []).append(node)
    return dict(sorted(found.items()))
