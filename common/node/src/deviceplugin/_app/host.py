"""Everything that runs in a plugin's process, from start to stop."""

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deviceplugin._app.auto_repair import AutoRepair
from deviceplugin._app.dra_settings import DraSettings
from deviceplugin._app.endpoints import Endpoints, registrars
from deviceplugin._app.hold_folder import FOLDER, instance
from deviceplugin._app.hold_requests import Requests
from deviceplugin._app.hold_socket import HoldSocket
from deviceplugin._app.holding import Holding
from deviceplugin._app.host_directories import HostDirectories
from deviceplugin._app.probes import Status, offered
from deviceplugin._app.protocol_switch import ProtocolSwitch
from deviceplugin._app.repairs import Repairs
from deviceplugin._app.threads import ThreadGroup
from deviceplugin._attribution.checkpoint import Checkpoint
from deviceplugin._attribution.ownership import Mode, Ownership
from deviceplugin._attribution.podresources import PodResources
from deviceplugin._attribution.poll_schedule import AttributionTiming
from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.loop import Discovery
from deviceplugin._discovery.plugin_check import check_plugins
from deviceplugin._discovery.resources import Surroundings
from deviceplugin._discovery.retention import DiscoveryTiming
from deviceplugin._http.listener import Listener, certificate
from deviceplugin._inventory.published import Catalogue
from deviceplugin._kubelet.liveness import Liveness
from deviceplugin._kubelet.server import check_directory
from deviceplugin._kubelet.sockets import SocketNews
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import ConfigError
from deviceplugin.plugin import Holder, Plugin, overrides

if TYPE_CHECKING:
    from deviceplugin._app.dra import Dra
    from deviceplugin._app.made_parts import MadeParts
    from deviceplugin._http.server import HttpServer

_STOP_TIMEOUT: Final = 3.0
"""Seconds for everything to stop. Kubernetes gives a pod more time, and people expect less."""
_STATIC_CDI: Final = Path("/etc/cdi")


class Host:
    """Runs plugins: discovers, serves, registers and reports, until stopped.

    ConfigError if a setting cannot be used. Then nothing has been served.
    """

    _parts: "MadeParts | None" = None

    def __init__(self, plugins: Sequence[Plugin], settings: Settings) -> None:
        check_directory("plugin-dir", settings.plugin_dir)
        check_directory("registry-dir", settings.registry_dir)
        check_plugins(plugins)
        names = DraSettings.needed(settings, plugins)
        self._settings = settings
        self._metrics = Metrics()
        self._watcher = FileWatcher(settings.poll_interval.total_seconds())
        self.watch = self._watcher.watch
        self._registrars = registrars(settings, self._metrics)
        sockets = SocketNews(self._watcher, [each.directory for each in self._registrars])
        self._catalogue = Catalogue()
        timing = AttributionTiming.of(settings.pod_resources_interval.total_seconds())
        mode: Mode = "device-plugin" if names is None else "dra"
        self._ownership = Ownership(mode, timing=timing, resources=self._catalogue.resources)
        self._pod_resources = PodResources(
            settings.pod_resources_socket, self._metrics.count_pod_resources
        )
        self._tracker = HoldingsTracker(
            self._pod_resources,
            timing,
            resources=self._catalogue.resources,
            metrics=self._metrics,
            ownership=self._ownership,
            # DRA must know who holds devices before it is switched to.
            exposed=settings.http_address != "off" or bool(settings.node_name),
            own_pod=socket.gethostname(),  # unless it is on the host's network
            checkpoint=Checkpoint(settings.plugin_dir),
        )
        self._group = ThreadGroup()
        self._endpoints = Endpoints(
            self._registrars,
            sockets,
            self._tracker,
            self._metrics,
            ownership=self._ownership,
            guarded=self._group.guarded,
        )
        self._catalogue.attach(self._endpoints)
        self._directories = HostDirectories(
            settings, is_connected=self._endpoints.is_connected, metrics=self._metrics
        )
        self._holding = self._make_holding(plugins)
        self._discoveries = self._make_discoveries(plugins)
        self._switch = self._make_switch(names)
        self.offer_by = self._switch.to
        self._liveness = Liveness(self._endpoints.servers, self._metrics.events)
        self._status = Status(
            settings=settings,
            discoveries=self._discoveries,
            catalogue=self._catalogue,
            endpoints=self._endpoints,
            tracker=self._tracker,
            liveness=self._liveness,
            switch=self._switch,
            directories=self._directories,
            holding=self._holding,
        )
        self._show(self._status)
        self._add_actors(settings.http_address)

    def _make_holding(self, plugins: Sequence[Plugin]) -> Holding:
        settings = self._settings
        directories = (settings.plugin_dir, settings.registry_dir)
        directory = next((one for one in directories if one.is_dir()), settings.plugin_dir)
        name = instance(settings.instance, socket.gethostname(), type(plugins[0]).__name__)
        holding = Holding(
            folder=directory / FOLDER / name,
            ownership=self._ownership,
            resources=self._catalogue.resources,
            metrics=self._metrics,
        )
        requests = Requests(holding)
        self.ask_hold = requests.answer  # as over the socket, for tests
        causes, tries = settings.auto_repair, settings.repair_tries
        holding.repair = Repairs(holding, requests, tries).begin
        if causes:
            holding.wish = AutoRepair(holding, requests, causes, tries).hold
        holding.socket = HoldSocket(self.ask_hold)
        holding.open()
        return holding

    def _make_discoveries(self, plugins: Sequence[Plugin]) -> list[Discovery]:
        around = Surroundings(
            timing=DiscoveryTiming.of(self._settings),
            catalogue=self._catalogue,
            ask=self._tracker.ask,
            ownership=self._ownership,
            watcher=self._watcher,
            metrics=self._metrics,
            lost=self._lost,
            hold=self._holding.holds.apply,
        )
        self._introduce(plugins)
        named = zip(plugins, _names(plugins), strict=True)
        discoveries = [Discovery(plugin, name, around) for plugin, name in named]
        for each in discoveries:
            self._directories.subscribe(each.rediscover)
        self._holding.discoveries = discoveries
        self._holding.equip_all()
        return discoveries

    def _introduce(self, plugins: Sequence[Plugin]) -> None:
        for plugin in plugins:
            if self._parts is not None:
                self._parts.introduce(plugin)
            if overrides(plugin, "usage"):
                plugin.holders = self._holders

    def _holders(self) -> Iterable[Holder]:
        return ((holdings := self._tracker.current()) and holdings.holds) or ()

    def _lost(self, watched: Sequence[Path]) -> str:
        """Return why what is discovered at ``watched`` cannot be allocated now; empty if it can."""
        self._directories.check()  # a wait in it counts as one for the discovery
        # DRA has a taint for it, because pods lose an unhealthy device with on-unhealthy.
        if self._ownership.mode == "dra":
            return ""
        return self._directories.problem([*watched, self._settings.cdi_dir, _STATIC_CDI])

    def _make_switch(self, names: DraSettings | None) -> ProtocolSwitch:
        try:
            dra = None if names is None else self._make_dra(names)
        except ConfigError:
            self._watcher.close()
            raise
        return ProtocolSwitch(
            target=self._settings.protocol,
            dra=dra,
            make=self._make_dra,
            ownership=self._ownership,
            catalogue=self._catalogue,
            up_to_date=self._endpoints.up_to_date,
            shared=self._endpoints.shared,
            allocatable=self._pod_resources.allocatable,
            discovered=lambda: all(d.completed or d.failure for d in self._discoveries),
            poll_soon=self._tracker.poll_now,
            events=self._metrics.events,
        )

    def _make_dra(self, names: DraSettings | None = None) -> "Dra":
        from deviceplugin._app.dra import Dra  # its client of the API server takes memory
        from deviceplugin._app.made_parts import MadeParts
        from deviceplugin._dra.claims.parts import Makers

        self._parts = self._parts or MadeParts(self._catalogue.resources, self._discoveries)
        dra = Dra(
            self._settings,
            names or DraSettings.of(self._settings, [each.plugin for each in self._discoveries]),
            ownership=self._ownership,
            resources=self._catalogue.resources,
            discovered=lambda: all(each.completed for each in self._discoveries),
            may_offer=lambda: self._switch.may_offer,
            watcher=self._watcher,
            metrics=self._metrics,
            thread=self._group.thread,
            holdings=self._tracker.current,
            directories=self._directories,
            makers=Makers(self._parts.set, self._parts.maker),
        )
        self._tracker.places = dra.places
        return dra

    def _show(self, status: Status) -> None:
        # The same as over HTTP, for tests.
        self.alive, self.ready = status.alive, status.ready
        self.troubles, self.inventory = status.troubles, status.inventory
        self.fixed_files = status.fixed_files  # whoever reads the files sets them
        self._metrics.devices = status.count_devices
        self._metrics.attribution = status.attribute
        resources = self._catalogue.resources
        self._metrics.offered = lambda: offered(self._ownership, resources().values())
        self._metrics.plugins = lambda: {each.name: each.plugin for each in self._discoveries}

    def _add_actors(self, http_address: str) -> None:
        group = self._group
        group.add("file-watcher", self._watcher.run, self._watcher.stop)
        self._certificate = certificate(self._settings)
        if http_address != "off":
            http = Listener(http_address, self._http_server, started=lambda: not self.ready())
            self.http_port = http.port
            group.add("http", http.run, http.stop)
            group.add("liveness", self._liveness.run, self._liveness.stop)
        for discovery in self._discoveries:
            group.add(f"discovery-{discovery.name}", discovery.run, discovery.stop)
        group.add("holds", self._holding.run, self._holding.stop)
        group.add("holders", self._tracker.run, self._tracker.stop)
        group.add("protocol-switch", self._switch.run, self._switch.stop)
        # It is added last, so that it stops first and the kubelet notices at once.
        group.add("endpoints", lambda: self._endpoints.run(_STOP_TIMEOUT), self._endpoints.stop)

    def _http_server(self, listener: socket.socket) -> "HttpServer":
        from deviceplugin._http.access import Access  # their libraries would delay the first list
        from deviceplugin._http.server import HttpServer

        return HttpServer(
            listener,
            self._status,
            self._metrics,
            access=Access(self._settings.http_token_file, self._settings.http_hosts),
            certificate=self._certificate,
            probed=self._directories.probed,
        )

    def run(self) -> None:
        """Run until ``stop`` is called, then withdraw everything from the kubelet."""
        self._directories.check()  # to know how they are at the start
        try:
            self._group.run(_STOP_TIMEOUT)
        finally:
            self._watcher.close()

    def stop(self) -> None:
        """Make ``run`` return, within 5 s."""
        self._group.stop()

    def replace(self, plugins: Sequence[Plugin]) -> None:
        """Replace each plugin by the one at its place in ``plugins``.

        Resources that both have stay registered. ConfigError if one cannot be used. Then the old
        plugins continue.
        """
        check_plugins(plugins)
        self._introduce(plugins)
        for discovery, plugin in zip(self._discoveries, plugins, strict=True):
            self._holding.equip(plugin, discovery.name)
            discovery.replace(plugin)
        if self._parts is not None:
            self._parts.set()
        for endpoint in self._endpoints.running():
            endpoint.poke()

    def check_protocol(self, protocol: Mode) -> None:
        """Raise ConfigError if devices cannot be offered by ``protocol`` here."""
        if protocol == "dra":
            DraSettings.of(self._settings, [each.plugin for each in self._discoveries])


def _names(plugins: Sequence[Plugin]) -> list[str]:
    """Return the names of ``plugins`` for logs and metrics: their classes, numbered if needed."""
    names = [type(plugin).__name__ for plugin in plugins]
    numbers = [names[: i + 1].count(name) for i, name in enumerate(names)]
    return [f"{one}-{n}" if n > 1 else one for one, n in zip(names, numbers, strict=True)]
