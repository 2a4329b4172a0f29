"""AMD GPUs and their partitions, for pods that compute with ROCm."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit import labels as label_file
from deviceplugin.kit import udev
from deviceplugin.kit.health import SteadyHealth, Tolerance, absence
from deviceplugin.kit.log import Problems
from deviceplugin.kit.naming import UnusedNames
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import advertised, kfd
from deviceplugin_amd.advertised import AdvertisedUnit, Fabric, Placement
from deviceplugin_amd.gpus import DRIVER
from deviceplugin_amd.handover import Handover
from deviceplugin_amd.health import Errors, Verdict
from deviceplugin_amd.settings import AmdSettings
from deviceplugin_amd.snapshot import Reader, Snapshot, Unit

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from deviceplugin_amd.partitions import Partitions
    from deviceplugin_amd.switch import Put

log = logging.getLogger(__name__)

_SUBSYSTEMS: Final = ("drm", "kfd", "module", "pci", "platform")

_OFTEN: Final = 0.5
"""Seconds between checks of units that no pod has and that processes still use."""
_RARELY: Final = 5.0
"""Seconds between checks of KFD's topology, for whose changes the kernel sends no event."""


class AmdPlugin(dp.Plugin):
    """AMD GPUs, whole, divided into partitions, or shared."""

    exclusive = True

    def __init__(
        self,
        settings: AmdSettings | None = None,
        sysfs: Sysfs | None = None,
        handover: Handover | None = None,
        pause: Callable[[float], object] | None = None,
        put: "Put | None" = None,
    ) -> None:
        self._settings = settings or AmdSettings()
        self._sysfs = sysfs or Sysfs(self._settings.sysfs_dir)
        self._pause = pause
        self._put = put
        self._reader = Reader(self._sysfs, self._settings.dev_dir, pause)
        self._errors = Errors(self._sysfs, self._settings.state_file, self._settings.ignore_errors)
        self._handover = handover or Handover(self._sysfs)
        lasting = self._settings.error_patience.total_seconds()
        self._steady = SteadyHealth[str](Tolerance(patience=lasting, recovery=lasting))
        self._has_driver = False
        self._absence = Problems(log, logging.INFO)
        self._unlabelled = Problems(log)
        self._unused = UnusedNames()
        self._generation = ""
        self._offers: Mapping[str, AdvertisedUnit] = {}
        """The offer of each device id."""
        self._fabric: Fabric | None = None
        self._fabric_of: object = None
        self._placement = Placement(None, ())
        self._verdicts: Mapping[str, Verdict] = {}
        self._loading = Lock()
        self._partitions: Partitions | None = None
        self.watch_paths = [self._settings.dev_dir / "dri"]

    @override
    def discover(self) -> Iterable[dp.Device]:
        settings = self._settings
        self._generation = kfd.generation(self._sysfs)
        partitions = self._on_demand()
        found = partitions.snapshot(self._found) if partitions else self._found()
        claimed = partitions.fold(found) if partitions else ()
        units = advertised.chosen(found, settings)
        self._unused.observe(
            settings.resources,
            {unit.gpu.names for unit in units if unit.number is None},
            {(str(unit.gpu.style),) for unit in units if unit.number is not None},
        )
        self._verdicts = self._errors.verdicts(found.gpus)
        health = self._health(found, [*units, *claimed])
        amounts = partitions.amounts() if partitions else {}
        offers = list(advertised.offers(units, health, settings, self._sysfs, amounts))
        self._offers = {device.id: one for one in offers for device in one.devices}
        self._offers |= {one.id: AdvertisedUnit(one, (dp.Device(one.id),), {}) for one in claimed}
        self._measure(found)
        self._placement = Placement(self._fabric, offers, settings.share_policy)
        self.shortfalls = [*advertised.shortfalls(found, settings), *found.topology.problems]
        facts = advertised.labels(offers, self._sysfs) if settings.labels_file else {}
        unwritten = label_file.update(settings.labels_file, facts)
        self._unlabelled.say_all("labels not written", unwritten)
        devices = [device for one in offers for device in one.devices]
        if partitions:
            self.shortfalls = [*self.shortfalls, *partitions.shortfalls]
            devices = [one for device in devices for one in partitions.devices(device, health)]
        return devices

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        allocation = super().allocate(devices)
        if self._settings.clean_handover:
            self._handover.give([device.id for device in devices], self._offers)
        return allocation

    @override
    def released(self, devices: Sequence[dp.Device]) -> None:
        if self._settings.clean_handover:
            self._handover.take_back([device.id for device in devices], self._offers)

    @override
    def make_part(self, part: dp.Device) -> dp.Device:
        if partitions := self._on_demand():
            return partitions.make(part)
        raise dp.AllocationError("partitions-on-demand is not set", device_ids=[part.id])

    @override
    def unmake_part(self, part: dp.Device, identity: str) -> None:
        if partitions := self._on_demand():
            partitions.unmake(part, identity)

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        return self._placement.prefer(available, required, size)

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        return udev.changes(
            stop,
            subsystems=_SUBSYSTEMS,
            also=self._is_due,
            pause=self._until_due,
            heard=self._errors.heard,
        )

    @override
    def metrics(self) -> "Iterable[Metric]":
        from prometheus_client.metrics_core import GaugeMetricFamily

        errors = GaugeMetricFamily(
            "deviceplugin_amd_errors",
            "Memory and bus errors that GPUs have counted since their driver was loaded.",
            labels=["severity"],
        )
        verdicts = self._verdicts.values()
        errors.add_metric(["corrected"], sum(one.corrected for one in verdicts))
        errors.add_metric(["uncorrectable"], sum(one.uncorrected for one in verdicts))
        yield errors

    def _on_demand(self) -> "Partitions | None":
        """Return the partitions for claims; None, and nothing is loaded, if there are none."""
        with self._loading:
            if self._partitions is None and (self._settings.partitions_on_demand or self.made):
                from deviceplugin_amd.partitions import Partitions

                self._partitions = Partitions(
                    self._settings, self._sysfs, lambda: self.made, self._pause, self._put
                )
            return self._partitions

    def _is_due(self) -> bool:
        """Return whether something has changed for which the kernel sends no event."""
        changed = kfd.generation(self._sysfs) != self._generation
        return changed or self._steady.is_due() or self._handover.is_due()

    def _until_due(self) -> float:
        """Return for how many seconds ``_is_due`` need not be called."""
        most = _OFTEN if self._handover.is_watching() else _RARELY
        return min(most, self._steady.until_due())

    def _found(self) -> Snapshot:
        """Return what is on the node; DiscoveryError if there are GPUs, and never was a driver."""
        found = self._reader.read()
        if found.gpus or found.skipped:
            self._has_driver = True
        elif found.waiting and not self._has_driver:
            addresses = ", ".join(card.address for card in found.waiting)
            raise dp.DiscoveryError(f"the driver {DRIVER} is not bound; GPUs: {addresses}")
        elif not self._has_driver:
            self._absence.say("", "no AMD GPU on this node")
        return found

    def _health(self, found: Snapshot, units: Sequence[Unit]) -> dict[str, dp.Health]:
        unclean = self._handover.reasons(units) if self._settings.clean_handover else {}
        without = absence(self._settings.dev_dir / advertised.KFD_NODE)
        self._steady.keep({unit.id for unit in units})
        health = {}
        for unit in units:
            verdict = self._verdicts[unit.gpu.address]
            health[unit.id] = self._steady.weigh(
                unit.id,
                certain=[unit.missing, without, unclean.get(unit.id, ""), *verdict.certain],
                doubtful=[unit.doubt, _no_node(found, unit), *verdict.doubtful],
                wear=verdict.worn,
            )
        return health

    def _measure(self, found: Snapshot) -> None:
        """Read how near GPUs are if that may have changed. That takes hundreds of files."""
        nodes = [(unit.gpu.address, unit.gpu.numa, unit.node) for unit in found.units]
        if (now := (self._generation, nodes)) != self._fabric_of:
            self._fabric, self._fabric_of = Fabric(found, self._sysfs), now


def _no_node(found: Snapshot, unit: Unit) -> str:
    """Return why KFD has no node for a unit; empty if it has one, or that is not known."""
    if unit.node or not (found.topology.is_complete or not found.topology.exists):
        return ""
    return "KFD has no node for it" if found.topology.exists else "the kernel has no KFD"
