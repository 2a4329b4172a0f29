"""Choosing devices for a container, in the device manager's order of preference."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager, Endpoint
from deviceplugin_testing.simulator._device_manager.records import numa_nodes
from deviceplugin_testing.simulator._errors import AllocationRefusedError, CallError
from deviceplugin_testing.simulator._host.host import Host


class Taking:
    """The devices taken for one container so far. Each is marked as allocated at once."""

    def __init__(self, host: Host, manager: DeviceManager, resource: str, wanted: int) -> None:
        self.resource = resource
        self.wanted = wanted
        self.taken: set[str] = set()
        self._host = host
        self._manager = manager

    @property
    def needed(self) -> int:
        """How many devices are still missing."""
        return self.wanted - len(self.taken)

    def take(self, ids: AbstractSet[str]) -> bool:
        """Take any of ``ids`` until enough are taken; return whether enough are."""
        chosen = self._host.shuffled(set(ids) - self.taken)[: self.needed]
        self.taken.update(chosen)
        # Even without any, so that a resource is remembered from which too much was requested.
        self._manager.allocated.setdefault(self.resource, set()).update(chosen)
        return self.needed == 0


class Chooser:
    """Chooses devices for containers and marks them as allocated."""

    def __init__(self, host: Host, manager: DeviceManager) -> None:
        self._host = host
        self._manager = manager

    def choose(
        self,
        taking: Taking,
        pod: str,
        container: str,
        *,
        reusable: AbstractSet[str],
        nodes: int | None,
    ) -> None:
        """Take the devices to request from the plugin; none if the container needs no new ones.

        Args:
            taking: The resource and the number; it collects the devices.
            pod: UID of the pod.
            container: Name of the container.
            reusable: Devices of the pod's finished init containers, which are taken first.
            nodes: The NUMA nodes that the devices should be near; None for any.
        """
        resource = taking.resource
        with self._host.changed:
            if self._has_enough(pod, container, resource, taking.wanted) or taking.take(reusable):
                return
            available = self._available(resource, taking.needed)
            aligned, others, anywhere = self._split(resource, available, nodes)
            pool, rest = available, [others, anywhere]
            if taking.needed < len(aligned):
                pool, rest = aligned, [aligned]
            elif taking.take(aligned):
                return
            taken = frozenset(taking.taken)
            endpoint = self._manager.endpoints.get(resource)
        preferred = self._preferred(endpoint, taking, pool | taken, taken)
        with self._host.changed:
            self._manager.check_alive()
            for ids in (preferred & pool, *rest):
                taking.take(ids)

    def _has_enough(self, pod: str, container: str, resource: str, wanted: int) -> bool:
        """Return whether there is nothing to do. Raise what makes it impossible, in this order."""
        grant = self._manager.records.get(pod, container, resource)
        held = grant.ids if grant else frozenset()
        if grant and len(held) != wanted:
            raise AllocationRefusedError(
                f'pod "{pod}" container "{container}" changed request for resource "{resource}" '
                f"from {len(held)} to {wanted}"
            )
        restoring = not self._manager.sources_ready
        if restoring and (pod, container) in self._manager.running_at_start:
            return True
        if resource not in self._manager.healthy:
            raise AllocationRefusedError(f"cannot allocate unregistered device {resource}")
        healthy = self._manager.healthy[resource]
        if not healthy:
            raise AllocationRefusedError(
                f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        if not held <= healthy:
            raise AllocationRefusedError(
                "previously allocated devices are no longer healthy; "
                f"cannot allocate unhealthy devices {resource}"
            )
        return len(held) == wanted

    def _available(self, resource: str, needed: int) -> frozenset[str]:
        used = self._manager.allocated.get(resource, set())
        available = frozenset(self._manager.healthy[resource] - used)
        if len(available) < needed:
            raise AllocationRefusedError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {needed}, Available: {len(available)}"
            )
        return available

    def _split(
        self, resource: str, available: Iterable[str], nodes: int | None
    ) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Return the devices near ``nodes``, those near other nodes, and those without a node."""
        if nodes is None or not self._manager.has_topology(resource):
            return frozenset(), frozenset(), frozenset(available)
        near, far, nowhere = set(), set(), set()
        for id_ in available:
            mine = numa_nodes(self._manager.devices[resource][id_])
            if any(node >= 0 and nodes >> node & 1 for node in mine):
                near.add(id_)
            elif any(node >= 0 for node in mine):
                far.add(id_)
            else:
                nowhere.add(id_)
        return frozenset(near), frozenset(far), frozenset(nowhere)

    def _preferred(
        self,
        endpoint: Endpoint | None,
        taking: Taking,
        available: frozenset[str],
        required: frozenset[str],
    ) -> frozenset[str]:
        """Return what the plugin prefers; nothing if it does not offer preferred allocation."""
        if endpoint is None:
            raise AllocationRefusedError(
                f"endpoint not found in cache for a registered resource: {taking.resource}"
            )
        options = endpoint.options
        if not options or not options.get_preferred_allocation_available:
            return frozenset()
        request = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=self._host.shuffled(available),
            must_include_deviceIDs=self._host.shuffled(required),
            allocation_size=taking.wanted,
        )
        try:
            response = endpoint.call(
                "GetPreferredAllocation",
                pb.PreferredAllocationRequest(container_requests=[request]),
            )
        except CallError as error:
            self._manager.check_alive()
            raise AllocationRefusedError(
                f"device plugin GetPreferredAllocation rpc failed with err: {error}"
            ) from None
        return frozenset(i for answer in response.container_responses[:1] for i in answer.deviceIDs)
