"""The plugin: Intel GPUs and their virtual functions, for pods that compute or render."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from threading import Event
from typing import Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit import labels as label_file
from deviceplugin.kit import udev
from deviceplugin.kit.health import SteadyHealth, Tolerance
from deviceplugin.kit.log import Problems
from deviceplugin.kit.naming import UnusedNames
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_intelgpu import advertised, gpus
from deviceplugin_intelgpu.advertised import Placement
from deviceplugin_intelgpu.gpus import Found, Gpu, Look
from deviceplugin_intelgpu.health import Memory
from deviceplugin_intelgpu.settings import DRIVERS, IntelGpuSettings

log = logging.getLogger(__name__)

_SUBSYSTEMS: Final = ("drm", "mei", "module", "pci")


class IntelGpuPlugin(dp.Plugin):
    """Intel GPUs and virtual functions of them, whole or shared."""

    exclusive = True

    def __init__(
        self, settings: IntelGpuSettings | None = None, sysfs: Sysfs | None = None
    ) -> None:
        self._settings = settings or IntelGpuSettings()
        sysfs = sysfs or Sysfs(self._settings.sysfs_dir)
        dri = self._settings.dev_dir / "dri"
        self._look = Look(sysfs, self._settings.dev_dir, self._settings.selection)
        self._memory = Memory(sysfs, self._settings.state_file)
        lasting = self._settings.error_patience.total_seconds()
        self._steady = SteadyHealth[str](Tolerance(patience=lasting, recovery=lasting))
        self._had_gpus = False
        self._absence = Problems(log, logging.INFO)
        self._unlabelled = Problems(log)
        self._unused = UnusedNames()
        self._placement = Placement([], self._settings)
        self.watch_paths = [dri, dri / "by-path"]

    @override
    def discover(self) -> Iterable[dp.Device]:
        found = self._found()
        own = self._identified(found)
        self._unused.observe(self._settings.resources, [gpu.names for gpu in own])
        health = self._health(own)
        self._memory.save()
        self._placement = Placement(own, self._settings)
        self.shortfalls = self._missing(found)
        unwritten = label_file.update(
            self._settings.labels_file, advertised.labels(found.functions)
        )
        self._unlabelled.say_all("labels not written", unwritten)
        return list(advertised.devices(own, health, self._settings))

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
            also=self._steady.is_due,
            pause=self._steady.until_due,
            heard=self._memory.heard,
        )

    def _found(self) -> Found:
        """Return what is on the node; DiscoveryError if there are GPUs, and never was a driver."""
        found = self._look.look()
        if found.gpus or found.skipped:
            self._had_gpus = True
        elif found.waiting and not self._had_gpus:
            raise dp.DiscoveryError(
                f"no driver ({' or '.join(DRIVERS)}) is bound; GPUs: {', '.join(found.waiting)}"
            )
        elif not found.functions:
            self._absence.say("", "no Intel GPU on this node")
        return found

    def _missing(self, found: Found) -> list[str]:
        """Return why GPUs of the node are not offered."""
        cards = (gpus.names(one.address, gpus.product(one), one.driver) for one in found.functions)
        reasons = {
            **found.skipped,
            **{card: f"is not offered: {why}" for card, why in found.hidden.items()},
            **dict.fromkeys(found.waiting, "has no driver: dmesg | grep -e i915 -e xe"),
        }
        told = (f"{address}: {reason}" for address, reason in reasons.items())
        return [*self._settings.selection.shortfalls(cards), *told]

    def _identified(self, found: Found) -> list[Gpu]:
        """Return the GPUs that can be offered, whose ids are theirs alone.

        Cards can be renumbered while the plugin runs. The id of a card stays that of the first GPU
        that had its number, and another GPU with the number is skipped.
        """
        own = []
        refused = advertised.excess(found.gpus, self._settings)
        for gpu in found.gpus:
            if why := refused.get(advertised.resource(gpu, self._settings)):
                found.skipped[gpu.address] = why
            elif self._settings.device_ids == "address":
                own.append(gpu)
            elif not gpu.card:
                found.skipped[gpu.address] = "it has no card node, and device-ids is card"
            elif (owner := self._memory.owner(gpu.card, gpu.address)) != gpu.address:
                found.skipped[gpu.address] = f"{gpu.card} was {owner} until now: reboot the node"
            else:
                own.append(gpu)
        return own

    def _health(self, own: Sequence[Gpu]) -> dict[str, dp.Health]:
        self._steady.keep({gpu.address for gpu in own})
        health = {}
        for gpu in own:
            certain, doubtful, worn = self._memory.verdict(gpu)
            health[gpu.address] = self._steady.weigh(
                gpu.address, certain=[certain], doubtful=[doubtful], wear=[worn]
            )
        return health
