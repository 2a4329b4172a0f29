"""Everything that runs in a plugin's process, from start to stop."""

import logging
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from deviceplugin._app.actors import Group, join
from deviceplugin._attribution.holders import Holders
from deviceplugin._attribution.podresources import PodResources
from deviceplugin._attribution.schedule import Pace
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.found import NOT_RETURNING, check_plugins, counts
from deviceplugin._discovery.loop import Discovery
from deviceplugin._discovery.retention import Retention, unhealthy
from deviceplugin._discovery.timing import DiscoveryTiming
from deviceplugin._http import server as _server
from deviceplugin._http.report import NOT_ADVERTISED, Report, attribution
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.endpoint import Endpoint
from deviceplugin._kubelet.liveness import Pulse
from deviceplugin._kubelet.server import Server, check_directory
from deviceplugin._kubelet.sockets import SocketNews
from deviceplugin._platform.file_watcher import Poller
from deviceplugin._registration.kubelet_socket import Kubelet, Registrar
from deviceplugin._registration.plugin_watcher import Registry
from deviceplugin._telemetry.metrics import Attribution, Count, Metrics
from deviceplugin._telemetry.plugin_metrics import Additions
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)

_STOP_TIMEOUT: Final = 3.0
"""Seconds for everything to stop; a DaemonSet's pods are given more, people expect less."""
_LOOKS: Final = 3
"""Discoveries within the deadline, at the least: a single failure disturbs nobody."""
_HANDOVER_TIMEOUT: Final = 15.0
"""Seconds for a withdrawn resource to end before it may come back; its ``stop`` may take 10."""


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


class Host:
    """Runs plugins: discovers, serves, registers and reports, until stopped.

    Raises:
        ConfigError: A setting cannot be used; nothing has been served then.
    """

    def __init__(self, plugins: Sequence[Plugin], settings: Settings) -> None:
        check_directory("plugin-dir", settings.plugin_dir)
        check_directory("registry-dir", settings.registry_dir)
        check_plugins(plugins)
        self._settings = settings
        self._metrics = Metrics()
        self._poller = Poller(settings.poll_interval.total_seconds())
        self._registrars = registrars(settings, self._metrics)
        self._sockets = SocketNews(self._poller, [each.directory for each in self._registrars])
        self._lock = threading.RLock()
        self._resources: dict[str, Resource] = {}
        self._endpoints: dict[str, tuple[Endpoint, threading.Thread]] = {}
        self._stopping = threading.Event()
        self._holders = Holders(
            PodResources(settings.pod_resources_socket, self._metrics.count_pod_resources),
            Pace.of(settings.pod_resources_interval.total_seconds()),
            resources=self._known,
            metrics=self._metrics,
            told=settings.http_address != "off",
            own_pod=socket.gethostname(),  # unless it is on the host's network
        )
        deadline = settings.discovery_deadline.total_seconds()
        timing = DiscoveryTiming(
            interval=min(settings.discovery_interval.total_seconds(), deadline / _LOOKS),
            deadline=deadline,
            retention=Retention(
                grace=settings.vanished_grace.total_seconds(),
                unknown=settings.vanished_retention.total_seconds(),
            ),
        )
        self._discoveries = [
            Discovery(
                plugin,
                name=name,
                timing=timing,
                catalogue=self,
                ask=self._holders.ask,
                poller=self._poller,
                metrics=self._metrics,
            )
            for plugin, name in zip(plugins, _names(plugins), strict=True)
        ]
        self._metrics.count_devices(self._count_devices)
        self._metrics.attribute(self._attribute)
        self._metrics.add(
            lambda taken: Additions(
                lambda: {each.name: each.plugin for each in self._discoveries},
                taken,
                self._metrics.count_skipped_samples,
            )
        )
        self._pulse = Pulse(self._served, self._metrics.events)
        self._group = Group()
        self._group.add("poller", self._poller.run, self._poller.stop)
        if settings.http_address != "off":
            http = _server.Server(settings.http_address, self, self._metrics)
            self.http_port = http.port
            self._group.add("http", http.run, http.stop)
            self._group.add("pulse", self._pulse.run, self._pulse.stop)
        for discovery in self._discoveries:
            self._group.add(f"discovery-{discovery.name}", discovery.run, discovery.stop)
        self._group.add("holders", self._holders.run, self._holders.stop)
        # Last, so that it is the first to be stopped: the kubelet is told at once.
        self._group.add("endpoints", self._withdraw_all, self._stopping.set)

    def run(self) -> None:
        """Run until ``stop`` is called, then withdraw everything from the kubelet."""
        try:
            self._group.run(_STOP_TIMEOUT)
        finally:
            self._poller.close()

    def stop(self) -> None:
        """Let ``run`` return, within 5 s."""
        self._group.stop()

    def replace(self, plugins: Sequence[Plugin]) -> None:
        """Go on with ``plugins`` in place of those given at first, one for one.

        Resources that both have stay registered all the while.

        Raises:
            ConfigError: One of them cannot be used; the old ones go on.
        """
        check_plugins(plugins)
        for discovery, plugin in zip(self._discoveries, plugins, strict=True):
            discovery.replace(plugin)
        with self._lock:
            endpoints = [endpoint for endpoint, _ in self._endpoints.values()]
        for endpoint in endpoints:
            endpoint.look_again()

    # The catalogue that discoveries fill.

    def claim(self, name: str, plugin: Plugin) -> Resource | None:
        """Return the resource for ``plugin``, or None if another plugin has it."""
        with self._lock:
            if name in self._resources:
                return None
            resource = self._resources[name] = Resource(name, plugin, self._holders.guard)
            return resource

    def advertise(self, resource: Resource) -> None:
        """Serve ``resource`` from now on, if that is not done yet."""
        with self._lock:
            if self._stopping.is_set() or resource.name in self._endpoints:
                return
            endpoint = Endpoint(
                resource,
                registrars=self._registrars,
                sockets=self._sockets,
                metrics=self._metrics,
            )
            thread = threading.Thread(
                target=endpoint.run, name=f"endpoint-{resource.name}", daemon=True
            )
            self._endpoints[resource.name] = (endpoint, thread)
            thread.start()
        self._holders.look_again()

    def withdraw(self, resource: Resource) -> None:
        """Serve ``resource`` no longer; its name may be claimed again afterwards."""
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

    def _withdraw_all(self) -> None:
        self._stopping.wait()
        with self._lock:
            endpoints, self._endpoints = list(self._endpoints.values()), {}
        for endpoint, _ in endpoints:
            if endpoint.resource.plugin.needs_process:
                devices = endpoint.resource.devices.values()
                endpoint.resource.publish(unhealthy(devices, "its plugin has stopped"))
            endpoint.resource.close()
            endpoint.stop()
        join([thread for _, thread in endpoints], _STOP_TIMEOUT)

    # What is told over HTTP.

    def _known(self) -> dict[str, Resource]:
        with self._lock:
            return dict(self._resources)

    def _served(self) -> dict[str, Server]:
        with self._lock:
            endpoints = [endpoint for endpoint, _ in self._endpoints.values()]
        return {each.resource.name: server for each in endpoints if (server := each.server)}

    def _count_devices(self) -> list[Count]:
        return [(name, *counts(resource.devices)) for name, resource in self._known().items()]

    def _attribute(self) -> list[Attribution]:
        holdings = self._holders.current()
        return [attribution(resource, holdings) for resource in self._known().values()]

    def alive(self) -> str:
        """Return an empty text, or why the process should be restarted."""
        hanging = [discovery.name for discovery in self._discoveries if discovery.hanging]
        if hanging:
            return f"{NOT_RETURNING}: {', '.join(hanging)}"
        directory = self._settings.plugin_dir
        with suppress(OSError):  # not there, or not for us to see: a restart mends neither
            if not directory.stat().st_nlink:
                # As a mount in a container, it stays what it was: only a new one sees the new.
                return f"{directory} has been deleted under its mount"
        return self._pulse.problem()

    def ready(self) -> str:
        """Return an empty text, or why devices cannot be allocated from here now."""
        if waiting := [d.name for d in self._discoveries if d.waiting]:
            return f"not known yet what pods hold: {', '.join(waiting)}"
        if pending := [d for d in self._discoveries if not d.completed]:
            return _without_success("yet", pending)
        if overdue := [d for d in self._discoveries if d.overdue]:
            deadline = self._settings.discovery_deadline.total_seconds()
            return _without_success(f"for {deadline:g} s", overdue)
        return "\n".join(self._unregistered())

    def troubles(self) -> list[str]:
        """Return everything that keeps devices from being advertised now, a text for each."""
        own = [text for discovery in self._discoveries for text in discovery.troubles()]
        return [*own, *self._unregistered()]

    def _unregistered(self) -> list[str]:
        with self._lock:
            endpoints = [endpoint for endpoint, _ in self._endpoints.values()]
        return [
            f"{endpoint.resource.name}: {endpoint.problem}"
            for endpoint in endpoints
            if endpoint.problem
        ]

    def reports(self) -> list[Report]:
        """Return all resources as they are now, by name."""
        holdings = self._holders.current()
        with self._lock:
            resources = sorted(self._resources.values(), key=lambda resource: resource.name)
            problems = {name: endpoint.problem for name, (endpoint, _) in self._endpoints.items()}
        return [
            Report.of(resource, problems.get(resource.name, NOT_ADVERTISED), holdings)
            for resource in resources
        ]

    def inventory(self) -> Mapping[str, Any]:
        """Return all resources and their devices, ready for JSON."""
        return {
            "resources": [
                {**report.as_json(), "devices": list(report.devices_as_json())}
                for report in self.reports()
            ]
        }


def _without_success(since: str, discoveries: Iterable[Discovery]) -> str:
    return "\n".join(
        f"no discovery has succeeded {since}: {d.name}{d.failure and f': {d.failure}'}"
        for d in discoveries
    )


def _names(plugins: Sequence[Plugin]) -> list[str]:
    """Return the names of ``plugins`` in logs and metrics: their classes, numbered if need be."""
    seen: Counter[str] = Counter()
    names = []
    for plugin in plugins:
        name = type(plugin).__name__
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names
