"""Allocation for one container: choosing devices, calling the plugin, recording the grant."""

import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager, Endpoint
from deviceplugin_testing.simulator._device_manager.records import (
    NO_NODE,
    Grant,
    HeldGrant,
    numa_nodes,
)
from deviceplugin_testing.simulator._errors import AllocationRefusedError, CallError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, Pod


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
        return self.wanted - len(self.taken)

    def take(self, ids: AbstractSet[str]) -> bool:
        """Take any of ``ids`` until enough are taken; return whether enough are."""
        chosen = self._host.shuffled(set(ids) - self.taken)[: self.needed]
        self.taken.update(chosen)
        # Even without any, so that a resource is remembered from which too much was requested.
        self._manager.allocated.setdefault(self.resource, set()).update(chosen)
        return self.needed == 0


class Allocator:
    """Gives containers their devices, one resource after the other in random order."""

    def __init__(self, host: Host, manager: DeviceManager) -> None:
        self._host = host
        self._manager = manager
        self.affinities: dict[tuple[str, str], int | None] = {}
        """(Pod uid, container) to the NUMA nodes that its devices should be near."""
        self._reusable: dict[str, dict[str, set[str]]] = {}

    def reusable(self, pod: Pod) -> dict[str, set[str]]:
        """Return, by resource, the devices of the pod's init containers that others may reuse."""
        return self._reusable.get(pod.uid, {})

    def allocate(self, pod: Pod, container: Container) -> None:
        """Allocate all that ``container`` needs.

        Devices that were allocated before a failure stay with the pod until it is collected.

        Raises:
            AllocationRefusedError: The first failure.
        """
        with self._host.changed:
            reusable = self._reusable.get(pod.uid, {})
            self._reusable = {pod.uid: reusable}
        if self._allocate_all(pod, container, reusable):
            self._manager.save()
        with self._host.changed:
            grants = self._manager.records.of_container(pod.uid, container.name)
            for resource, grant in grants.items():
                if pod.runs_once(container):
                    reusable.setdefault(resource, set()).update(grant.ids)
                else:
                    reusable.setdefault(resource, set()).difference_update(grant.ids)

    def _allocate_all(self, pod: Pod, container: Container, reusable: dict[str, set[str]]) -> bool:
        changed = collected = False
        for resource in self._host.shuffled(set(container.limits)):
            with self._host.changed:
                claimed = self._host.release.leaves_claimed and resource in container.claimed
                if not self._manager.manages(resource) or claimed:
                    continue
            if not collected:
                self._manager.collect()
                collected = True
            again = reusable.get(resource, set())
            changed |= self._allocate_one(pod, container, resource, again)
        return changed

    def _allocate_one(
        self, pod: Pod, container: Container, resource: str, reusable: AbstractSet[str]
    ) -> bool:
        taking = Taking(self._host, self._manager, resource, container.limits[resource])
        with self._in_flight(taking):
            self._choose(taking, pod.uid, container.name, reusable)
            if not taking.taken:
                return False
            response = self._ask(resource, taking.taken)
            with self._host.changed:
                grant = Grant(self._by_node(resource, taking.taken), response)
                entry = HeldGrant(pod.uid, container.name, resource, grant)
                self._manager.records.insert(entry)
                self._host.notify()
            return True

    @contextmanager
    def _in_flight(self, taking: Taking) -> Iterator[None]:
        """Keep track of devices that are taken but not recorded yet."""
        flight = (taking.resource, taking.taken)
        with self._host.changed:
            self._manager.in_flight.append(flight)
        try:
            yield
        except AllocationRefusedError:
            with self._host.changed:
                self._manager.in_flight.remove(flight)
                if not self._host.behaviour.failed_allocation_leaks:
                    self._manager.recount()
            raise
        with self._host.changed:
            self._manager.in_flight.remove(flight)

    def _ask(self, resource: str, ids: set[str]) -> pb.ContainerAllocateResponse:
        with self._host.changed:
            endpoint = self._manager.endpoints.get(resource)
        if endpoint is None:
            self._manager.recount()
            raise AllocationRefusedError(f"unknown Device Plugin {resource}")
        request = pb.ContainerAllocateRequest(devices_ids=self._host.shuffled(ids))
        started = time.perf_counter()
        try:
            response = endpoint.call("Allocate", pb.AllocateRequest(container_requests=[request]))
        except CallError as error:
            self._manager.check_alive()
            self._manager.recount()
            raise AllocationRefusedError(str(error)) from None
        finally:
            self._measure(resource, time.perf_counter() - started)
        self._manager.check_alive()
        if not response.container_responses:
            raise AllocationRefusedError("no containers return in allocation response ")
        answer: pb.ContainerAllocateResponse = response.container_responses[0]
        return answer

    def _measure(self, resource: str, seconds: float) -> None:
        with self._host.changed:
            durations = self._host.metrics.device_plugin_alloc_duration_seconds
            durations.setdefault(resource, []).append(seconds)

    def _by_node(self, resource: str, ids: set[str]) -> dict[int, tuple[str, ...]]:
        nodes: dict[int, list[str]] = {}
        for id_ in sorted(ids):
            where = "allocateContainerResources, after the Allocate call"
            for node in self._manager.nodes_of(resource, id_, where) or (NO_NODE,):
                nodes.setdefault(node, []).append(id_)
        return {node: tuple(listed) for node, listed in sorted(nodes.items())}

    # Choosing, in the device manager's order of preference

    def _choose(self, taking: Taking, pod: str, container: str, reusable: AbstractSet[str]) -> None:
        """Take the devices to request from the plugin; none if the container needs no new ones.

        Devices of the pod's finished init containers, which are ``reusable``, are taken first.
        """
        resource = taking.resource
        with self._host.changed:
            if self._has_enough(pod, container, resource, taking.wanted) or taking.take(reusable):
                return
            available = self._available(resource, taking.needed)
            aligned, others, anywhere = self._split(
                resource, available, self.affinities.get((pod, container))
            )
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
