"""Metrics of GPUs: what the driver measures, read at each scrape, and their health.

A separate thread reads the driver, for all GPUs at once. While the driver does not answer, the last
values are exported until they are stale. A value that a GPU does not report is missing.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from deviceplugin_gpu.health.gpu_health import Health
from deviceplugin_gpu.nvml.api import GPU_IS_LOST, Handle, NvmlError, Session, call
from deviceplugin_gpu.nvml.enumeration import UnidentifiedGpu
from deviceplugin_gpu.recent import Recent
from deviceplugin_gpu.snapshot import Gpu

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_PREFIX: Final = "deviceplugin_gpu_"
_GAUGE: Final = "gauge"
_COUNTER: Final = "counter"

THROTTLING: Final[Mapping[str, int]] = {
    "application_clocks": 0x2,
    "software_power_cap": 0x4,
    "hardware_slowdown": 0x8,
    "sync_boost": 0x10,
    "software_thermal": 0x20,
    "hardware_thermal": 0x40,
    "hardware_power_brake": 0x80,
    "display_clocks": 0x100,
}
"""Bits of NVML's clocks event reasons, without the one for an idle GPU."""

_MEASURED: Final[Mapping[str, tuple[str, str, *tuple[str, ...]]]] = {
    "utilization_ratio": (_GAUGE, "Share of time in which the GPU was busy, 0 to 1."),
    "memory_used_bytes": (_GAUGE, "Memory in use, in bytes."),
    "memory_bytes": (_GAUGE, "Total memory, in bytes."),
    "temperature_celsius": (_GAUGE, "GPU temperature, in degrees Celsius."),
    "power_watts": (_GAUGE, "Power draw, in watts."),
    "row_remapping_pending": (
        _GAUGE,
        "Whether memory rows wait for a reset to be remapped: 1 or 0.",
    ),
    "row_remapping_failed": (_GAUGE, "Whether remapping a memory row has failed: 1 or 0."),
    "energy_joules": (_COUNTER, "Energy used since the driver was loaded."),
    "pcie_replays": (_COUNTER, "PCIe replays."),
    "ecc_errors": (_COUNTER, "ECC memory errors since the driver was loaded.", "type"),
    "remapped_rows": (_GAUGE, "Remapped memory rows, by type of error.", "type"),
    "throttled": (_GAUGE, "Whether clocks are throttled, by reason: 1 or 0.", "reason"),
}
"""Kind, help and further label of what the driver measures, by the name of the metric."""
_CORRECTED, _UNCORRECTED = "corrected", "uncorrected"
_NUMBERS: Final[Mapping[tuple[str, ...], tuple[int, str, *tuple[int, ...]]]] = {
    ("temperature_celsius",): (1, "nvmlDeviceGetTemperature", 0),
    ("power_watts",): (1000, "nvmlDeviceGetPowerUsage"),
    ("energy_joules",): (1000, "nvmlDeviceGetTotalEnergyConsumption"),
    ("pcie_replays",): (1, "nvmlDeviceGetPcieReplayCounter"),
    ("ecc_errors", _CORRECTED): (1, "nvmlDeviceGetTotalEccErrors", 0, 0),
    ("ecc_errors", _UNCORRECTED): (1, "nvmlDeviceGetTotalEccErrors", 1, 0),
}
"""What NVML returns as a number: what to divide it by, the function and its arguments."""

Reading = Mapping[tuple[str, ...], float]
"""What the driver reports of one GPU, by name of the metric and value of its further label."""


class GpuMetrics:
    """The metrics of all GPUs. Thread-safe.

    ``read`` returns the readings of a GPU, or raises NvmlError. ``patience`` is for how many
    seconds ``collect`` waits for the driver before it returns the last values.
    """

    def __init__(
        self,
        read: Callable[[str], Reading],
        *,
        patience: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self.recent = Recent[Mapping[str, Reading]]("gpu-metrics", {}, clock, patience)

    def collect(
        self, gpus: Sequence[Gpu], health: Health, unidentified: Iterable[UnidentifiedGpu] = ()
    ) -> "list[Metric]":
        """Return the metrics of ``gpus``, within ``patience``."""
        uuids = [gpu.uuid for gpu in gpus if gpu.answers]
        readings = self.recent.begin(partial(self._ask, uuids))()
        families = [*_facts(gpus), _absent(unidentified), *_health(gpus, health)]
        families += _measured(
            [(gpu.uuid, readings[gpu.uuid]) for gpu in gpus if gpu.uuid in readings]
        )
        return [family for family in families if family.samples]

    def _ask(self, uuids: Sequence[str]) -> Mapping[str, Reading]:
        readings = {}
        for uuid in uuids:
            with suppress(NvmlError):  # its health has the reason
                readings[uuid] = self._read(uuid)
        return readings


def _family(kind: str, name: str, help_: str, *labels: str) -> Any:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    make = GaugeMetricFamily if kind == _GAUGE else CounterMetricFamily
    return make(_PREFIX + name, help_, labels=["uuid", *labels])


def _facts(gpus: Iterable[Gpu]) -> "Iterator[Metric]":
    help_ = "GPUs on the node, with index, model and PCI address."
    info = _family(_GAUGE, "info", help_, "index", "model", "pci")
    for gpu in gpus:
        info.add_metric([gpu.uuid, str(gpu.index), gpu.name, gpu.pci], 1)
    yield info


def _absent(unidentified: Iterable[UnidentifiedGpu]) -> "Metric":
    from prometheus_client.metrics_core import GaugeMetricFamily

    family = GaugeMetricFamily(
        f"{_PREFIX}absent",
        "GPUs that are not advertised because they have no UUID.",
        labels=["pci", "index"],
    )
    for one in unidentified:
        family.add_metric([one.pci, "" if one.index is None else str(one.index)], 1)
    return family


def _health(gpus: Iterable[Gpu], health: Health) -> "Iterator[Metric]":
    healthy = _family(_GAUGE, "healthy", "Whether the GPU is healthy: 1 or 0.")
    unhealthy = _family(_GAUGE, "unhealthy", "Unhealthy GPUs, by cause.", "cause")
    since = _family(
        _GAUGE, "health_changed_timestamp_seconds", "Unix time of the last change of health."
    )
    xids = _family(_COUNTER, "xids", "XID errors; no UUID where the driver named no GPU.", "xid")
    license_ = _family(_GAUGE, "vgpu_license", "Licenses of virtual GPUs, by state.", "state")
    help_ = "Unix time at which the license of a virtual GPU expires."
    expiry = _family(_GAUGE, "vgpu_license_expiry_timestamp_seconds", help_)
    for gpu in gpus:
        verdict = health.verdict(gpu.uuid)
        if state := verdict.license.name:
            license_.add_metric([gpu.uuid, state], 1)
        if verdict.license.expires is not None:
            expiry.add_metric([gpu.uuid], verdict.license.expires)
        healthy.add_metric([gpu.uuid], not verdict.reason)
        since.add_metric([gpu.uuid], verdict.since)
        if verdict.reason:
            unhealthy.add_metric([gpu.uuid, verdict.cause], 1)
    for (uuid, number), count in sorted(health.xids().items()):
        xids.add_metric([uuid, str(number)], count)
    yield from (healthy, unhealthy, since, xids, license_, expiry)


def _measured(readings: Sequence[tuple[str, Reading]]) -> "Iterator[Metric]":
    families = {
        name: _family(kind, name, help_, *labels)
        for name, (kind, help_, *labels) in _MEASURED.items()
    }
    for uuid, reading in readings:
        for (name, *values), value in reading.items():
            families[name].add_metric([uuid, *values], value)
    yield from families.values()


def read_gpu(session: Session, uuid: str, address: str = "") -> Reading:
    """Return the present readings of the GPU, or raise NvmlError if it is lost, or held."""
    with session.use():
        return dict(_readings(session.gpu(uuid, address)))


def _readings(gpu: Handle) -> Iterator[tuple[tuple[str, ...], float]]:
    if rates := _asked("nvmlDeviceGetUtilizationRates", gpu):
        yield ("utilization_ratio",), rates.gpu / 100
    if memory := _asked("nvmlDeviceGetMemoryInfo", gpu):
        yield ("memory_used_bytes",), int(memory.used)
        yield ("memory_bytes",), int(memory.total)
    for name, (divisor, function, *arguments) in _NUMBERS.items():
        if (value := _asked(function, gpu, *arguments)) is not None:
            yield name, value / divisor
    if rows := _asked("nvmlDeviceGetRemappedRows", gpu):
        yield ("remapped_rows", _CORRECTED), rows[0]
        yield ("remapped_rows", _UNCORRECTED), rows[1]
        yield ("row_remapping_pending",), bool(rows[2])
        yield ("row_remapping_failed",), bool(rows[3])
    if (reasons := _asked("nvmlDeviceGetCurrentClocksEventReasons", gpu)) is not None:
        for reason, bit in THROTTLING.items():
            yield ("throttled", reason), bool(reasons & bit)


def _asked(function: str, *arguments: object) -> Any:
    """Return the result of NVML's ``function``; None if it fails, unless the GPU is lost."""
    try:
        return call(function, *arguments)
    except NvmlError as error:
        if error.code == GPU_IS_LOST:
            raise
        return None
