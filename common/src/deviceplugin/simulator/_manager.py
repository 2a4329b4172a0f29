"""The device manager: what the kubelet believes about every resource."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deviceplugin.simulator._clients import PluginClient
from deviceplugin.v1beta1 import HEALTHY
from deviceplugin.v1beta1 import deviceplugin_pb2 as pb


@dataclass
class Endpoint:
    """The plugin that a resource's calls go to."""

    client: PluginClient
    options: pb.DevicePluginOptions
    stopped_at: float | None = None
    """When its connection was lost, by the kubelet's clock."""


class DeviceManager:
    """Devices and endpoints by resource.

    ``changed`` guards everything and is notified at every change of state.
    """

    def __init__(self, changed: threading.Condition, clock: Callable[[], float]) -> None:
        self._changed = changed
        self._clock = clock
        self.endpoints: dict[str, Endpoint] = {}
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self.devices: dict[str, dict[str, pb.Device]] = {}
        """Each resource's devices as last listed, by id; the last of equal ids."""

    def connected(self, client: PluginClient, options: pb.DevicePluginOptions) -> None:
        """Send the calls of the client's resource to it from now on."""
        with self._changed:
            self.endpoints[client.resource] = Endpoint(client, options)
            self._changed.notify_all()

    def listed(self, resource: str, devices: Iterable[pb.Device]) -> None:
        """Replace everything known about the resource's devices."""
        with self._changed:
            healthy = self.healthy[resource] = set()
            unhealthy = self.unhealthy[resource] = set()
            known = self.devices[resource] = {}
            for device in devices:
                known[device.ID] = device
                (healthy if device.health == HEALTHY else unhealthy).add(device.ID)
            self._changed.notify_all()

    def disconnected(self, resource: str) -> None:
        """Take all devices of the resource for unhealthy."""
        with self._changed:
            endpoint = self.endpoints.get(resource)
            if endpoint is not None:
                self.unhealthy.setdefault(resource, set()).update(self.healthy.pop(resource, set()))
                self.healthy[resource] = set()
                endpoint.stopped_at = self._clock()
            self._changed.notify_all()
