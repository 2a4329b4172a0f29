"""Advertise NVIDIA GPUs and their MIG devices, shared or not."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Event as Flag
from threading import Lock
from typing import TYPE_CHECKING

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit import labels
from deviceplugin.kit.backoff import MONOTONIC, Clock
from deviceplugin.kit.containers import Processes
from deviceplugin.kit.naming import UnusedNames
from deviceplugin_gpu.advertised import node_labels
from deviceplugin_gpu.advertised.devices import (
    Divided,
    Placement,
    describe,
    refuse,
    refuse_divided,
    with_problems,
)
from deviceplugin_gpu.advertised.units import Unit, advertise
from deviceplugin_gpu.configuration.node_choice import Reloading
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.container import device_nodes, letting_go
from deviceplugin_gpu.container.allocation import allocation
from deviceplugin_gpu.container.cdi import CdiNames, Publisher
from deviceplugin_gpu.container.device_nodes import ImexChannels, Nodes
from deviceplugin_gpu.container.nvidia_ctk import Toolkit
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.discovery.gpu_discovery import GpuDiscovery
from deviceplugin_gpu.host import Roots
from deviceplugin_gpu.mps.shares import Shares
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_gpu.snapshot import Snapshot
from deviceplugin_gpu.usage import Holder, Row, by_holder, families

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from deviceplugin_gpu.parts.division import Division

log = logging.getLogger(__name__)


class GpuPlugin(dp.Plugin):
    """Offer NVIDIA GPUs and their MIG devices to pods, whole or shared, and report their health.

    ``driver`` is that of the previous plugin object, if there was one. ``node`` has the settings
    read again when the facts change that they were chosen by. ``toolkit`` finds CDI specifications.
    """

    def __init__(
        self,
        settings: GpuSettings | None = None,
        *,
        driver: Driver | None = None,
        roots: Roots | None = None,
        node: Reloading | None = None,
        toolkit: Toolkit | None = None,
        clock: Clock = MONOTONIC,
    ) -> None:
        self._settings = settings or GpuSettings()
        self._roots = roots or Roots()
        library = Library(self._settings.driver_root_ctr_path)
        self._driver = driver or Driver(library, self._roots.sys, self._settings.state_file)
        self._discovery = GpuDiscovery(self._settings, self._driver, self._roots, clock)
        self._node = node
        known = advertise(self._driver.snapshot, self._settings).units
        self._current: Mapping[str, Unit] = {unit.id: unit for unit in known}
        self._units = self._current
        self._division: Division | None = None
        self._publishing = Lock()
        self._placement = Placement(Snapshot(), (), "distributed")
        self._publisher = Publisher(self._settings, self._roots, toolkit)
        self._cdi = CdiNames()
        self._channels = self._settings.imex_channel_ids
        self._clock = clock
        self._published: tuple[Sequence[Unit], ImexChannels, str] = ((), {}, "")
        self._mps = Shares(self._roots.mps, self._settings)
        self._unused = UnusedNames()
        self.watch_paths = [self._roots.dev / "nvidiactl", *self._mps.watched]

    @override
    def discover(self) -> Iterable[dp.Device]:
        if self._node and self._node.check() and not self._units:
            # A new driver may select other settings. Nothing is advertised by the old ones.
            raise dp.DiscoveryError("the node changed: the configuration is read again first")
        self._driver.session.held = self._let_go_of()
        before = self.made
        if self._division:
            self._division.begin(before)
        snapshot, strange = self._discovery.poll()
        divided = self._divide(snapshot, before)
        found = advertise(divided.snapshot, self._settings)
        self._unused.observe(
            self._settings.resources,
            {(unit.gpu.name,) for unit in found.units if not unit.mig},
            {(unit.mig.profile,) for unit in found.units if unit.mig},
        )
        has_any = bool(found.units or divided.planned)
        channels = device_nodes.imex_channels(self._settings, self._roots) if has_any else {}
        if has_any:
            strange += device_nodes.missing_channels(self._settings.imex_channel_ids, channels)
            self._channels = tuple(channels)
        held = {device.id.partition("::")[0] for device in self.held}
        refused, unshared = self._mps.check(found.units, snapshot.cuda, held)
        labelled = self._label(divided.snapshot if divided.snapshot.gpus else snapshot, found.units)
        self.shortfalls = [*found.warnings, *divided.warnings, *strange, *unshared, *labelled]
        self._placement = Placement(
            snapshot,
            found.units,
            self._settings.shared_devices_allocation_policy,
            distinct=self._settings.distinct_gpus,
        )
        self._published = found.units, channels, snapshot.driver
        nodes = self._publish()
        # An allocation under way may still be of the previous discovery's units.
        earlier, self._current = self._current, {unit.id: unit for unit in found.units}
        self._units = {**earlier, **self._current}
        planned = [*divided.planned.values()]
        health = self._health(found.units, refused) | self._verdicts(planned)
        return describe(
            [*found.units, *planned],
            with_problems(health, [*found.units, *planned], divided.problems),
            self._passed(found.units, nodes, channels),
            self._cdi.devices,
            snapshot,
            divided.described,
        )

    def _divide(self, snapshot: Snapshot, before: Mapping[str, str]) -> Divided:
        """Return ``snapshot`` without what claims have, and the parts that can be made."""
        if self._settings.mig_on_demand == "off" and not (before or self.made):
            return Divided(snapshot)
        return self._get_division().observe(snapshot, before, self)

    def _get_division(self) -> "Division":
        if self._division is None:
            from deviceplugin_gpu.parts.division import Division

            self._division = Division(self._settings, self._driver)
        return self._division

    def _publish(self) -> Nodes:
        """Make CDI devices of what is advertised and of the parts that claims have."""
        nodes = device_nodes.find(self._roots)
        if not self._settings.device_list_strategy.cdi:
            return nodes
        with self._publishing:  # a discovery and a part at once
            units, channels, driver = self._published
            made = self._division.units.values() if self._division else ()
            self._cdi = self._publisher.publish(
                [*units, *made], nodes, channels, driver, self._driver.files
            )
            self._driver.files = self._cdi.driver
        return nodes

    @override
    def make_part(self, part: dp.Device) -> dp.Device:
        unit = self._get_division().make(part.id, self)
        # No AllocationError from here on: the framework removes it, unless its pod has it already.
        device_nodes.wait_for(unit, self._settings, self._roots, self._clock)
        nodes = self._publish()
        if self._settings.device_list_strategy.cdi and (why := self._cdi.problems([unit])):
            raise dp.DevicePluginError(f"{part.id}: {why[unit.id]}")
        return replace(
            part,
            nodes=self._passed([unit], nodes, self._published[1]).get(unit.id, ()),
            cdi_names=[self._cdi.devices[unit.id]] if unit.id in self._cdi.devices else (),
            part=replace(part.part, identity=unit.uuid) if part.part else None,
        )

    @override
    def unmake_part(self, part: dp.Device, identity: str) -> None:
        self._get_division().unmake(part.id, identity, self)

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        made = self._division.units if self._division else {}
        known = (made.get(one.id) or self._units.get(one.id) for one in devices)
        units = [unit for unit in known if unit]
        if len(units) < len(devices):
            raise dp.AllocationError("the settings were changed, and no discovery has run since")
        refuse(units, self._settings)
        if self._division:
            refuse_divided(units, self._division.switched)
        settings = replace(self._settings, imex_channel_ids=self._channels)
        if any(device.id in made for device in devices):  # others are numbered anew with each
            settings = replace(settings, device_id_strategy="uuid")
        pairs = [*zip(units, devices, strict=True)]
        return allocation(
            units,
            settings,
            nodes={unit.id: device.nodes for unit, device in pairs},
            cdi_names={unit.id: device.cdi_names[0] for unit, device in pairs if device.cdi_names},
            cdi_others=self._cdi.others,
            mps_name=self._mps.name,
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
        yield from self._discovery.changes(stop)

    @override
    def let_go(self, devices: Sequence[dp.Device]) -> None:
        letting_go.check(devices, tuple(self._current.values()), self._mps, self._roots)
        self._driver.let_go(self._let_go_of(), self._roots.dev)

    @override
    def take_back(self, devices: Sequence[dp.Device]) -> None:
        wanted = frozenset(str(device.attributes.get("pci", "")) for device in devices)
        self._driver.take_back(wanted - self._let_go_of())

    def _let_go_of(self) -> frozenset[str]:
        """Return the PCI addresses of the GPUs that must not be opened."""
        made = self._division.units.values() if self._division else ()
        units = (*self._current.values(), *made)
        return letting_go.addresses(self.held, units, self._driver.session.held)

    @override
    def metrics(self) -> "Iterable[Metric]":
        driver, used = self._driver, self._used()
        measured = driver.metrics.collect(driver.gpus, driver.health, self._discovery.absent)
        return [*measured, *families(used(), self.holders(), self.made)]

    @override
    def usage(self) -> Mapping[Holder, Mapping[str, float]]:
        return by_holder(self._used()(), self.holders(), self.made)

    def _used(self) -> Callable[[], Sequence[Row]]:
        """Return what waits for what containers use, if that is asked for."""
        if (logs := self._settings.container_logs) is None:
            return tuple
        return self._driver.usage.begin(self._driver.snapshot, Processes(self._roots.proc, logs))

    def _passed(
        self, units: Sequence[Unit], nodes: Nodes, channels: ImexChannels
    ) -> dict[str, Sequence[dp.DeviceNode]]:
        """Return the device nodes that the kubelet gives to containers, by the id of a unit."""
        settings = self._settings
        if not (settings.pass_device_specs and settings.device_list_strategy.plain):
            return {}
        root = settings.host_dev_root
        return {unit.id: (*nodes.of(unit, root), *channels.values()) for unit in units}

    def _health(self, units: Sequence[Unit], refused: Mapping[str, str]) -> dict[str, dp.Health]:
        """Return the health of units, by id. MPS cannot serve those that are ``refused``."""
        found = self._verdicts(units)
        problems = self._cdi.problems(units) if self._settings.device_list_strategy.cdi else {}
        problems |= refused
        return found | {
            one: dp.Health.unhealthy(why) for one, why in problems.items() if found[one]
        }

    def _verdicts(self, units: Sequence[Unit]) -> dict[str, dp.Health]:
        """Return what is known of their hardware, by id; of a part that is made as of others."""
        health, made = self._driver.health, self._division.units if self._division else {}
        uuids = {unit.id: made.get(unit.id, unit).uuid for unit in units}
        return {one.id: health.verdict(one.gpu.uuid, uuids[one.id]).health for one in units}

    def _label(self, snapshot: Snapshot, units: Sequence[Unit]) -> list[str]:
        """Write the node's labels, and return why they could not be written."""
        path = self._settings.labels_file
        if path is None:
            return []
        found = node_labels.labels(snapshot, units, self._settings, self._roots.sys)
        try:
            labels.publish(path, found, stamp=node_labels.TIMESTAMP)
        except dp.DiscoveryError as error:
            return [f"labels-file {error}"]
        return [f"labels-file {path}: {problem}" for problem in labels.checked(found).problems]
