"""The devices of a node, put together from all who know of them."""

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
    """One device, as far as it is known."""

    resource: str
    id: str
    allocatable: bool | None = None
    """Whether the kubelet would give it to a container if it were free; None if not known."""
    healthy: bool | None = None
    """What the plugin says; None if it was not asked, or has no such device."""
    reason: str = ""
    """Why it is not healthy."""
    since: str = ""
    """Since when, as the plugin says it."""
    numa_nodes: set[int] = field(default_factory=set)
    holders: set[Holder] = field(default_factory=set)
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """One word or two for a table."""
        if self.healthy is False:
            return "unhealthy"
        if self.allocatable:
            return "in use" if self.holders else "free"
        if self.allocatable is False:
            return "not allocatable"
        return "in use" if self.holders else "unknown"


class Inventory:
    """All devices, by resource and id. Each source adds what it knows, in any order."""

    def __init__(self) -> None:
        self._devices: dict[tuple[str, str], Device] = {}
        self.unknown: list[str] = []
        """What is not known, a sentence each."""

    def __iter__(self) -> Iterator[Device]:
        """Yield the devices in natural order of resource and id."""
        yield from sorted(
            self._devices.values(), key=lambda d: (natural_key(d.resource), natural_key(d.id))
        )

    def add_allocatable(self, answer: pb.AllocatableResourcesResponse) -> None:
        """Take what GetAllocatableResources says: every healthy device, and no other."""
        for device in self._each(answer.devices):
            device.allocatable = True

    def add_pods(self, answer: pb.ListPodResourcesResponse) -> None:
        """Take what List says: what each container holds, DRA's claims too."""
        for pod in answer.pod_resources:
            for container in pod.containers:
                holder = Holder(pod.namespace, pod.name, container.name)
                for device in self._each(container.devices):
                    device.holders.add(holder)
                for device in self._claimed(container.dynamic_resources):
                    device.holders.add(holder)

    def add_plugin(self, page: Any) -> None:
        """Take what a plugin's ``/devices`` says.

        Raises:
            ValueError: It is something else.
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
        """Say of what the kubelet did not call allocatable that it is not; all has been asked."""
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
        """Yield the devices of ``entries``, of which there is one for each NUMA node."""
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
                device.allocatable = True  # the kubelet knows of no other
                yield device

    def _device(self, resource: str, device_id: str) -> Device:
        key = resource, device_id
        if key not in self._devices:
            self._devices[key] = Device(resource, device_id)
        return self._devices[key]
