"""What complete pools of ResourceSlices offer on each node, and which classes name it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from deviceplugin.apiserver import ApiServer, has_shares, newest, shares, taint
from deviceplugin.kit.configuration import resource_name_problem

_API: Final = "/apis/resource.k8s.io/v1"
PATH: Final = f"{_API}/resourceslices"
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
    size: int
    offers: Offered

    @property
    def node(self) -> str:
        """The node whose devices are in it; empty if they are not of one node."""
        return self.pool[0]


def read(found: Object) -> Slice:
    """Return what is kept of a ResourceSlice of a plugin."""
    spec = found["spec"]
    driver, pool = spec["driver"], spec["pool"]
    healthy, total, shared = Counter[str](), Counter[str](), set[str]()
    for device in spec.get("devices") or ():
        resource = (device.get("attributes") or {}).get("resource", {}).get("string", "")
        if resource_name_problem(resource):
            continue  # it could become a part of a command, or be one of thousands in a status
        shared |= {resource} if has_shares(device) else set()
        count = shares(device)
        total[resource] += count
        healthy[resource] += 0 if taint(device, driver) == "taint" else count
    offers = Offered(healthy, total, frozenset(shared), frozenset({driver}))
    place = spec.get("nodeName", ""), driver, pool["name"]
    return Slice(place, pool["generation"], pool["resourceSliceCount"], offers)


def offered(found: Iterable[Slice]) -> dict[str, Offered]:
    """Return what slices offer, by node.

    A pool counts once all slices of its latest generation are there.
    """
    nodes: dict[str, Offered] = {}
    for parts, is_complete in newest(found):
        node, driver, _ = parts[0].pool
        empty = replace(NOTHING, drivers=frozenset({driver}))
        nodes[node] = nodes.get(node, NOTHING).plus(empty)
        for part in parts if is_complete else ():
            nodes[node] = nodes[node].plus(part.offers)
    return nodes


def classes(api: ApiServer) -> dict[str, list[str]]:
    """Return the names of the DeviceClasses of each extended resource."""
    found: dict[str, list[str]] = {}
    for one in api.list(f"{_API}/deviceclasses").items:
        if resource := one["spec"].get("extendedResourceName"):
            found.setdefault(resource, []).append(one["metadata"]["name"])
    return found
