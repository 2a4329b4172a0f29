"""The devices of a node, merged from the kubelet and the plugins."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from deviceplugin._inventory.validation import natural_key
from deviceplugin.proto.podresources import podresources_pb2 as pb

_DRA: Final = "{driver} (DRA)"


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A container that has a device."""

    namespace: str
    pod: str
    container: str


@dataclass(slots=True)
class Device:
    """What is known about one device."""

    resource: str
    id: str
    allocatable: bool | None = None
    """Whether the kubelet would allocate it if it were free; None if that is unknown."""
    healthy: bool | None = None
    """The health from the plugin; None if it was not asked, or does not have the device."""
    reason: str = ""
    """Why it is unhealthy."""
    since: str = ""
    """The time of the last change of health, from the plugin."""
    numa_nodes: set[int] = field(default_factory=set)
    holders: set[Holder] = field(default_factory=set)
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The state for a table, in one or two words."""
        if self.healthy is False:
            return "unhealthy"
        if self.allocatable:
            return "in use" if self.holders else "free"
        if self.allocatable is False:
            return "not allocatable"
        return "in use" if self.holders else "unknown"


class Inventory:
    """All devices, by resource and id. Sources add facts in any order."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, str], Device] = {}
        self.unknown: list[str] = []
        """What is unknown, a message for each."""

    def __iter__(self) -> Iterator[Device]:
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
                for device in self._claimed(container.dynamic_resources):
                    device.holders.add(holder)

    def add_plugin(self, page: Any) -> None:
        """Add the ``/devices`` of a plugin.

        Raises:
            ValueError: ``page`` is not an answer of ``/devices``.
        """
        try:
            for resource in page["resources"]:
                for entry in resource["devices"]:
                    self._add_entry(str(resource["name"]), entry)
                if resource.get("problem"):
                    self.unknown.append(f"{resource['name']}: {resource['problem']}")
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError("is not a list of devices of a plugin") from error

    def close(self) -> None:
        """Mark all other devices as not allocatable, after the kubelet's answer is complete."""
        for device in self._devices.values():
            device.allocatable = bool(device.allocatable)

    def _add_entry(self, resource: str, entry: Any) -> None:
        device = self._device(resource, str(entry["id"]))
        device.healthy = bool(entry["healthy"])
        device.reason = str(entry.get("reason", ""))
        device.since = str(entry.get("since", ""))
        device.numa_nodes.update(map(int, entry.get("numa_nodes", ())))
        device.attributes.update(entry.get("attributes", {}))

    def _each(self, entries: Iterable[pb.ContainerDevices]) -> Iterator[Device]:
        """Yield the devices of ``entries``, which have one entry for each NUMA node of a device."""
        for entry in entries:
            for device_id in entry.device_ids:
                device = self._device(entry.resource_name, device_id)
                device.numa_nodes.update(node.ID for node in entry.topology.nodes)
                yield device

    def _claimed(self, claims: Iterable[pb.DynamicResource]) -> Iterator[Device]:
        for claim in claims:
            for part in claim.claim_resources:
                driver = _DRA.format(driver=part.driver_name)
                device = self._device(driver, f"{part.pool_name}/{part.device_name}")
                device.allocatable = True  # the kubelet lists no others
                yield device

    def _device(self, resource: str, device_id: str) -> Device:
        key = resource, device_id
        if key not in self._devices:
            self._devices[key] = Device(resource, device_id)
        return self._devices[key]
