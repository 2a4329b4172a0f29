"""What complete pools of ResourceSlices offer on each node, and which classes name it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from deviceplugin.apiserver import ApiServer, devices_in
from deviceplugin.kit.configuration import resource_name_problem

_API: Final = "/apis/resource.k8s.io/v1"
_HELD: Final = "held"
"""Taint of a healthy device that a pod still has by the other protocol."""
_SHARES: Final = "shares"
_PAGE: Final = 100
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Offered:
    """What a node offers through DRA, by resource. The shares of a device count one by one."""

    healthy: Mapping[str, int]
    total: Mapping[str, int]
    shared: frozenset[str]
    """Resources with shares. Those that pods hold by the other protocol are not in the slices."""
    drivers: frozenset[str]
    """Drivers with slices, also if these have no devices."""

    def plus(self, other: "Offered") -> "Offered":
        """Return both together."""
        counts = Counter(self.healthy), Counter(self.total)
        counts[0].update(other.healthy)
        counts[1].update(other.total)  # unlike a sum, both keep what is 0
        return Offered(*counts, self.shared | other.shared, self.drivers | other.drivers)


NOTHING: Final = Offered({}, {}, frozenset(), frozenset())


class Slice(NamedTuple):
    """What is kept of a ResourceSlice: there can be thousands, of some 20 kB."""

    pool: tuple[str, str, str]
    """Its node, driver and name."""
    generation: int
    of: int
    """The number of slices of its pool."""
    offers: Offered


def read(found: Object) -> Slice:
    """Return what is kept of a ResourceSlice of a plugin."""
    spec = found["spec"]
    driver, pool = spec["driver"], spec["pool"]
    healthy, total, shared = Counter[str](), Counter[str](), set[str]()
    for device in spec.get("devices") or ():
        resource = (device.get("attributes") or {}).get("resource", {}).get("string", "")
        if resource_name_problem(resource):
            continue  # it could become a part of a command, or be one of thousands in a status
        count = 1
        if device.get("allowMultipleAllocations"):
            shared.add(resource)
            shares = (device.get("capacity") or {}).get(_SHARES, {}).get("value", "1")
            count = devices_in({resource: shares}).get(resource, 1)
        taints = {one["key"] for one in device.get("taints") or ()}
        total[resource] += count
        healthy[resource] += count if taints <= {f"{driver}/{_HELD}"} else 0
    offers = Offered(healthy, total, frozenset(shared), frozenset({driver}))
    place = spec.get("nodeName", ""), driver, pool["name"]
    return Slice(place, pool["generation"], pool["resourceSliceCount"], offers)


def offered(found: Iterable[Slice]) -> dict[str, Offered]:
    """Return what slices offer, by node.

    A pool counts once all slices of its latest generation are there.
    """
    pools: dict[tuple[str, str, str], list[Slice]] = {}
    for one in found:
        pools.setdefault(one.pool, []).append(one)
    nodes: dict[str, Offered] = {}
    for (node, driver, _), known in pools.items():
        latest = max(one.generation for one in known)
        parts = [one for one in known if one.generation == latest]
        empty = replace(NOTHING, drivers=frozenset({driver}))
        nodes[node] = nodes.get(node, NOTHING).plus(empty)
        for part in parts if len(parts) == parts[0].of else ():
            nodes[node] = nodes[node].plus(part.offers)
    return nodes


def read_all(api: ApiServer, drivers: Iterable[str], node: str = "") -> dict[str, Offered]:
    """Return what ``drivers`` offer on one node, by one list, or on all, by one list for each."""
    known = sorted(drivers)
    lists = [f"spec.driver={one}" for one in known]
    if node:
        lists = [f"spec.nodeName={node}"] if known else []
    return offered(
        read(one)
        for which in lists
        for page in api.pages(f"{_API}/resourceslices", {"fieldSelector": which}, size=_PAGE)
        for one in page.items
        if one["spec"]["driver"] in known
    )


def classes(api: ApiServer) -> dict[str, list[str]]:
    """Return the names of the DeviceClasses of each extended resource."""
    found: dict[str, list[str]] = {}
    for one in api.list(f"{_API}/deviceclasses").items:
        if resource := one["spec"].get("extendedResourceName"):
            found.setdefault(resource, []).append(one["metadata"]["name"])
    return found
