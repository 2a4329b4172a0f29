"""The device manager: what the kubelet knows about every resource."""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from deviceplugin.proto.v1beta1 import HEALTHY, UNHEALTHY
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._device_manager import records
from deviceplugin_testing.simulator._device_manager.plugin_client import PluginClient
from deviceplugin_testing.simulator._device_manager.records import Records, numa_nodes
from deviceplugin_testing.simulator._errors import CallError, KubeletCrashed, KubeletStopped
from deviceplugin_testing.simulator._host.host import Host
from deviceplugin_testing.simulator._wire import go_error

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Endpoint:
    """The plugin that gets the calls for a resource."""

    resource: str
    client: PluginClient | None
    """None if the plugin is only in the checkpoint."""
    options: pb.DevicePluginOptions | None
    stopped_at: float | None = None
    """The time when its connection was lost, by the kubelet's clock."""

    @property
    def stopped(self) -> bool:
        return self.stopped_at is not None

    def call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        """Call a method of the plugin and return its answer; raise ``CallError``."""
        if self.client is None or self.stopped:
            path = f" {self.client.path}" if self.client else ""
            raise CallError(f"endpoint &{{{self.resource}{path}}} has been stopped")
        try:
            return self.client.call(method, request, timeout)
        except grpc.RpcError as error:
            raise CallError(go_error(error, self.client.path)) from None


class DeviceManager:
    """The devices, endpoints and grants of one kubelet process.

    ``host.changed`` guards the public attributes.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.alive = True
        self.endpoints: dict[str, Endpoint] = {}
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self.devices: dict[str, dict[str, pb.Device]] = {}
        """The devices of each resource's last list, by id. Of equal ids, the last one counts."""
        self.records = Records()
        self.allocated: dict[str, set[str]] = {}
        """Resource to the ids that must not be allocated. It can differ from the records."""
        self.in_flight: list[tuple[str, set[str]]] = []
        """Resource and ids that allocations have taken but not recorded yet."""
        self.admitted: set[str] = set()
        """UIDs of the pods that this process has admitted."""
        self._pending: str | None = None
        """UID of the pod that is being admitted."""
        self.sources_ready = False
        """Whether the pods from before the start have been admitted again."""
        self.running_at_start = frozenset(
            (uid, name) for uid, state in host.pods.items() for name in state.running
        )

    def restore(self) -> None:
        """Load the checkpoint. Its resources have no devices until their plugins come back."""
        try:
            restored = records.read_checkpoint(self._host.plugin_dir)
        except records.CheckpointError as error:
            log.debug("no checkpoint: %s", error)
            return
        for entry in restored.entries:
            self.records.insert(entry)
        self.allocated = self.records.devices
        for resource in restored.registered:
            self.healthy[resource] = set()
            self.unhealthy[resource] = set()
            self.endpoints[resource] = Endpoint(resource, None, None, self._host.clock())

    def save(self) -> None:
        with self._host.changed:
            records.write_checkpoint(self._host.plugin_dir, self.records, self.healthy)

    # Plugins

    def connected(self, client: PluginClient, options: pb.DevicePluginOptions) -> None:
        """Send the calls for the client's resource to this client from now on."""
        with self._host.changed:
            self.endpoints[client.resource] = Endpoint(client.resource, client, options)
            self._host.notify()

    def listed(self, resource: str, devices: Iterable[pb.Device]) -> None:
        """Replace everything known about the resource's devices."""
        with self._host.changed:
            before = self.devices.get(resource, {})
            healthy = self.healthy[resource] = set()
            unhealthy = self.unhealthy[resource] = set()
            known = self.devices[resource] = {}
            owners = self._owners(resource)
            concerned = set()
            for device in devices:
                id_, health = device.ID, device.health
                known[id_] = device
                (healthy if health == HEALTHY else unhealthy).add(id_)
                if id_ in owners and (id_ not in before or before[id_].health != health):
                    concerned.add(owners[id_])
            self._host.metrics.listed_at[resource] = time.monotonic()
            if self._host.release.shows_device_health:
                self._host.poke(concerned)
            self.save()
            self._host.notify()

    def _owners(self, resource: str) -> dict[str, str]:
        anywhere = self._host.behaviour.health_owner_ignores_resource
        return self.records.owners(None if anywhere else resource)

    def disconnected(self, resource: str) -> None:
        """Treat all devices of the resource as unhealthy."""
        with self._host.changed:
            if endpoint := self.endpoints.get(resource):
                # Without a list, the resource stays unknown to admissions.
                lost = self.healthy.get(resource, set())
                self.unhealthy.setdefault(resource, set()).update(lost)
                lost.clear()
                endpoint.stopped_at = self._host.clock()
            self._host.notify()

    # Node status

    def update_node(self) -> None:
        """Update the node object, and forget plugins that have been gone for too long."""
        with self._host.changed:
            node = self._host.node
            removed = self._expire()
            known = self.healthy.keys() | self.unhealthy.keys()
            healthy = {name: len(self.healthy.get(name, ())) for name in known}
            capacity = {name: healthy[name] + len(self.unhealthy.get(name, ())) for name in known}
            node.capacity |= capacity | dict.fromkeys(removed, 0)
            # All devices of a resource that the kubelet has forgotten count as allocatable.
            node.allocatable = node.capacity | healthy
            self._host.notify()

    def _expire(self) -> set[str]:
        removed = {
            name
            for name in self.healthy.keys() | self.unhealthy.keys()
            if self._expired(self.endpoints.get(name))
        }
        for name in removed:
            # Their devices are kept, so that their return does not count as a change of health.
            for known in (self.endpoints, self.healthy, self.unhealthy):
                known.pop(name, None)
        if removed:
            self.save()
        return removed

    def _expired(self, endpoint: Endpoint | None) -> bool:
        if endpoint is None:
            return True
        if endpoint.stopped_at is None:
            return False
        return self._host.clock() - endpoint.stopped_at > self._host.config.stop_grace

    # Grants

    def manages(self, resource: str) -> bool:
        """Return whether the resource is a device plugin's, as far as the kubelet knows."""
        return resource in self.healthy or resource in self.allocated

    @contextmanager
    def admitting(self, uid: str) -> Iterator[None]:
        """Treat the pod as active in the context, and after it only if it was admitted."""
        with self._host.changed:
            self._pending = uid
        try:
            yield
        finally:
            with self._host.changed:
                self._pending = None

    def active(self, uid: str) -> bool:
        """Return whether the pod is being admitted, or was admitted and has not ended."""
        state = self._host.pods.get(uid)
        admitted = uid in self.admitted and state is not None and not state.terminal
        return admitted or uid == self._pending

    def collect(self) -> None:
        """Free the devices of pods that are not active any more."""
        with self._host.changed:
            if not self.sources_ready:
                return
            gone = {uid for uid in self.records.pods if not self.active(uid)}
            if gone:
                self.records.forget(gone)
                self.recount()

    def recount(self) -> None:
        with self._host.changed:
            self.allocated = self.records.devices
            if not self._host.behaviour.collection_forgets_in_flight:
                for resource, ids in self.in_flight:
                    self.allocated.setdefault(resource, set()).update(ids)

    def nodes_of(self, resource: str, id_: str, where: str) -> tuple[int, ...]:
        """Return the NUMA nodes of a listed device. If it is not listed, the kubelet crashes."""
        device = self.devices.get(resource, {}).get(id_)
        if device is not None:
            return numa_nodes(device)
        if not self._host.behaviour.missing_device_crashes:
            return ()
        raise KubeletCrashed(
            f"kubelet crashed: nil pointer dereference in {where}: device {id_!r} of {resource} "
            f"is not listed any more; list it as Unhealthy instead (seed {self._host.seed})"
        )

    def has_topology(self, resource: str) -> bool:
        """Return whether any listed device of the resource, healthy or not, has a NUMA node."""
        return any(numa_nodes(device) for device in self.devices.get(resource, {}).values())

    def health(self, pod: str, container: str) -> dict[str, dict[str, str]]:
        """Return the health of the container's devices in the pod's status, by resource and id.

        A device that is not listed any more is Healthy there.
        """
        with self._host.changed:
            return {
                resource: {id_: self._health(resource, id_) for id_ in sorted(grant.ids)}
                for resource, grant in self.records.of_container(pod, container).items()
            }

    def _health(self, resource: str, id_: str) -> str:
        device = self.devices.get(resource, {}).get(id_)
        return HEALTHY if device is None or device.health == HEALTHY else UNHEALTHY

    def check_alive(self) -> None:
        """Raise ``KubeletStopped`` if the process died while it was waiting for a plugin."""
        if not self.alive:
            raise KubeletStopped("the kubelet was stopped meanwhile")
