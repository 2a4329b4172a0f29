"""The nodes of the cluster, as far as it matters here: labels, readiness, devices."""

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, NotFoundError

NODES: Final = "/api/v1/nodes"
PAGE: Final = 100
"""Nodes that are in memory as a whole at once; one has some 10 kB."""
_FEW: Final = 20
"""Nodes that are asked for one by one."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of a node."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    total: Mapping[str, int]
    """Devices by resource: the capacity."""
    healthy: Mapping[str, int]
    """Devices by resource: what is allocatable."""

    def offers(self, patterns: Iterable[str]) -> dict[str, int]:
        """Return the allocatable devices of resources that are of ``patterns``."""
        return {name: count for name, count in self.healthy.items() if _is_of(name, patterns)}


class Fleet:
    """The nodes as they were at the last look. Thread-safe."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeFacts] = {}
        self._looked = float("-inf")

    def refresh(self, older_than: float = 0.0) -> None:
        """Look at all nodes, some at a time, unless that was done within ``older_than`` seconds.

        Raises:
            ApiServerError: They cannot be listed now; what was known stays.
        """
        if time.monotonic() - self._looked < older_than:
            return
        found: dict[str, NodeFacts] = {}
        for page in self._api.pages(NODES, size=PAGE):
            found |= {one.name: one for one in map(_facts, page.items)}
        with self._lock:
            self._nodes = found
            self._looked = time.monotonic()

    def look_at(self, names: Collection[str]) -> None:
        """Look at some nodes; at all of them if that is less to ask."""
        if len(names) > _FEW:
            self.refresh(older_than=1.0)
            return
        for name in names:
            try:
                facts = _facts(self._api.get(f"{NODES}/{name}"))
            except NotFoundError:
                with self._lock:
                    self._nodes.pop(name, None)
                continue
            with self._lock:
                self._nodes[name] = facts

    def matching(
        self,
        selector: Mapping[str, str],
        label: str = "",
        among: Iterable[str] = (),
        *,
        inside: bool = False,
    ) -> list[NodeFacts]:
        """Return the nodes with the labels of ``selector``, by name.

        With a ``label``, only those whose value of it is ``among`` some, or with ``inside`` false
        those whose value is not.
        """
        with self._lock:
            nodes = sorted(self._nodes.values(), key=lambda one: one.name)
        values = {*among}
        return [
            one
            for one in nodes
            if selector.items() <= one.labels.items()
            and (not label or (one.labels.get(label) in values) == inside)
        ]


def _facts(node: Mapping[str, Any]) -> NodeFacts:
    metadata, status = node["metadata"], node.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    return NodeFacts(
        metadata["name"],
        metadata.get("labels") or {},
        conditions.get("Ready") == "True",
        dict(_devices(status.get("capacity") or {})),
        dict(_devices(status.get("allocatable") or {})),
    )


def _devices(amounts: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the resources that are devices; others are in units, such as ``16Gi`` and ``500m``."""
    for name, amount in amounts.items():
        domain, slash, _ = name.partition("/")
        if slash and domain != "kubernetes.io" and str(amount).isdecimal():
            yield name, int(amount)


def _is_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def of_resources(nodes: Iterable[NodeFacts], patterns: Iterable[str]) -> dict[str, list[NodeFacts]]:
    """Return the nodes that have any device of each resource that is of ``patterns``."""
    wanted, found = tuple(patterns), dict[str, list[NodeFacts]]()
    for node in nodes:
        for name, count in node.total.items():
            if count and _is_of(name, wanted):
                found.setdefault(name, []).append(node)
    return dict(sorted(found.items()))
