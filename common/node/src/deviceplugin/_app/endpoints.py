"""The endpoint of each resource: the device-plugin protocol of a process."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from deviceplugin._app.threads import Sleeper, Sleepers, join
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.retention import unhealthy
from deviceplugin._http.devices_report import NOT_ADVERTISED
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.endpoint import Endpoint
from deviceplugin._kubelet.endpoint_status import tell_withdrawn
from deviceplugin._kubelet.offer import Offer
from deviceplugin._kubelet.server import ResourceServer
from deviceplugin._kubelet.sockets import SocketNews
from deviceplugin._registration.by_kubelet_socket import KubeletSocket, Registrar
from deviceplugin._registration.by_plugin_watcher import Registry
from deviceplugin._telemetry.metrics import Metrics

_HANDOVER_TIMEOUT: Final = 15.0
"""Seconds to wait for a withdrawn resource to end before it may come back; ``stop`` can take 10."""


def registrars(settings: Settings, metrics: Metrics) -> Sequence[Registrar]:
    """Return the ways to register that ``settings`` allow, the preferred one first."""
    kubelet = KubeletSocket(settings.plugin_dir, metrics)
    registry = Registry(settings.registry_dir, metrics)
    ways: dict[str, Sequence[Registrar]] = {
        "self": (kubelet,),
        "watcher": (registry,),
        "auto": (kubelet, registry),
    }
    return ways[settings.registration]


class Endpoints:
    """The endpoints that serve resources to the kubelet. Thread-safe.

    ``guarded`` returns a function that calls another one, and ends the process if that raises.
    """

    def __init__(
        self,
        registrars: Sequence[Registrar],
        sockets: SocketNews,
        tracker: HoldingsTracker,
        metrics: Metrics,
        *,
        ownership: Ownership,
        guarded: Callable[[str, Callable[[], None]], Callable[[], None]],
    ) -> None:
        self._sleepers = Sleepers(guarded)
        self._registrars = registrars
        self._sockets = sockets
        self._tracker = tracker
        self._ownership = ownership
        self._metrics = metrics
        self._lock = threading.Lock()
        self._endpoints: dict[str, tuple[Endpoint, Sleeper]] = {}
        self._stopping = False

    def running(self) -> list[Endpoint]:
        with self._lock:
            return [endpoint for endpoint, _ in self._endpoints.values()]

    def is_connected(self) -> bool | None:
        """Return whether the kubelet watches any resource; None if it need not, as with DRA."""
        running = self.running()
        if any(each.is_registered for each in running):
            return True
        return False if any(each.problem for each in running) else None

    def problem(self, resource: str) -> str:
        """Return why the kubelet is not watching ``resource``; empty if it is, or need not."""
        endpoint = self._find(resource)
        return NOT_ADVERTISED if endpoint is None else endpoint.problem

    def is_registered(self, resource: str) -> bool:
        endpoint = self._find(resource)
        return endpoint is not None and endpoint.is_registered

    def up_to_date(self, resource: str) -> bool:
        endpoint = self._find(resource)
        return endpoint is not None and endpoint.up_to_date

    def shared(self) -> set[str]:
        """Return the resources that another process serves, too."""
        shared = {one.resource.name for one in self.running() if one.sockets.others()}
        return shared | {name for name, server in self.servers().items() if server.is_replaced}

    def _find(self, resource: str) -> Endpoint | None:
        with self._lock:
            running = self._endpoints.get(resource)
        return None if running is None else running[0]

    def servers(self) -> Mapping[str, ResourceServer]:
        return {each.resource.name: server for each in self.running() if (server := each.server)}

    # A front of the catalogue.

    def advertise(self, resource: Resource) -> None:
        with self._lock:
            if self._stopping or resource.name in self._endpoints:
                return
            endpoint = Endpoint(
                Offer(resource, self._ownership),
                admission=self._tracker,
                registrars=self._registrars,
                sockets=self._sockets,
                metrics=self._metrics,
            )
            sleeper = self._sleepers.start(f"endpoint-{resource.name}", endpoint.steps())
            endpoint.on_poke(sleeper.wake)
            self._endpoints[resource.name] = (endpoint, sleeper)
        self._tracker.poll_now()

    def withdraw(self, resource: Resource) -> None:
        with self._lock:
            running = self._endpoints.pop(resource.name, None)
        if running is not None:
            endpoint, sleeper = running
            endpoint.stop()
            join([sleeper], _HANDOVER_TIMEOUT)
            tell_withdrawn(resource.name, self._metrics)

    # Their thread.

    def run(self, timeout: float) -> None:
        """Keep all resources registered until stopped.

        Then withdraw everything, and wait at most ``timeout`` seconds. An endpoint has a thread of
        its own only while it registers, or while its plugin keeps it waiting.
        """
        self._sleepers.run()
        with self._lock:
            endpoints, self._endpoints = list(self._endpoints.values()), {}
        for endpoint, _ in endpoints:
            if endpoint.resource.plugin.needs_process:
                devices = endpoint.resource.devices.values()
                endpoint.resource.publish(unhealthy(devices, "its plugin has stopped"))
            endpoint.resource.close()
            endpoint.stop()
        join([sleeper for _, sleeper in endpoints], timeout)

    def stop(self) -> None:
        """Make ``run`` withdraw everything, and advertise nothing more."""
        self._stopping = True
        self._sleepers.stop()
