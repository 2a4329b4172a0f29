"""The nodes of the cluster, and what they offer in either protocol."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, ForbiddenError, NotFoundError, devices_in
from deviceplugin_operator import slices
from deviceplugin_operator.slices import NOTHING, Offered, Slice
from deviceplugin_operator.watched import Watched

NODES: Final = "/api/v1/nodes"
_FEW: Final = 20
"""Up to this number, nodes are read one by one."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known about a node."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    total: Mapping[str, int]
    """Devices by resource: the capacity. DRA's are in it, because the plugin lists all."""
    healthy: Mapping[str, int]
    """Devices by resource: what is allocatable, and what slices offer."""
    reported: str = field(default="", compare=False)
    """When the kubelet last reported all of this, by the node's clock."""
    taints: tuple[Mapping[str, str], ...] = ()
    dra: Offered = NOTHING
    """What slices offer."""

    def offering(self, dra: Offered) -> "NodeFacts":
        """Return the same, with what slices offer."""
        total, healthy = dict(self.total), dict(self.healthy)
        for name, count in dra.total.items():
            healthy[name] = healthy.get(name, 0) + dra.healthy[name]
            total[name] = max(total.get(name, 0), count)
        return replace(self, total=total, healthy=healthy, dra=dra)

    def offers(self, patterns: Iterable[str]) -> dict[str, int]:
        """Return the healthy devices of the resources that match ``patterns``."""
        return {name: count for name, count in self.healthy.items() if _is_of(name, patterns)}

    def listed(self, offers: Mapping[str, int], *, is_dra: bool) -> dict[str, int]:
        """Return the devices that may only be in the capacity right after a switch.

        Claims hold them, or they are shares that pods hold through the device plugin.
        """
        shared = self.dra.shared
        return {one: self.total.get(one, 0) for one in offers if not is_dra or one in shared}

    def left(self, offers: Mapping[str, int], *, is_dra: bool) -> dict[str, int]:
        """Return which of ``offers`` the other protocol makes, of what ``is_dra`` says."""
        by_dra = {one: count for one, count in self.dra.healthy.items() if one in offers}
        found = {one: offers[one] - by_dra[one] for one in by_dra} if is_dra else by_dra
        return {name: count for name, count in found.items() if count}


class Fleet:
    """The nodes, and what they offer through DRA. Thread-safe.

    ``changed`` is called when a node has changed; a new heartbeat is no change.
    """

    def __init__(self, api: ApiServer, changed: Callable[[], object] = lambda: None) -> None:
        self._api = api
        self._changed = changed
        self._lock = threading.Lock()
        self._nodes = Watched(api, NODES, keep=_facts, changed=self._note)
        self._slices: dict[str, Watched[Slice]] = {}
        self._views: dict[frozenset[str], Sequence[NodeFacts]] = {}
        self._looked = float("-inf")
        self.unread: Exception | None = None  # why slices cannot be read
        self.classes: Mapping[str, list[str]] = {}  # by extended resource

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self._nodes.items)

    def follow(self, drivers: Iterable[str]) -> None:
        """Know from now on what these DRA drivers offer."""
        wanted = frozenset(drivers)
        with self._lock:
            dropped = [self._slices.pop(one) for one in self._slices.keys() - wanted]
            for one in wanted - self._slices.keys():
                query = {"fieldSelector": f"spec.driver={one}"}
                self._slices[one] = Watched(
                    self._api, slices.PATH, query, keep=slices.read, changed=self._note
                )
                self._looked = float("-inf")
        for each in dropped:
            each.stop()

    def stop(self) -> None:
        """End all watches."""
        self.follow(())
        self._nodes.stop()

    def refresh(self, older_than: float = 0.0, *, strictly: bool = False) -> None:
        """Know all nodes as they are now, unless that was so within ``older_than`` seconds.

        Watches of slices that work are believed, unless ``strictly`` asks for a list.

        Raises:
            ApiServerError: The request failed; what was known stays.
        """
        began = time.monotonic()
        with self._lock:
            followed = dict(self._slices)
            if began - self._looked < older_than:
                return
        unread: Exception | None = None
        try:
            for one in followed.values():
                one.refresh(trusting=not strictly)
            if followed:
                self.classes = slices.classes(self._api)
        except (NotFoundError, ForbiddenError) as error:
            unread = error
        self._nodes.refresh()
        with self._lock:
            if followed == self._slices:
                self.unread = unread
                self._looked = max(began, self._looked)

    def look_at(self, names: Collection[str]) -> None:
        """Know some nodes as they are now: a few are read, and many shown by the watch."""
        if len(names) > _FEW:
            self.refresh(older_than=1.0)
            return
        with self._lock:
            followed = dict(self._slices)
        for name in sorted(names):
            try:
                for driver, one in followed.items():
                    known = [key for key, each in one.items.items() if each.node == name]
                    one.read({"fieldSelector": f"spec.driver={driver},spec.nodeName={name}"}, known)
            except (NotFoundError, ForbiddenError) as error:
                self.unread = error
            self._nodes.read({"fieldSelector": f"metadata.name={name}"}, [name])

    def nodes(self, drivers: Iterable[str] = ()) -> Sequence[NodeFacts]:
        """Return all nodes, by name, with what ``drivers`` offer there."""
        wanted = frozenset(drivers)
        with self._lock:
            if wanted not in self._views:
                found = sorted(self._nodes.items.values(), key=lambda one: one.name)
                dra = slices.offered(
                    each
                    for driver, one in self._slices.items()
                    if driver in wanted
                    for each in one.items.values()
                )
                self._views[wanted] = [
                    one.offering(dra[one.name]) if one.name in dra else one for one in found
                ]
            return self._views[wanted]

    def matching(self, selector: Mapping[str, str]) -> list[NodeFacts]:
        """Return the nodes with the labels of ``selector``, by name."""
        return [one for one in self.nodes() if selector.items() <= one.labels.items()]

    def _note(self, news: bool) -> None:  # noqa: FBT001 - as Watched calls it
        with self._lock:
            self._views.clear()
        if news:
            self._changed()


def _facts(node: Mapping[str, Any]) -> NodeFacts:
    metadata, status = node["metadata"], node.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    total, healthy = (devices_in(status.get(key) or {}) for key in ("capacity", "allocatable"))
    return NodeFacts(
        metadata["name"],
        metadata.get("labels") or {},
        ready.get("status") == "True",
        total,
        healthy,
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
