"""The FPGA plugin."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from threading import Event
from typing import TYPE_CHECKING, Final

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit import udev
from deviceplugin.kit.health import SteadyHealth, Tolerance
from deviceplugin.kit.log import Problems
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_fpga import annotation, drivers, resource_names
from deviceplugin_fpga.devices import (
    KIND,
    DeviceMaker,
    by_address,
    cdi_directory,
    waiting_cards,
    write_specification,
)
from deviceplugin_fpga.drivers import Found, NoDriverError
from deviceplugin_fpga.health import Fault, Key, Severity
from deviceplugin_fpga.settings import FpgaSettings, Mode

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger(__name__)

_SUBSYSTEMS: Final = ("dfl", "fpga", "fpga_region", "pci", "platform")
"""Kernel events of cards, their functions, regions, engines and ports."""
_ANNOTATIONS: Final[Mapping[str, str]] = {"com.intel.fpga.mode": resource_names.REGION_MODE}


class FpgaPlugin(dp.Plugin):
    """Advertise Intel FPGAs by their programmed functions, or as regions to program."""

    exclusive = True

    def __init__(self, settings: FpgaSettings | None = None, sysfs: Sysfs | None = None) -> None:
        self._settings = settings or FpgaSettings()
        self._sysfs = sysfs or Sysfs(self._settings.sysfs_dir)
        self._aliases = resource_names.read_aliases(self._settings.aliases)
        self.mode: Mode = annotation.mode(self._settings)
        lasting = self._settings.error_patience.total_seconds()
        self._steady = SteadyHealth[Key](Tolerance(patience=lasting, recovery=lasting))
        self._has_driver = False
        self._absence = Problems(log, logging.INFO)
        self._skipped = Problems(log)
        self._last: Sequence[dp.Device] = ()
        self._problems: Collection[str] = ()
        self._faults: Collection[Fault] = ()
        self._served: set[str] = set()
        self._specifications = cdi_directory(self._settings.cdi_dir)

    @override
    def discover(self) -> Iterable[dp.Device]:
        found, settings = self._look(), self._settings
        ids = by_address(found) if settings.device_ids == "address" else None
        offer = DeviceMaker(
            found, settings.dev_dir, self._steady, settings.ignore_errors, self._aliases, ids
        )
        devices = list(offer.devices(self.mode))
        devices += self._unreadable(devices, found.problems)
        self._steady.keep({(device.resource, device.id) for device in devices})
        self._last, self._faults = devices, offer.faults
        self._problems = list(found.problems)
        self._skipped.say_all("device skipped", self._problems)
        return [self._prepared(device) for device in devices]

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        allocation = super().allocate(devices)
        if self.mode != "region":
            return allocation
        names = [f"{KIND}={device.id}" for device in devices]
        return allocation + dp.Allocation(annotations=_ANNOTATIONS, cdi_names=names)

    @override
    def changes(self, stop: Event) -> Iterator[None]:
        steady = self._steady
        return udev.changes(
            stop, subsystems=_SUBSYSTEMS, also=steady.is_due, pause=steady.until_due
        )

    @override
    def start(self, resource: str) -> None:
        self._served.add(resource)
        if self.mode == "region":
            for device in self._last:
                if device.resource == resource:
                    self._write_specification(device)

    @override
    def stop(self, resource: str) -> None:
        # The specification stays, because containers that hold the device may restart without us.
        self._served.discard(resource)

    @override
    def metrics(self) -> "Iterable[Metric]":
        from prometheus_client.metrics_core import GaugeMetricFamily

        yield GaugeMetricFamily(
            "deviceplugin_fpga_skipped",
            "Reasons why FPGA devices were skipped in the last discovery.",
            value=len(self._problems),
        )
        errors = GaugeMetricFamily(
            "deviceplugin_fpga_errors",
            "Non-zero error registers in the last discovery, by severity.",
            labels=["severity"],
        )
        counts = Counter(fault.severity for fault in self._faults)
        for severity in Severity:
            errors.add_metric([severity.name.lower()], counts[severity])
        yield errors

    def _look(self) -> Found:
        try:
            found = drivers.look(self._sysfs)
        except NoDriverError as error:
            if self._has_driver:  # the driver was unloaded: all devices have vanished
                return Found(problems={str(error): set()})
            if cards := waiting_cards(self._sysfs):
                raise dp.DiscoveryError(f"{error}; PCI cards: {', '.join(cards)}") from error
            self._absence.say("", "no FPGA on this node", reason=str(error))
            return Found()
        self._has_driver = True
        return found

    def _unreadable(
        self, devices: Sequence[dp.Device], problems: Mapping[str, Collection[str]]
    ) -> Iterator[dp.Device]:
        """Yield devices of the last discovery that still exist, but cannot be read now."""
        readable = {device.id for device in devices}
        for device in self._last:
            names = {device.id, *(PurePath(node.host_path).name for node in device.nodes)}
            reason = next((text for text, about in problems.items() if names & set(about)), "")
            if reason and device.id not in readable:
                yield replace(device, health=dp.Health.unhealthy(reason))

    def _prepared(self, device: dp.Device) -> dp.Device:
        """Return ``device``. It is unhealthy if its CDI specification cannot be written."""
        if self.mode != "region" or device.resource not in self._served:
            return device
        try:
            self._write_specification(device)
        except OSError as error:
            reason = f"no CDI specification: {error.filename}: {error.strerror}"
            return replace(device, health=dp.Health.unhealthy(reason))
        return device

    def _write_specification(self, device: dp.Device) -> None:
        write_specification(self._specifications, device.id, self._settings.hook)
