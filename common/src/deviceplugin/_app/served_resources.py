"""The resources of a process, and the endpoint of each."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from deviceplugin._app.actors import join
from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.retention import unhealthy
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.endpoint import Endpoint
from deviceplugin._kubelet.server import Server
from deviceplugin._kubelet.sockets import SocketNews
from deviceplugin._registration.kubelet_socket import Kubelet, Registrar
from deviceplugin._registration.plugin_watcher import Registry
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)

_HANDOVER_TIMEOUT: Final = 15.0
"""Seconds to wait for a withdrawn resource to end before it may come back; ``stop`` can take 10."""


def registrars(settings: Settings, metrics: Metrics) -> Sequence[Registrar]:
    """Return the ways to register that ``settings`` allow, the preferred one first."""
    kubelet = Kubelet(settings.plugin_dir, metrics)
    registry = Registry(settings.registry_dir, metrics)
    ways: dict[str, Sequence[Registrar]] = {
        "self": (kubelet,),
        "watcher": (registry,),
        "auto": (kubelet, registry),
    }
    return ways[settings.registration]


class Endpoints:
    """The catalogue that discoveries fill, and the endpoints that serve it. Thread-safe.

    ``thread`` creates the threads of endpoints. If one of them fails, the process must end.
    """

    def __init__(
        self,
        registrars: Sequence[Registrar],
        sockets: SocketNews,
        tracker: HoldingsTracker,
        metrics: Metrics,
        *,
        thread: Callable[[str, Callable[[], None]], threading.Thread],
    ) -> None:
        self._thread = thread
        self._registrars = registrars
        self._sockets = sockets
        self._tracker = tracker
        self._metrics = metrics
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._endpoints: dict[str, tuple[Endpoint, threading.Thread]] = {}
        self._stopping = threading.Event()

    def resources(self) -> dict[str, Resource]:
        """Return all resources that have been claimed, by name."""
        with self._lock:
            return dict(self._resources)

    def running(self) -> list[Endpoint]:
        """Return the endpoints of all advertised resources."""
        with self._lock:
            return [endpoint for endpoint, _ in self._endpoints.values()]

    def by_resource(self) -> list[tuple[Resource, Endpoint | None]]:
        """Return all resources by name, each with its endpoint if it is advertised."""
        with self._lock:
            return [
                (resource, self._endpoints[name][0] if name in self._endpoints else None)
                for name, resource in sorted(self._resources.items())
            ]

    def servers(self) -> Mapping[str, Server]:
        """Return the servers that run now, by the name of the resource."""
        return {each.resource.name: server for each in self.running() if (server := each.server)}

    # The catalogue.

    def claim(self, name: str, plugin: Plugin) -> Resource | None:
        """Return the resource for ``plugin``, or None if another plugin has it."""
        with self._lock:
            if name in self._resources:
                return None
            resource = self._resources[name] = Resource(name, plugin)
            return resource

    def advertise(self, resource: Resource) -> None:
        """Serve ``resource``, if it is not served yet."""
        with self._lock:
            if self._stopping.is_set() or resource.name in self._endpoints:
                return
            endpoint = Endpoint(
                resource,
                admission=self._tracker,
                registrars=self._registrars,
                sockets=self._sockets,
                metrics=self._metrics,
            )
            thread = self._thread(f"endpoint-{resource.name}", endpoint.run)
            self._endpoints[resource.name] = (endpoint, thread)
            thread.start()
        self._tracker.poll_now()

    def withdraw(self, resource: Resource) -> None:
        """Stop serving ``resource``; its name may be claimed again afterwards."""
        with self._lock:
            running = self._endpoints.pop(resource.name, None)
        if running is not None:
            endpoint, thread = running
            endpoint.stop()
            join([thread], _HANDOVER_TIMEOUT)
            log.info("resource withdrawn", extra={"resource": resource.name})
            self._metrics.events.add("resource withdrawn", resource=resource.name)
        with self._lock:
            self._resources.pop(resource.name, None)

    # Their thread.

    def run(self, timeout: float) -> None:
        """Wait until stopped; then withdraw everything, and wait at most ``timeout`` seconds.

        The endpoints have their own threads.
        """
        self._stopping.wait()
        with self._lock:
            endpoints, self._endpoints = list(self._endpoints.values()), {}
        for endpoint, _ in endpoints:
            if endpoint.resource.plugin.needs_process:
                devices = endpoint.resource.devices.values()
                endpoint.resource.publish(unhealthy(devices, "its plugin has stopped"))
            endpoint.resource.close()
            endpoint.stop()
        join([thread for _, thread in endpoints], timeout)

    def stop(self) -> None:
        """Make ``run`` withdraw everything, and advertise nothing more."""
        self._stopping.set()
