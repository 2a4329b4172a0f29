"""Allocation for one container: choosing devices, calling the plugin, recording the grant."""

import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._device_manager.choosing import Chooser, Taking
from deviceplugin_testing.simulator._device_manager.manager import DeviceManager
from deviceplugin_testing.simulator._device_manager.records import NO_NODE, Grant, HeldGrant
from deviceplugin_testing.simulator._errors import AllocationRefusedError, CallError
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._pods.pod import Container, Pod


class Allocator:
    """Gives containers their devices, one resource after the other in random order."""

    def __init__(self, host: Host, manager: DeviceManager) -> None:
        self._host = host
        self._manager = manager
        self._chooser = Chooser(host, manager)
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
            nodes = self.affinities.get((pod.uid, container.name))
            self._chooser.choose(taking, pod.uid, container.name, reusable=reusable, nodes=nodes)
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
