"""The resources of one plugin: keeping and publishing their devices."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._discovery.found import NOT_RETURNING, Groups
from deviceplugin._discovery.health_changes import HealthChanges
from deviceplugin._discovery.retention import (
    RECORDED_BUT_ABSENT,
    Ask,
    DiscoveryTiming,
    KeptDevices,
    PodHoldings,
    unhealthy,
)
from deviceplugin._inventory.published import Catalogue, Resource
from deviceplugin._platform.file_watcher import FileWatcher
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import DiscoveryError
from deviceplugin.kit import numa
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)


class Surroundings(NamedTuple):
    """What the discoveries of a process have in common."""

    timing: DiscoveryTiming
    catalogue: Catalogue
    ask: Ask
    ownership: Ownership
    watcher: FileWatcher
    metrics: Metrics
    lost: Callable[[Sequence[Path]], str]
    """Returns why what is discovered at these paths cannot be allocated; empty if it can."""
    hold: Callable[[str, Groups], None] = lambda _plugin, _groups: None
    """Adds to what a plugin discovered what an operator holds and it does not look at."""


class DiscoveredResources:
    """The resources of one plugin, called ``name`` in logs and metrics.

    ``claim`` and ``update`` are for the discovery's thread; the rest is thread-safe.
    """

    def __init__(self, plugin: Plugin, name: str, around: Surroundings) -> None:
        self.plugin = plugin
        """The plugin that they belong to; ``replace`` changes it."""
        self.holdings = PodHoldings(name, around.ask, around.timing.retention)
        self._name = name
        self._around = around
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._kept: dict[str, KeptDevices] = {}
        self._troubles: dict[str, str] = {}
        self._overdue: dict[str, str] = {}
        """What the devices were reported unhealthy for since they have been overdue."""
        self._problems = Problems(log)
        self._topologies = Topologies()
        self._changes = HealthChanges(around.metrics.events)

    def replace(self, plugin: Plugin) -> None:
        """Make ``plugin`` serve all of them from now on."""
        with self._lock:
            self.plugin = plugin
            for resource in self._resources.values():
                resource.plugin = plugin

    def present(self) -> Mapping[str, Mapping[str, Device]]:
        """Return the devices of the last discovery, by id, by resource."""
        return {name: kept.present for name, kept in self._kept.items()}

    @property
    def any_vanished(self) -> bool:
        return any(kept.vanished for kept in self._kept.values())

    def troubles(self) -> list[str]:
        """Return why resources do not have the devices that were discovered, a message for each."""
        with self._lock:
            return [f"{name}: {text}" for name, text in self._troubles.items()]

    def fail(self, error: str) -> None:
        """Record that the devices could not be discovered."""
        with self._lock:
            self._troubles.update(dict.fromkeys(self._kept, error))

    def claim(self, groups: Groups) -> None:
        """Claim the new resources in ``groups``, and add to it the known ones that it lacks."""
        with self._lock:
            for name in self._kept.keys() - groups.keys():
                groups[name] = {}
            for name in [name for name in groups if name not in self._resources]:
                if resource := self._around.catalogue.claim(name, self.plugin):
                    self._resources[name] = resource
                    self._kept[name] = KeptDevices(time.monotonic())
                    self.holdings.expect(name)
                else:
                    event = "resource belongs to another plugin"
                    self._problems.say(name, event, plugin=self._name, resource=name)

    def update(self, groups: Groups, holdings: Holdings | None) -> None:
        """Publish ``groups``, which have been claimed, with the vanished devices that are kept.

        Resources without any device left are withdrawn. ``holdings`` is None if it is unknown what
        pods hold.
        """
        with self._lock:
            names = sorted(groups.keys() & self._resources.keys())
            # Before they are offered, so that nobody is given what somebody has under another id.
            self._around.ownership.hardware.identify(
                self._name, {name: groups[name] for name in names}
            )
            over = [name for name in names if not self._update(name, groups[name], holdings)]
            withdrawn = [self._forget(name) for name in over]
        for resource in withdrawn:
            self._around.catalogue.withdraw(resource)

    def _update(self, name: str, present: Mapping[str, Device], holdings: Holdings | None) -> bool:
        """Publish the devices of a resource; return False if it has none left."""
        resource, kept = self._resources[name], self._kept[name]
        now = time.monotonic()
        held = None if holdings is None else holdings.of(name)
        if holdings is not None:
            # Stored even if the list is rejected, because pod resources are not asked for again.
            kept = kept.expecting(held or frozenset(), now)
            if self.holdings.learn(
                name, holdings
            ):  # the kubelet restores what it has recorded at a start
                kept = kept.expecting(holdings.recorded_of(name), now, RECORDED_BUT_ABSENT)
            self._kept[name] = kept
        kept = kept.updated(present, now)
        if holdings is not None and holdings.complete:
            recorded = holdings.recorded_of(name)
            kept = kept.retired(held, now, self._around.timing.retention, recorded)
        if not kept and name != self.plugin.resource:
            return False
        try:
            changed = resource.publish(self._topologies.even(name, self._listed(name, kept)))
        except DiscoveryError as error:
            self._troubles[name] = str(error)
            self._around.metrics.discovery_errors.labels(self._name).inc()
            event = "device list rejected"
            self._problems.say(name, event, plugin=self._name, error=str(error))
            return True
        self._kept[name] = kept
        self._troubles.pop(name, None)
        self._overdue.pop(name, None)
        self._problems.over(name)
        self._changes.report(resource, changed)
        self._around.catalogue.advertise(resource)
        return True

    def _listed(self, name: str, kept: KeptDevices) -> list[Device]:
        became = self._around.ownership.hardware.became
        closed = self._around.ownership.elsewhere(name)
        return kept.devices(lambda device: became((name, device.id), device), closed)

    def _forget(self, name: str) -> Resource:
        del self._kept[name]
        self._troubles.pop(name, None)
        self._overdue.pop(name, None)
        self.holdings.forget(name)
        self._changes.forget(name)
        self._topologies.forget(name)
        return self._resources.pop(name)

    def check_deadline(self) -> None:
        """Report devices as unhealthy if they have not been discovered for too long."""
        now = time.monotonic()
        with self._lock:
            for name, kept in self._kept.items():
                trouble = self._troubles.get(name, NOT_RETURNING)
                overdue = now - kept.fresh_at > self._around.timing.deadline
                if overdue and trouble != self._overdue.get(name):
                    self._overdue[name] = trouble
                    reason = f"not discovered for {self._around.timing.deadline:g} s: {trouble}"
                    resource = self._resources[name]
                    changed = resource.publish(unhealthy(self._listed(name, kept), reason))
                    self._changes.report(resource, changed)


class Topologies:
    """Removes the topology from all devices of a resource if a healthy one has none."""

    def __init__(self) -> None:
        self._mixtures = Problems(log)
        self._bare: dict[str, dict[str, tuple[Device, Device]]] = {}
        """Each device as it was given, and without topology; by id, by resource."""

    def even(self, resource: str, devices: Iterable[Device]) -> list[Device]:
        """Return ``devices`` as they can be published. The reason for a change is logged once.

        The same device gives the same object each time, so that publishing it again costs nothing.
        """
        given = list(devices)
        reason = numa.mixture(given)
        if not reason:
            self.forget(resource)
            return given
        advice = "the kubelet rejects pods over a mixture: give a NUMA node to all or to none"
        event = "topology not advertised"
        self._mixtures.say(resource, event, resource=resource, reason=reason, advice=advice)
        known, bare = self._bare.get(resource, {}), {}
        for one in given:
            was, without = known.get(one.id, (None, one))
            bare[one.id] = one, without if was is one else replace(one, topology=None)
        self._bare[resource] = bare
        return [without for _, without in bare.values()]

    def forget(self, resource: str) -> None:
        """Forget a resource, so that its next mixture is logged again."""
        self._mixtures.over(resource)
        self._bare.pop(resource, None)
