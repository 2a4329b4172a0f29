"""The devices of a node, merged from the kubelet and the plugins, as a table and as JSON."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from typing import Any, Final

from deviceplugin._app.text_table import in_chunks
from deviceplugin._dra.naming import device_name, former_name, pool_name
from deviceplugin._inventory.divided import Profiles, listed
from deviceplugin._inventory.validation import natural_key
from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin.tools import _command_line
from deviceplugin.tools._devices_page import is_spare, parts_in

_DRA: Final = "{driver} (DRA)"
FORMAT: Final = 1
"""Version of the JSON. It is raised when a field changes its meaning or disappears."""

_HEADER: Final = ("RESOURCE", "DEVICE", "STATE", "NUMA", "HELD BY", "REASON")
_NONE: Final = "-"
_OF_PARTS: Final = ("part", "blocked")
"""Fields of a device that is a part, or the whole of parts."""


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A container that has a device."""

    namespace: str
    pod: str
    """Empty if a claim has the device, and its pod is not known."""
    container: str
    claim: str = ""
    """The ResourceClaim through which it has the device; empty if through the device plugin."""

    def __str__(self) -> str:
        name = "/".join(filter(None, (self.namespace, self.pod, self.container)))
        if not self.claim:
            return name
        return f"{name} (claim {self.claim})" if self.pod else f"claim {name}/{self.claim}"


@dataclass(slots=True)
class NodeDevice:
    """What is known about one device."""

    resource: str
    id: str
    allocatable: bool | None = None
    """Whether the kubelet would allocate it if it were free; None if that is unknown."""
    healthy: bool | None = None
    """The health from the plugin; None if it was not asked, or does not have the device."""
    by_dra: bool = False
    """Whether a new pod can get it through DRA, according to the plugin."""
    reason: str = ""
    """Why it is unhealthy."""
    since: str = ""
    """The time of the last change of health, from the plugin."""
    numa_nodes: set[int] = field(default_factory=set)
    attributes: dict[str, str | int | bool] = field(default_factory=dict)
    capacity: dict[str, str | int] = field(default_factory=dict)
    holders: set[Holder] = field(default_factory=set)
    part: str = ""
    """What it is in hardware that has parts: ``whole``, ``made``, ``spare`` (not made) or empty."""
    blocked: bool = False
    """Whether nobody can have it because of what others have of the same hardware."""

    @property
    def state(self) -> str:
        """The state for a table, in one or two words."""
        if self.healthy is False:
            return "unhealthy"
        # Of a device that DRA offers, or is about to, the kubelet says that it is not allocatable.
        if self.holders and (self.healthy or self.allocatable is not False or self._has_claim):
            return "in use"
        if self.part == "made":
            return "made"
        if self.blocked:
            return "blocked"
        if self.allocatable or self.by_dra:
            return "free"
        return "unknown" if self.allocatable is None else "not allocatable"

    @property
    def _has_claim(self) -> bool:
        return any(holder.claim for holder in self.holders)


def _part(entry: Any) -> str:
    if not entry.get("part"):
        return ""
    if is_spare(entry):
        return "spare"
    return "made" if entry["part"]["on_demand"] else "whole"


def _without_pod(holder: Holder) -> Holder:
    """Return ``holder`` as a plugin reports it that does not know the pod yet."""
    return replace(holder, pod="", container="")


class Inventory:
    """All devices, by resource and id. Sources add facts in any order."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, str], NodeDevice] = {}
        self._of_plugins: set[tuple[str, str]] = set()
        """The devices that a plugin has reported."""
        self._places: dict[str, dict[tuple[str, str], tuple[str, str]]] = {}
        """By node, these devices by the pool and the name that they have in slices."""
        self._by_claim: defaultdict[tuple[str, Holder], list[NodeDevice]] = defaultdict(list)
        """By driver, what plugins say that a container has by a claim: also shares, which have no
        name of their own in slices. Without pod and container if the plugin does not know them."""
        self.parts: dict[tuple[str, str], Profiles] = {}
        """What is made and possible, by resource and name of hardware."""
        self.unknown: list[str] = []
        """What is unknown, a message for each."""

    def __iter__(self) -> Iterator[NodeDevice]:
        """Yield the devices in natural order of resource and id."""
        yield from sorted(
            self._devices.values(), key=lambda d: (natural_key(d.resource), natural_key(d.id))
        )

    def add_allocatable(self, answer: pb.AllocatableResourcesResponse) -> None:
        """Add the answer of GetAllocatableResources: every healthy device, and no other."""
        for device in self._each(answer.devices):
            device.allocatable = True

    def add_pods(self, answer: pb.ListPodResourcesResponse) -> None:
        """Add the answer of List: the devices of each container, including DRA claims."""
        for pod in answer.pod_resources:
            for container in pod.containers:
                holder = Holder(pod.namespace, pod.name, container.name)
                for device in self._each(container.devices):
                    device.holders.add(holder)
                for claim in container.dynamic_resources:
                    by_claim = replace(holder, claim=claim.claim_name)
                    for part in claim.claim_resources:
                        for device in self._claimed(part, by_claim):
                            device.holders.add(by_claim)
                            device.holders.discard(_without_pod(by_claim))

    def add_plugin(self, page: Any) -> None:
        """Add the ``/devices`` of a plugin; errors of builtin classes mean that it is none."""
        driver = str((page.get("dra") or {}).get("driver", ""))
        for resource in page["resources"]:
            for entry in resource["devices"]:
                self._add_entry(str(resource["name"]), entry, driver)
            if resource.get("problem"):
                self.unknown.append(f"{resource['name']}: {resource['problem']}")
        self.parts |= parts_in(page)

    def close(self) -> None:
        """Mark all other devices as not allocatable, after the kubelet's answer is complete."""
        for device in self._devices.values():
            device.allocatable = bool(device.allocatable)

    def _add_entry(self, resource: str, entry: Any, driver: str) -> None:
        device = self._device(resource, str(entry["id"]))
        self._of_plugins.add((resource, device.id))
        self._places.clear()
        for one in entry.get("holders") or ():
            if one.get("claim"):
                names = ("namespace", "pod", "container", "claim")
                holder = Holder(*(str(one.get(name, "")) for name in names))
                self._by_claim[driver, holder].append(device)
                if not holder.pod:  # the kubelet does not know it
                    device.holders.add(holder)
        device.healthy = bool(entry["healthy"])
        device.by_dra = bool(entry.get("by_dra"))
        device.reason = str(entry.get("reason", ""))
        device.since = str(entry.get("since", ""))
        device.part = _part(entry)
        device.blocked = bool(entry.get("blocked"))
        device.numa_nodes.update(map(int, entry.get("numa_nodes", ())))
        device.attributes.update(entry.get("attributes", {}))
        device.capacity.update(entry.get("capacity", {}))

    def _each(self, entries: Iterable[pb.ContainerDevices]) -> Iterator[NodeDevice]:
        """Yield the devices of ``entries``, which have one entry for each NUMA node of a device."""
        for entry in entries:
            resource, nodes = entry.resource_name, [node.ID for node in entry.topology.nodes]
            for device_id in entry.device_ids:
                device = self._device(resource, device_id)
                device.numa_nodes.update(nodes)
                yield device

    def _claimed(self, part: pb.ClaimResource, holder: Holder) -> Sequence[NodeDevice]:
        if key := self._reported(part):
            return [self._device(*key)]
        for known in (holder, _without_pod(holder)):
            if devices := self._by_claim.get((part.driver_name, known)):
                return devices
        resource = _DRA.format(driver=part.driver_name)
        device = self._device(resource, f"{part.pool_name}/{part.device_name}")
        device.allocatable = True  # the kubelet lists no others
        return [device]

    def _reported(self, part: pb.ClaimResource) -> tuple[str, str] | None:
        """Return the device that a plugin has reported and that is called so in its slices."""
        node = part.pool_name.partition("/")[0]
        if node not in self._places:
            self._places[node] = {
                (pool_name(node, key[0]), name(key[1])): key
                for name in (former_name, device_name)
                for key in self._of_plugins
            }
        return self._places[node].get((part.pool_name, part.device_name))

    def _device(self, resource: str, device_id: str) -> NodeDevice:
        key = resource, device_id
        if key not in self._devices:
            self._devices[key] = NodeDevice(resource, device_id)
        return self._devices[key]


def table(inventory: Inventory, at_once: int) -> Iterator[str]:
    """Yield the lines, of which ``at_once`` are aligned with each other, or more.

    Parts that are not made are only counted.
    """
    devices = [one for one in inventory if one.part != "spare"]
    parts = (f"{of}: {listed(found)}" for (_, of), found in sorted(inventory.parts.items()))
    lines = in_chunks(chain([_HEADER], map(_row, devices)), at_once) if devices else ["no devices"]
    for line in chain(
        lines, _sums(devices), parts, (f"unknown: {one}" for one in inventory.unknown)
    ):
        yield f"{line}\n"


def _row(device: NodeDevice) -> tuple[str, ...]:
    holders = list(map(str, sorted(device.holders)))
    return (
        device.resource,
        device.id,
        device.state,
        ",".join(map(str, sorted(device.numa_nodes))) or _NONE,
        ", ".join(holders) or _NONE,
        _reason(device) or _NONE,
    )


def _reason(device: NodeDevice) -> str:
    since = f" (since {device.since})" if device.reason and device.since else ""
    return " ".join(f"{device.reason}{since}".split())


def _sums(devices: Iterable[NodeDevice]) -> Iterator[str]:
    states: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for device in devices:
        states[device.resource][device.state] += 1
    if states:
        yield ""
    for resource, found in states.items():
        counts = ", ".join(f"{number} {state}" for state, number in sorted(found.items()))
        yield f"{resource}: {counts}"


def document(inventory: Inventory) -> Mapping[str, Any]:
    """Return everything, for JSON. ``null`` means unknown."""
    parts = [
        {"resource": resource, "of": name, "profiles": {k: asdict(one) for k, one in found.items()}}
        for (resource, name), found in sorted(inventory.parts.items())
    ]
    found = {"devices": [_entry(device) for device in inventory], "unknown": inventory.unknown}
    return _command_line.document(FORMAT, found | ({"parts": parts} if parts else {}))


def _entry(device: NodeDevice) -> Mapping[str, Any]:
    more = () if device.part else _OF_PARTS
    given = {one.name: getattr(device, one.name) for one in fields(device) if one.name not in more}
    return {
        "resource": device.resource,
        "id": device.id,
        "state": device.state,
        **given,
        "numa_nodes": sorted(device.numa_nodes),
        "holders": [
            {"namespace": h.namespace, "pod": h.pod, "container": h.container}
            | ({"claim": h.claim} if h.claim else {})
            for h in sorted(device.holders)
        ],
    }
