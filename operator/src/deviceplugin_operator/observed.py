"""What the operator knows of the cluster: objects, nodes, and watches that miss changes."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, ForbiddenError, NotFoundError, Page, devices_in
from deviceplugin_operator import names, slices
from deviceplugin_operator.slices import NOTHING, Offered

Object = dict[str, Any]

OWNERS: Final = names.PLURAL
DAEMON_SETS: Final = "daemonsets"
CONFIG_MAPS: Final = "configmaps"
KINDS: Final = (OWNERS, DAEMON_SETS, CONFIG_MAPS)
LATE: Final = 60.0
"""Seconds within which a watch must show what a list has shown."""
NODES: Final = "/api/v1/nodes"
PAGE: Final = 100
"""Nodes in one page of a list; a Node object has some 10 kB."""
_FEW: Final = 20
"""Up to this number, nodes are read one by one."""


class Seen:
    """Objects by kind and name. Thread-safe.

    Do not change what it returns. An older state never replaces a newer one, because a watch
    reports our own writes late.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}

    def put(self, kind: str, found: Object) -> bool:
        """Take in ``found``, and return whether it is newer than what was known."""
        metadata = found["metadata"]
        with self._lock:
            old = self._objects[kind].get(metadata["name"])
            if old is not None and version(found) <= version(old):
                return False
            self._objects[kind][metadata["name"]] = found
            return True

    def drop(self, kind: str, gone: Object) -> bool:
        """Forget ``gone``, unless another object has its name now."""
        metadata = gone["metadata"]
        with self._lock:
            old = self._objects[kind].get(metadata["name"])
            if old is None or old["metadata"].get("uid") != metadata.get("uid"):
                return False
            del self._objects[kind][metadata["name"]]
            return True

    def take_all(self, kind: str, listed: Page) -> list[Object]:
        """Take in a complete list, and return the objects that are new, changed or gone."""
        found = {one["metadata"]["name"] for one in listed.items}
        with self._lock:
            known = list(self._objects[kind].items())
        # What was made after the list is not gone because it is not on it.
        old = [
            one for name, one in known if name not in found and version(one) <= int(listed.version)
        ]
        changed = [one for one in old if self.drop(kind, one)]
        return changed + [one for one in listed.items if self.put(kind, one)]

    def get(self, kind: str, name: str) -> Object | None:
        """Return an object, if there is one."""
        with self._lock:
            return self._objects[kind].get(name)

    def all(self, kind: str) -> list[Object]:
        """Return all objects of a kind."""
        with self._lock:
            return list(self._objects[kind].values())

    def owners(self) -> list[Object]:
        """Return all ``DevicePlugin`` objects."""
        return self.all(OWNERS)

    def of(self, kind: str, owner: str) -> list[Object]:
        """Return the objects that were created for ``owner``."""
        return [one for one in self.all(kind) if owner_of(kind, one) == owner]


def owner_of(kind: str, found: Object) -> str:
    """Return the name of the ``DevicePlugin`` that ``found`` is, or was created for."""
    metadata = found["metadata"]
    if kind == OWNERS:
        return str(metadata["name"])
    return str((metadata.get("labels") or {}).get(names.OWNER, ""))


def version(found: Object) -> int:
    """Return the version of an object; a later one is greater."""
    given = found["metadata"].get("resourceVersion", "0")
    return int(given) if given.isdecimal() else 0


class Hearing:
    """By kind: what lists have shown and watches have not. Thread-safe.

    A watch that is open but silent looks like a quiet cluster.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[str, int, float]] = {}
        """The name, the version, and since when a list has shown it."""

    def listed(self, kind: str, found: Object) -> None:
        """Note that a list has shown an unknown state of an object."""
        shown = (found["metadata"]["name"], version(found), self._clock())
        with self._lock:
            self._waiting.setdefault(kind, shown)

    def heard(self, kind: str, found: Object) -> None:
        """Note that a watch has shown ``found``, and thus everything older of its kind."""
        with self._lock:
            waiting = self._waiting.get(kind)
            if waiting and version(found) >= waiting[1]:
                del self._waiting[kind]

    def deaf(self, seen: Seen) -> str:
        """Return a kind whose watch has missed an object that still exists, or an empty string."""
        with self._lock:
            for kind, (name, _, since) in list(self._waiting.items()):
                if seen.get(kind, name) is None:  # no watch shows what is gone
                    del self._waiting[kind]
                elif self._clock() - since > LATE:
                    return kind
        return ""


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
    """The nodes as they were at the last look. Thread-safe."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._nodes: dict[str, NodeFacts] = {}
        self._looked = float("-inf")
        self._changes = 0
        self._drivers: frozenset[str] = frozenset()
        self.unread: Exception | None = None  # why slices cannot be read
        self.classes: Mapping[str, list[str]] = {}  # by extended resource

    def follow(self, drivers: Iterable[str]) -> None:
        """Count from now on what these DRA drivers offer."""
        wanted = frozenset(drivers)
        with self._lock:
            if not wanted <= self._drivers:
                self._looked = float("-inf")
            self._drivers = wanted

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
        drivers = self._drivers
        offered, unread = self._offered()
        for page in self._api.pages(NODES, size=PAGE):
            found |= {one.name: one for one in (_facts(each, offered) for each in page.items)}
        with self._lock:
            if began < self._looked or drivers != self._drivers:
                return  # another thread began later, and was quicker
            self._changes += found != self._nodes
            self._nodes = found
            self.unread = unread
            self._looked = began

    def _offered(self, node: str = "") -> tuple[dict[str, Offered], Exception | None]:
        """Return what the drivers offer, on one node or on all; what was known if it is refused."""
        try:
            found = slices.read_all(self._api, self._drivers, node)
            if self._drivers and not node:
                self.classes = slices.classes(self._api)
        except NotFoundError as error:
            return {}, error
        except ForbiddenError as error:
            return {one.name: one.dra for one in self.nodes()}, error
        return found, None

    def look_at(self, names: Collection[str]) -> None:
        """Read some nodes again, or list all of them if that takes fewer requests."""
        if len(names) > _FEW:
            self.refresh(older_than=1.0)
            return
        for name in names:
            try:
                offered, unread = self._offered(name)
                facts = _facts(self._api.get(f"{NODES}/{name}"), offered)
            except NotFoundError:
                with self._lock:
                    self._changes += self._nodes.pop(name, None) is not None
                continue
            with self._lock:
                self.unread = self.unread or unread  # the other nodes are not known again yet
                self._changes += facts != self._nodes.get(name)
                self._nodes[name] = facts

    def nodes(self) -> list[NodeFacts]:
        """Return all nodes, by name."""
        with self._lock:
            return sorted(self._nodes.values(), key=lambda one: one.name)

    def matching(self, selector: Mapping[str, str]) -> list[NodeFacts]:
        """Return the nodes with the labels of ``selector``, by name."""
        return [one for one in self.nodes() if selector.items() <= one.labels.items()]


def _facts(node: Mapping[str, Any], by_dra: Mapping[str, Offered]) -> NodeFacts:
    metadata, status = node["metadata"], node.get("status") or {}
    offered = by_dra.get(metadata["name"], NOTHING)
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    total, healthy = (devices_in(status.get(key) or {}) for key in ("capacity", "allocatable"))
    for name, count in offered.total.items():
        healthy[name] = healthy.get(name, 0) + offered.healthy[name]
        total[name] = max(total.get(name, 0), count)
    return NodeFacts(
        metadata["name"],
        metadata.get("labels") or {},
        ready.get("status") == "True",
        total,
        healthy,
        ready.get("lastHeartbeatTime") or "",
        tuple((node.get("spec") or {}).get("taints") or ()),
        offered,
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
