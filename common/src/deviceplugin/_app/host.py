"""Everything that runs in a plugin's process, from start to stop."""

import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deviceplugin._app.actors import Group
from deviceplugin._app.served_resources import Endpoints, registrars
from deviceplugin._app.status import Status
from deviceplugin._attribution.checkpoint import Checkpoint
from deviceplugin._attribution.podresources import PodResources
from deviceplugin._attribution.schedule import AttributionTiming
from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.loop import Discovery
from deviceplugin._discovery.plugin_check import check_plugins
from deviceplugin._discovery.retention import Retention
from deviceplugin._discovery.timing import DiscoveryTiming
from deviceplugin._http import server as _server
from deviceplugin._inventory.published import Resource
from deviceplugin._kubelet.liveness import Liveness
from deviceplugin._kubelet.server import check_directory
from deviceplugin._kubelet.sockets import SocketNews
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin._telemetry.plugin_metrics import Additions
from deviceplugin.plugin import Plugin

_STOP_TIMEOUT: Final = 3.0
"""Seconds for everything to stop. Kubernetes gives a pod more time, and people expect less."""
_DISCOVERIES: Final = 3
"""Least number of discoveries within the deadline, so that a single failure has no effect."""


class Host:
    """Runs plugins: discovers, serves, registers and reports, until stopped.

    Raises:
        ConfigError: A setting cannot be used. Nothing has been served.
    """

    def __init__(self, plugins: Sequence[Plugin], settings: Settings) -> None:
        check_directory("plugin-dir", settings.plugin_dir)
        check_directory("registry-dir", settings.registry_dir)
        check_plugins(plugins)
        self._metrics = Metrics()
        self._watcher = FileWatcher(settings.poll_interval.total_seconds())
        self._registrars = registrars(settings, self._metrics)
        sockets = SocketNews(self._watcher, [each.directory for each in self._registrars])
        self._tracker = _tracker(settings, self._resources, self._metrics)
        self._group = Group()
        self._endpoints = Endpoints(
            self._registrars, sockets, self._tracker, self._metrics, thread=self._group.thread
        )
        timing = _timing(settings)
        self._discoveries = [
            Discovery(
                plugin,
                name=name,
                timing=timing,
                catalogue=self._endpoints,
                ask=self._tracker.ask,
                watcher=self._watcher,
                metrics=self._metrics,
            )
            for plugin, name in zip(plugins, _names(plugins), strict=True)
        ]
        self._liveness = Liveness(self._endpoints.servers, self._metrics.events)
        self._status = Status(
            settings,
            discoveries=self._discoveries,
            endpoints=self._endpoints,
            tracker=self._tracker,
            liveness=self._liveness,
        )
        self._fill_metrics()
        self._add_actors(settings.http_address)

    def _resources(self) -> Mapping[str, Resource]:
        return self._endpoints.resources()

    def _fill_metrics(self) -> None:
        self._metrics.count_devices(self._status.count_devices)
        self._metrics.attribute(self._status.attribute)
        self._metrics.add(
            lambda taken: Additions(
                lambda: {each.name: each.plugin for each in self._discoveries},
                taken,
                self._metrics.count_skipped_samples,
            )
        )

    def _add_actors(self, http_address: str) -> None:
        group = self._group
        group.add("file-watcher", self._watcher.run, self._watcher.stop)
        if http_address != "off":
            http = _server.Server(http_address, self._status, self._metrics)
            self.http_port = http.port
            group.add("http", http.run, http.stop)
            group.add("liveness", self._liveness.run, self._liveness.stop)
        for discovery in self._discoveries:
            group.add(f"discovery-{discovery.name}", discovery.run, discovery.stop)
        group.add("holders", self._tracker.run, self._tracker.stop)
        # It is added last, so that it stops first and the kubelet notices at once.
        group.add("endpoints", lambda: self._endpoints.run(_STOP_TIMEOUT), self._endpoints.stop)

    def run(self) -> None:
        """Run until ``stop`` is called, then withdraw everything from the kubelet."""
        try:
            self._group.run(_STOP_TIMEOUT)
        finally:
            self._watcher.close()

    def stop(self) -> None:
        """Make ``run`` return, within 5 s."""
        self._group.stop()

    def watch(self, path: Path, callback: Callable[[str | None], None]) -> Callable[[], None]:
        """Call ``callback`` after each change of ``path``; return a function that ends this."""
        return self._watcher.watch(path, callback)

    def replace(self, plugins: Sequence[Plugin]) -> None:
        """Replace each plugin by the one at its place in ``plugins``.

        Resources that both have stay registered.

        Raises:
            ConfigError: One of them cannot be used. The old plugins continue.
        """
        check_plugins(plugins)
        for discovery, plugin in zip(self._discoveries, plugins, strict=True):
            discovery.replace(plugin)
        for endpoint in self._endpoints.running():
            endpoint.recheck()

    # The same as over HTTP, for tests.

    def alive(self) -> str:
        """Return why the process should be restarted, or an empty string."""
        return self._status.alive()

    def ready(self) -> str:
        """Return why devices cannot be allocated from here now, or an empty string."""
        return self._status.ready()

    def troubles(self) -> list[str]:
        """Return a message for everything that keeps devices from being advertised now."""
        return self._status.troubles()

    def inventory(self) -> Mapping[str, Any]:
        """Return all resources and their devices, for JSON."""
        return self._status.inventory()


def _tracker(
    settings: Settings, resources: Callable[[], Mapping[str, Resource]], metrics: Metrics
) -> HoldingsTracker:
    return HoldingsTracker(
        PodResources(settings.pod_resources_socket, metrics.count_pod_resources),
        AttributionTiming.of(settings.pod_resources_interval.total_seconds()),
        resources=resources,
        metrics=metrics,
        exposed=settings.http_address != "off",
        own_pod=socket.gethostname(),  # unless it is on the host's network
        checkpoint=Checkpoint(settings.plugin_dir),
    )


def _timing(settings: Settings) -> DiscoveryTiming:
    deadline = settings.discovery_deadline.total_seconds()
    return DiscoveryTiming(
        interval=min(settings.discovery_interval.total_seconds(), deadline / _DISCOVERIES),
        deadline=deadline,
        retention=Retention(
            grace=settings.vanished_grace.total_seconds(),
            unknown=settings.vanished_retention.total_seconds(),
        ),
    )


def _names(plugins: Sequence[Plugin]) -> list[str]:
    """Return the names of ``plugins`` for logs and metrics: their classes, numbered if needed."""
    seen: Counter[str] = Counter()
    names = []
    for plugin in plugins:
        name = type(plugin).__name__
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names
