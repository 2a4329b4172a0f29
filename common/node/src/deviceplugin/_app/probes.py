"""What the probes answer: the state of a process, also for the page, metrics and tests."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deviceplugin._app.endpoints import Endpoints
from deviceplugin._app.hold_list import listed
from deviceplugin._app.holding import Holding
from deviceplugin._app.host_directories import HostDirectories
from deviceplugin._app.protocol_switch import ProtocolSwitch
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.found import NOT_RETURNING, counts
from deviceplugin._discovery.loop import Discovery
from deviceplugin._http.devices_report import Report, attribution
from deviceplugin._inventory.published import Catalogue, Resource
from deviceplugin._kubelet.liveness import Liveness
from deviceplugin._platform.hooks import HooksByResource
from deviceplugin._telemetry.metrics import Attribution, DeviceCount, Offered
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.plugin import Holder, Plugin, Usage, overrides

log = logging.getLogger(__name__)

_TIMEOUT: Final = 2.0
"""Seconds for ``usage`` to return."""


@dataclass(eq=False, repr=False, kw_only=True)
class Status:
    """The state of everything that runs. Thread-safe."""

    settings: Settings
    discoveries: Sequence[Discovery]
    catalogue: Catalogue
    endpoints: Endpoints
    tracker: HoldingsTracker
    liveness: Liveness
    switch: ProtocolSwitch
    directories: HostDirectories
    holding: Holding
    fixed_files: list[str] = field(default_factory=list[str])
    """Why changes of files are not seen, a message for each; whoever reads the files sets it."""
    hooks: HooksByResource = field(default_factory=HooksByResource)
    """By the name of the plugin."""
    problems: Problems = field(default_factory=lambda: Problems(log))

    def alive(self) -> str:
        hanging = [discovery.name for discovery in self.discoveries if discovery.hanging]
        if hanging:
            return f"{NOT_RETURNING}: {', '.join(hanging)}"
        self.directories.check()
        return "\n".join(self.directories.problems()) or self.liveness.problem()

    def ready(self) -> str:
        if waiting := [d.name for d in self.discoveries if d.waiting]:
            return f"waiting for pod resources: {', '.join(waiting)}"
        if pending := [d for d in self.discoveries if not d.completed]:
            return _without_success("yet", pending)
        if overdue := [d for d in self.discoveries if d.overdue]:
            deadline = self.settings.discovery_deadline.total_seconds()
            return _without_success(f"for {deadline:g} s", overdue)
        lost = self.directories.problems()
        return "\n".join([*lost, *self._unregistered(), *self.switch.problems()])

    def remarks(self) -> list[str]:
        """Return what else there is to know while devices can be allocated."""
        invalid = [
            f"{one.name}: invalid entry skipped: {text}"
            for one in self.discoveries
            for text in one.invalid_entries
        ]
        shared = [
            f"{endpoint.resource.name}: {endpoint.status.remark}"
            for endpoint in self.endpoints.running()
            if endpoint.status.remark
        ]
        return [*invalid, *self.fixed_files, *shared, *self.switch.remarks()]

    def troubles(self) -> list[str]:
        """Return a message for everything that keeps devices from being advertised now."""
        own = [text for discovery in self.discoveries for text in discovery.troubles()]
        lost = self.directories.problems()
        return [*own, *lost, *self._unregistered(), *self.switch.troubles()]

    def _unregistered(self) -> list[str]:
        return [
            f"{endpoint.resource.name}: {endpoint.problem}"
            for endpoint in self.endpoints.running()
            if endpoint.problem
        ]

    def notes(self) -> Mapping[str, Any]:
        """Return what else there is to say, for JSON."""
        dra = self.switch.dra
        return {
            "shortfalls": [text for each in self.discoveries for text in each.shortfalls],
            "fixed_files": [*self.fixed_files],
            "invalid_entries": {one.name: [*one.invalid_entries] for one in self.discoveries},
            "holds": listed(self.holding),
            "holds_problem": self.holding.problem,
            "dra": dra and dra.state(),
        }

    def reports(self) -> list[Report]:
        holdings, used = self.tracker.current(), self._usage()
        return [
            Report.of(
                resource,
                self.endpoints.problem(name),
                holdings,
                registered=self.endpoints.is_registered(name),
                offered=offered_of(self.switch.ownership, resource),
                usage=used,
                stale=self.tracker.stale(name),
            )
            for name, resource in sorted(self.catalogue.resources().items())
        ]

    def _usage(self) -> Usage:
        found: dict[Holder, Mapping[str, float]] = {}
        for discovery in self.discoveries:
            name, plugin = discovery.name, discovery.plugin
            if not overrides(plugin, "usage"):
                continue
            try:
                found |= self.hooks[name].call("usage", _used, plugin, timeout=_TIMEOUT)
                self.problems.over(name)
            except DevicePluginError as error:
                self.problems.say(name, "plugin usage unavailable", plugin=name, error=str(error))
        return found

    def inventory(self) -> Mapping[str, Any]:
        """Return all resources and their devices, for JSON."""
        return {
            "resources": [
                {**report.as_json(), "devices": list(report.devices_as_json())}
                for report in self.reports()
            ],
            **self.notes(),
        }

    # Called by the metrics at each scrape.

    def count_devices(self) -> list[DeviceCount]:
        resources = self.catalogue.resources()
        return [(name, *counts(resource.listed)) for name, resource in resources.items()]

    def attribute(self) -> list[Attribution]:
        holdings = self.tracker.current()
        resources = self.catalogue.resources().values()
        return [
            attribution(resource, holdings, len(self.tracker.stale(resource.name)))
            for resource in resources
        ]


def _used(plugin: Plugin) -> Usage:
    found = {
        tuple(map(str, holder)): {str(name): float(value) for name, value in values.items()}
        for holder, values in plugin.usage().items()
    }
    json.dumps([*found.values()], allow_nan=False)  # or nobody can read what else there is
    return found


def _without_success(since: str, discoveries: Iterable[Discovery]) -> str:
    return "\n".join(
        f"no discovery has succeeded {since}: {d.name}{d.failure and f': {d.failure}'}"
        for d in discoveries
    )


def offered(ownership: Ownership, resources: Iterable[Resource]) -> Iterator[Offered]:
    """Yield what each protocol would give out now of ``resources``, as far as DRA concerns them."""
    for resource in resources:
        if ownership.concerns_dra(resource.name):
            yield offered_of(ownership, resource)


def offered_of(ownership: Ownership, resource: Resource) -> Offered:
    """Return what each protocol would give out now of ``resource``."""
    leaving, devices = ownership.leaving, resource.listed
    withheld = ownership.withheld(resource.name, devices)
    states = ownership.offered(resource).items()
    by_dra = {one: state for one, state in states if state.offered and not state.taint}
    return Offered(
        resource.name,
        by_plugin=sum(one.id not in withheld and bool(one.health) for one in devices.values()),
        by_dra=frozenset(by_dra),
        leaving=sum((resource.name, device_id) in leaving for device_id in devices),
        spare=sum(not state.claimed for one, state in by_dra.items() if one not in devices),
    )
