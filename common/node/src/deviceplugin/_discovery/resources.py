"""The resources of one plugin: keeping and publishing their devices."""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._discovery.found import NOT_RETURNING, Groups
from deviceplugin._discovery.health_changes import HealthChanges
from deviceplugin._discovery.pod_holdings import PodHoldings
from deviceplugin._discovery.retention import RECORDED_BUT_ABSENT, KeptDevices, unhealthy
from deviceplugin._discovery.timing import DiscoveryTiming
from deviceplugin._discovery.topologies import Topologies
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import DiscoveryError
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)


class Catalogue(Protocol):
    """Where resources are offered to the kubelet."""

    def claim(self, name: str, plugin: Plugin) -> Resource | None:
        """Return the resource for ``plugin``, or None if another plugin has it."""

    def advertise(self, resource: Resource) -> None:
        """Serve ``resource``, if it is not served yet."""

    def withdraw(self, resource: Resource) -> None:
        """Stop serving ``resource``."""


class DiscoveredResources:
    """The resources of one plugin, called ``name`` in logs and metrics.

    ``claim`` and ``update`` are for the discovery's thread; the rest is thread-safe.
    """

    def __init__(
        self,
        plugin: Plugin,
        *,
        name: str,
        timing: DiscoveryTiming,
        catalogue: Catalogue,
        holdings: PodHoldings,
        ownership: Ownership,
        metrics: Metrics,
    ) -> None:
        self.plugin = plugin
        """The plugin that they belong to; ``replace`` changes it."""
        self._name = name
        self._timing = timing
        self._catalogue = catalogue
        self._holdings = holdings
        self._ownership = ownership
        self._metrics = metrics
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._kept: dict[str, KeptDevices] = {}
        self._troubles: dict[str, str] = {}
        self._overdue: dict[str, str] = {}
        """What the devices were reported unhealthy for since they have been overdue."""
        self._problems = Problems(log)
        self._topologies = Topologies()
        self._changes = HealthChanges(metrics.events)

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
        """Whether vanished devices are kept."""
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
            self._claim(groups)

    def _claim(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._resources:
                continue
            resource = self._catalogue.claim(name, self.plugin)
            if resource is None:
                self._problems.say(
                    name, "resource belongs to another plugin", plugin=self._name, resource=name
                )
                continue
            self._resources[name] = resource
            self._kept[name] = KeptDevices(time.monotonic())
            self._holdings.expect(name)

    def update(self, groups: Groups, holdings: Holdings | None) -> None:
        """Publish ``groups``, which have been claimed, with the vanished devices that are kept.

        Resources without any device left are withdrawn. ``holdings`` is None if it is unknown what
        pods hold.
        """
        with self._lock:
            names = sorted(groups.keys() & self._resources.keys())
            # Before they are offered, so that nobody is given what somebody has under another id.
            self._ownership.hardware.identify(self._name, {name: groups[name] for name in names})
            over = [name for name in names if not self._update(name, groups[name], holdings)]
            withdrawn = [self._forget(name) for name in over]
        for resource in withdrawn:
            self._catalogue.withdraw(resource)

    def _update(self, name: str, present: Mapping[str, Device], holdings: Holdings | None) -> bool:
        """Publish the devices of a resource; return False if it has none left."""
        resource, kept = self._resources[name], self._kept[name]
        now = time.monotonic()
        held = None if holdings is None else holdings.of(name)
        if holdings is not None:
            # Stored even if the list is rejected, because pod resources are not asked for again.
            kept = kept.expecting(held or frozenset(), now)
            if self._holdings.forget(name):  # the kubelet restores what it has recorded at a start
                kept = kept.expecting(holdings.recorded_of(name), now, RECORDED_BUT_ABSENT)
            self._kept[name] = kept
        kept = kept.updated(present, now)
        if holdings is not None and holdings.complete:
            recorded = holdings.recorded_of(name)
            kept = kept.retired(held, now, self._timing.retention, recorded)
        if not kept and name != self.plugin.resource:
            return False
        try:
            changed = resource.publish(self._topologies.even(name, self._listed(name, kept)))
        except DiscoveryError as error:
            self._refused(name, str(error))
            return True
        self._kept[name] = kept
        self._troubles.pop(name, None)
        self._overdue.pop(name, None)
        self._problems.over(name)
        self._changes.report(resource, changed)
        self._catalogue.advertise(resource)
        return True

    def _listed(self, name: str, kept: KeptDevices) -> list[Device]:
        became = self._ownership.hardware.became
        closed = self._ownership.elsewhere(name)
        return kept.devices(lambda device: became((name, device.id), device), closed)

    def _refused(self, name: str, error: str) -> None:
        self._troubles[name] = error
        self._metrics.discovery_errors.labels(self._name).inc()
        self._problems.say(name, "device list rejected", plugin=self._name, error=error)

    def _forget(self, name: str) -> Resource:
        del self._kept[name]
        self._troubles.pop(name, None)
        self._overdue.pop(name, None)
        self._holdings.forget(name)
        self._changes.forget(name)
        self._topologies.forget(name)
        return self._resources.pop(name)

    def check_deadline(self) -> None:
        """Report devices as unhealthy if they have not been discovered for too long."""
        now = time.monotonic()
        with self._lock:
            for name, kept in self._kept.items():
                resource = self._resources[name]
                trouble = self._troubles.get(name, NOT_RETURNING)
                overdue = now - kept.fresh_at > self._timing.deadline
                if not overdue or trouble == self._overdue.get(name):
                    continue
                self._overdue[name] = trouble
                reason = f"not discovered for {self._timing.deadline:g} s: {trouble}"
                changed = resource.publish(unhealthy(self._listed(name, kept), reason))
                self._changes.report(resource, changed)
