"""Advertise NVIDIA GPUs and their MIG devices, shared or not."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event as Flag

from prometheus_client.core import Metric
from typing_extensions import override

import deviceplugin as dp
from deviceplugin_gpu import _diagnosis, _labels, _mps, _nodes, _platforms, _resources, _strategies
from deviceplugin_gpu._describing import describe, refuse
from deviceplugin_gpu._driver import Driver
from deviceplugin_gpu._library import Library
from deviceplugin_gpu._nodes import Roots
from deviceplugin_gpu._nvml import (
    EVENT_DOUBLE_BIT,
    EVENT_SINGLE_BIT,
    EVENT_XID,
    LibraryMissingError,
    NvmlError,
)
from deviceplugin_gpu._placement import Placement
from deviceplugin_gpu._reloading import Reloading
from deviceplugin_gpu._resources import Unit
from deviceplugin_gpu._runtime import CdiNames, Publisher
from deviceplugin_gpu._settings import GpuSettings
from deviceplugin_gpu._snapshot import Snapshot
from deviceplugin_gpu._toolkit import Toolkit
from deviceplugin_gpu._watch import Watch
from deviceplugin_gpu._xids import parse_checks

log = logging.getLogger(__name__)


class GpuPlugin(dp.Plugin):
    """NVIDIA GPUs.

    ``driver`` is what the plugin object before, if there was one, had. ``config`` is the file that
    the settings are from. ``toolkit`` finds CDI specifications. ``clock`` gives seconds.
    """

    def __init__(
        self,
        settings: GpuSettings | None = None,
        *,
        driver: Driver | None = None,
        roots: Roots | None = None,
        config: Reloading | None = None,
        toolkit: Toolkit | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings or GpuSettings()
        self._roots = roots or Roots()
        self._clock = clock
        library = Library(self._settings.driver_root_ctr_path)
        self._driver = driver or Driver(library, self._roots.sys, self._settings.state_file, clock)
        self._watching = self._configure_health()
        self._config = config
        self._watch = Watch(self._driver.session, clock)
        known = _resources.offer(self._driver.snapshot, self._settings).units
        self._current: Mapping[str, Unit] = {unit.id: unit for unit in known}
        self._units = self._current
        self._placement = Placement(Snapshot(), (), "distributed")
        self._publisher = Publisher(self._settings, self._roots, toolkit)
        self._cdi = CdiNames()
        self._gpus: frozenset[str] | None = None
        self._told: set[str] = set()
        self._explained = ""
        self._failing_since: float | None = None
        self.watch_paths: list[Path | str] = [
            self._roots.dev / "nvidiactl",
            *([config.path] if config else []),
        ]

    @override
    def discover(self) -> Iterable[dp.Device]:
        if self._config:
            self._config.check()
        snapshot, strange = self._look()
        if snapshot.gpus:
            self._explained = ""
        else:
            self._explain(None)
        offer = _resources.offer(snapshot, self._settings)
        self._warn([*offer.warnings, *strange, *self._label(snapshot, offer.units)])
        self._placement = Placement(
            snapshot,
            offer.units,
            self._settings.shared_devices_allocation_policy,
            distinct=self._settings.distinct_gpus,
        )
        nodes = _nodes.look(self._roots)
        if self._settings.device_list_strategy.cdi:
            self._cdi = self._publisher.publish(offer.units, nodes)
        # An allocation under way may still be of the units of the look before.
        before, self._current = self._current, {unit.id: unit for unit in offer.units}
        self._units = {**before, **self._current}
        passed = self._settings.pass_device_specs and self._settings.device_list_strategy.plain
        root = self._settings.host_dev_root
        return describe(
            offer.units,
            self._problems(offer.units),
            {unit.id: nodes.of(unit, root) for unit in offer.units} if passed else {},
            self._cdi.devices,
        )

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        units = [unit for device in devices if (unit := self._units.get(device.id))]
        if len(units) < len(devices):
            raise dp.AllocationError("the settings were changed, and GPUs not looked at since")
        refuse(units, self._settings)
        return _strategies.allocation(
            units,
            self._settings,
            nodes={device.id: device.nodes for device in devices},
            cdi_names={device.id: device.cdi_names[0] for device in devices if device.cdi_names},
            cdi_others=self._cdi.others,
        )

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        known = {device.id: device for device in (*available, *required)}
        placement, needed = self._placement, [device.id for device in required]
        return [known[one] for one in placement.prefer([*known], needed, size)]

    @override
    def changes(self, stop: Flag) -> Iterator[None]:
        health = self._driver.health
        for event in self._watch.events(stop):
            if event.kind == EVENT_XID:
                health.saw_xid(event.uuid, event.number)
            elif event.kind == EVENT_DOUBLE_BIT:
                health.saw_double_bit(event.uuid)
            if event.kind != EVENT_SINGLE_BIT:  # corrected, and often many
                yield

    @override
    def metrics(self) -> Iterable[Metric]:
        return self._driver.metrics.collect(self._driver.gpus, self._driver.health)

    @override
    def start(self, resource: str) -> None:
        # Whoever starts the daemon may take longer than this plugin.
        if self._is_shared_by_mps(resource):
            problem = _mps.problem(self._roots.mps, resource)
            if problem:
                raise dp.DiscoveryError(problem)

    def _look(self) -> tuple[Snapshot, list[str]]:
        """Return what is there, and what is strange about it."""
        strategy = self._settings.device_discovery_strategy
        other = _platforms.without_nvml(self._roots, strategy, missing=False)
        if other is not None:
            self._driver.health.observe(other)
            return other, []
        try:
            sight = self._driver.look()
        except NvmlError as error:
            if isinstance(error, LibraryMissingError):
                other = _platforms.without_nvml(self._roots, strategy, missing=True)
                if other is not None:
                    self._driver.health.observe(other)
                    return other, []
            self._explain(error)
            self._give_up(error)
            raise
        self._failing_since = None
        gpus = frozenset(sight.handles)
        changed = self._gpus is not None and gpus != self._gpus
        if changed or self._watch.deaf or not self._watch.hears(gpus):
            self._watch.renew()
        self._gpus = gpus
        self._driver.health.observe(sight.snapshot, self._unheard(gpus), sight.needs_reset)
        strange = [f"GPU {index} cannot be read: {why}" for index, why in sight.strangers.items()]
        return sight.snapshot, strange

    def _give_up(self, error: NvmlError) -> None:
        """Call all GPUs unhealthy when the framework does, so that metrics say the same."""
        now = self._clock()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now - self._failing_since > self._settings.discovery_deadline.total_seconds():
            self._driver.health.failed(str(error))

    def _configure_health(self) -> bool:
        """Tell what counts and when it is over; return whether any error of a GPU counts."""
        settings = self._settings
        checks, problems = parse_checks(settings.disable_healthchecks, settings.enable_healthchecks)
        for problem in problems:
            log.warning("setting not taken", extra={"problem": problem})
        self._driver.health.configure(checks, settings.recovery_time.total_seconds())
        return not checks.all_disabled or checks.all_enabled or bool(checks.enabled)

    def _unheard(self, gpus: Iterable[str]) -> dict[str, str]:
        """Return why errors of GPUs would not be heard of, by UUID: they may be anything then."""
        if not self._watching:
            return {}
        found = dict(self._watch.deaf)
        silence = self._watch.silence()
        if silence and silence[0] > self._settings.discovery_deadline.total_seconds():
            reason = f"its errors could not be listened to for {silence[0]:.0f} s: {silence[1]}"
            found |= {uuid: reason for uuid in gpus if uuid not in self._watch.mute}
        return found

    def _problems(self, units: Sequence[Unit]) -> dict[str, str]:
        """Return why units are unhealthy, by id."""
        found = self._cdi.problems(units) if self._settings.device_list_strategy.cdi else {}
        verdicts = {unit.id: self._driver.health.verdict(unit.gpu.uuid).reason for unit in units}
        found |= {one: reason for one, reason in verdicts.items() if reason}
        if self._settings.sharing.mps:
            shared = [unit for unit in units if unit.replica is not None]
            found |= _mps.too_many(shared)
            for resource in {unit.resource for unit in shared}:
                problem = _mps.problem(self._roots.mps, resource)
                own = [unit.id for unit in shared if unit.resource == resource]
                found |= dict.fromkeys(own, problem) if problem else {}
        return found

    def _is_shared_by_mps(self, resource: str) -> bool:
        return self._settings.sharing.mps and any(
            unit.resource == resource and unit.replica is not None for unit in self._units.values()
        )

    def _label(self, snapshot: Snapshot, units: Sequence[Unit]) -> list[str]:
        """Write the node's labels, and return what keeps them from being written."""
        path = self._settings.labels_file
        if path is None:
            return []
        try:
            _labels.publish(path, _labels.labels(snapshot, units, self._settings, self._roots.sys))
        except dp.DiscoveryError as error:
            return [str(error)]
        return []

    def _warn(self, warnings: Sequence[str]) -> None:
        for text in warnings:
            if text not in self._told:
                log.warning("left out", extra={"problem": text})
        self._told = set(warnings)

    def _explain(self, error: NvmlError | None) -> None:
        """Log why there are no GPUs, once per reason."""
        reason = str(error)
        if reason != self._explained:
            self._explained = reason
            for finding in _diagnosis.explain(self._roots, self._driver.library, error):
                log.warning("no GPU", extra={"finding": finding})
