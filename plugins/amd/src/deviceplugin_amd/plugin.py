"""The plugin: AMD GPUs and partitions of them, for pods that compute with ROCm."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING, Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit import labels as label_file
from deviceplugin.kit import udev
from deviceplugin.kit.health import SteadyHealth, Tolerance
from deviceplugin.kit.log import Problems
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import kfd, labels, offer
from deviceplugin_amd.gpus import DRIVER
from deviceplugin_amd.handover import Handover, Used
from deviceplugin_amd.health import Errors, Verdict
from deviceplugin_amd.look import Found, Look, Unit
from deviceplugin_amd.placement import Fabric, Placement
from deviceplugin_amd.settings import AmdSettings

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)

_SUBSYSTEMS: Final = ("drm", "kfd", "module", "pci", "platform")


class AmdPlugin(dp.Plugin):
    """AMD GPUs, whole, divided into partitions, or shared."""

    exclusive = True

    def __init__(
        self,
        settings: AmdSettings | None = None,
        sysfs: Sysfs | None = None,
        handover: Handover | None = None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._settings = settings or AmdSettings()
        self._sysfs = sysfs or Sysfs(self._settings.sysfs_dir)
        self._look = Look(self._sysfs, self._settings.dev_dir, pause)
        self._errors = Errors(self._sysfs, self._settings.state_file, self._settings.ignore_errors)
        self._handover = handover or Handover(self._sysfs)
        lasting = self._settings.error_patience.total_seconds()
        self._steady = SteadyHealth[str](Tolerance(patience=lasting, recovery=lasting))
        self._has_driver = False
        self._absence = Problems(log, logging.INFO)
        self._skipped = Problems(log)
        self._unlabelled = Problems(log)
        self._generation = ""
        self._used: Mapping[str, Used] = {}
        self._fabric: Fabric | None = None
        self._woven_of: object = None
        self._placement = Placement(None, {})
        self._verdicts: Mapping[str, Verdict] = {}
        self.watch_paths = [self._settings.dev_dir / "dri"]

    @override
    def discover(self) -> Iterable[dp.Device]:
        settings = self._settings
        self._generation = kfd.generation(self._sysfs)
        found = self._found()
        units = offer.offered(found, settings)
        used = offer.used(units, settings)
        self._verdicts = self._errors.verdicts(found.gpus)
        health = self._health(found, units, used)
        self._used = {one: each for each in used for one in each.shares}
        self._weave(found)
        places = offer.places(units, settings)
        self._placement = Placement(self._fabric, places, settings.share_policy)
        problems = [f"{address}: {reason}" for address, reason in found.skipped.items()]
        self._skipped.say_all("GPU skipped", [*problems, *found.topology.problems])
        self._unlabelled.say_all("labels not written", self._label(units))
        return offer.devices(units, health, settings)

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        allocation = super().allocate(devices)
        if self._settings.clean_handover:
            self._handover.give([device.id for device in devices], self._used)
        return allocation

    @override
    def released(self, devices: Sequence[dp.Device]) -> None:
        if self._settings.clean_handover:
            self._handover.take_back([device.id for device in devices], self._used)

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        return self._placement.prefer(available, required, size)

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        return udev.changes(
            stop, subsystems=_SUBSYSTEMS, also=self._is_due, heard=self._errors.heard
        )

    @override
    def metrics(self) -> "Iterable[Metric]":
        from prometheus_client.core import GaugeMetricFamily

        errors = GaugeMetricFamily(
            "deviceplugin_amd_errors",
            "Memory and bus errors that GPUs have counted since their driver was loaded.",
            labels=["severity"],
        )
        verdicts = self._verdicts.values()
        errors.add_metric(["corrected"], sum(one.corrected for one in verdicts))
        errors.add_metric(["uncorrectable"], sum(one.uncorrected for one in verdicts))
        yield errors

    def _is_due(self) -> bool:
        """Return whether something has changed of which the kernel sends no event."""
        changed = kfd.generation(self._sysfs) != self._generation
        return changed or self._steady.is_due() or self._handover.is_due()

    def _found(self) -> Found:
        """Return what is on the node.

        Raises:
            DiscoveryError: There are GPUs, and the driver was never there.
        """
        found = self._look.look()
        if found.gpus or found.skipped:
            self._has_driver = True
        elif found.waiting and not self._has_driver:
            raise dp.DiscoveryError(
                f"the driver {DRIVER} is not bound; GPUs: {', '.join(found.waiting)}"
            )
        elif not self._has_driver:
            self._absence.say("", "no AMD GPU on this node")
        return found

    def _health(
        self, found: Found, units: Sequence[Unit], used: Sequence[Used]
    ) -> dict[str, dp.Health]:
        unclean = self._handover.reasons(used) if self._settings.clean_handover else {}
        kfd_node = self._settings.dev_dir / offer.KFD_NODE
        without = "" if kfd_node.exists() else f"{kfd_node} does not exist"
        self._steady.keep({unit.id for unit in units})
        health = {}
        for unit in units:
            verdict = self._verdicts[unit.gpu.address]
            certain = [unit.missing, without, unclean.get(unit.id, ""), *verdict.certain]
            doubtful = [unit.doubt, _no_node(found, unit), *verdict.doubtful]
            reasons = list(filter(None, [*certain, *doubtful]))
            judged = dp.Health.unhealthy("; ".join(reasons)) if reasons else dp.Health()
            health[unit.id] = self._steady.judge(unit.id, judged, at_once=any(certain))
        return health

    def _weave(self, found: Found) -> None:
        """Find out how near GPUs are, if that can have changed: it takes hundreds of files."""
        nodes = [(unit.gpu.address, unit.gpu.numa, unit.node) for unit in found.units]
        if (now := (self._generation, nodes)) != self._woven_of:
            self._fabric, self._woven_of = Fabric(found, self._sysfs), now

    def _label(self, units: Sequence[Unit]) -> list[str]:
        """Write the labels of the node, and return what keeps them from being written."""
        path = self._settings.labels_file
        if path is None:
            return []
        found = labels.labels(units, self._sysfs)
        try:
            label_file.publish(path, found)
        except dp.DiscoveryError as error:
            return [str(error)]
        return label_file.checked(found).problems


def _no_node(found: Found, unit: Unit) -> str:
    """Return why a unit cannot be computed with; empty if it can, or that is not known."""
    if unit.node or not (found.topology.is_complete or not found.topology.exists):
        return ""
    return "KFD has no node for it" if found.topology.exists else "the kernel has no KFD"
