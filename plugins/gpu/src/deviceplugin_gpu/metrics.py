"""Metrics of GPUs: what the driver measures, read at each scrape, and their health.

``GpuMetrics(reader).collect(gpus, health)`` returns the metrics for ``Plugin.metrics``. A separate
thread reads the driver, for all GPUs at once. While the driver does not answer, the last values are
exported until they are stale. A value that a GPU does not report is missing.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from deviceplugin_gpu.health.gpu_health import Health
from deviceplugin_gpu.nvml.api import GPU_IS_LOST, NvmlError, Session, call
from deviceplugin_gpu.nvml.enumeration import UnidentifiedGpu
from deviceplugin_gpu.snapshot import Gpu

_PREFIX: Final = "deviceplugin_gpu_"

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

_TYPES: Final = ("corrected", "uncorrected")
_GAUGES: Final = (
    ("utilization_ratio", "utilization", "Share of time in which the GPU was busy, 0 to 1."),
    ("memory_used_bytes", "memory_used", "Memory in use, in bytes."),
    ("memory_bytes", "memory_total", "Total memory, in bytes."),
    ("temperature_celsius", "temperature", "GPU temperature, in degrees Celsius."),
    ("power_watts", "power", "Power draw, in watts."),
    (
        "row_remapping_pending",
        "remapping_pending",
        "Whether memory rows wait for a reset to be remapped: 1 or 0.",
    ),
    (
        "row_remapping_failed",
        "remapping_failed",
        "Whether remapping a memory row has failed: 1 or 0.",
    ),
)
_COUNTERS: Final = (
    ("energy_joules", "energy", "Energy used since the driver was loaded."),
    ("pcie_replays", "pcie_replays", "PCIe replays."),
)
"""Name, attribute of a reading, and help."""
_T = TypeVar("_T")
_GPU_SENSOR: Final = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver reports of one GPU. None means not reported."""

    utilization: float | None = None
    """Share of time in which the GPU was busy, from 0 to 1."""
    memory_used: int | None = None
    """Bytes."""
    memory_total: int | None = None
    """Bytes."""
    temperature: float | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""
    energy: float | None = None
    """Joules since the driver was loaded."""
    ecc_corrected: int | None = None
    """Errors since the driver was loaded."""
    ecc_uncorrected: int | None = None
    throttling: int | None = None
    """NVML's bits for the reasons why clocks are lower."""
    pcie_replays: int | None = None
    remapped_corrected: int | None = None
    """Memory rows that were remapped for correctable errors."""
    remapped_uncorrected: int | None = None
    remapping_pending: bool | None = None
    remapping_failed: bool | None = None


class Reader(Protocol):
    """Where readings come from."""

    def read(self, uuid: str) -> Reading:
        """Return the present readings of a GPU, or raise NvmlError if it cannot be read."""


class GpuMetrics:
    """The metrics of all GPUs. Thread-safe.

    Args:
        reader: Where readings come from.
        fresh: Seconds for which a reading is reused.
        patience: Seconds to wait for the driver before the last values are returned.
        stale: Seconds after which the last values are dropped.
        clock: Seconds.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        fresh: float = 5.0,
        patience: float = 0.5,
        stale: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._fresh = fresh
        self._patience = patience
        self._stale = stale
        self._clock = clock
        self._lock = threading.Lock()
        self._readings: Mapping[str, Reading] = {}
        self._read_at = float("-inf")
        self._asking: threading.Thread | None = None

    def collect(
        self, gpus: Sequence[Gpu], health: Health, unidentified: Iterable[UnidentifiedGpu] = ()
    ) -> list[Metric]:
        """Return the metrics of ``gpus``, within ``patience``."""
        readings = self._recent([gpu.uuid for gpu in gpus if not gpu.problem])
        families = [*_facts(gpus), _absent(unidentified), *_health(gpus, health)]
        families += _measured(
            [(gpu.uuid, readings[gpu.uuid]) for gpu in gpus if gpu.uuid in readings]
        )
        return [family for family in families if family.samples]

    def _recent(self, uuids: Sequence[str]) -> Mapping[str, Reading]:
        with self._lock:
            if self._asking is None and self._clock() - self._read_at >= self._fresh:
                # One at a time, even if it hangs. It does not keep the process alive.
                self._asking = threading.Thread(
                    target=self._ask, args=(uuids,), name="gpu-metrics", daemon=True
                )
                self._asking.start()
            asking = self._asking
        if asking is not None:
            asking.join(self._patience)
        with self._lock:
            return self._readings if self._clock() - self._read_at < self._stale else {}

    def _ask(self, uuids: Sequence[str]) -> None:
        began = self._clock()
        readings = {}
        try:
            for uuid in uuids:
                try:
                    readings[uuid] = self._reader.read(uuid)
                except NvmlError:
                    continue  # its health has the reason
        finally:
            with self._lock:
                self._readings, self._read_at, self._asking = readings, began, None


def _gauge(name: str, help_: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, help_, labels=["uuid", *labels])


def _counter(name: str, help_: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, help_, labels=["uuid", *labels])


def _facts(gpus: Iterable[Gpu]) -> Iterator[Metric]:
    info = _gauge(
        "info", "GPUs on the node, with index, model and PCI address.", "index", "model", "pci"
    )
    for gpu in gpus:
        info.add_metric([gpu.uuid, str(gpu.index), gpu.name, gpu.pci], 1)
    yield info


def _absent(unidentified: Iterable[UnidentifiedGpu]) -> Metric:
    family = GaugeMetricFamily(
        f"{_PREFIX}absent",
        "GPUs that are not advertised because they have no UUID.",
        labels=["pci", "index"],
    )
    for one in unidentified:
        family.add_metric([one.pci, "" if one.index is None else str(one.index)], 1)
    return family


def _health(gpus: Iterable[Gpu], health: Health) -> Iterator[Metric]:
    healthy = _gauge("healthy", "Whether the GPU is healthy: 1 or 0.")
    unhealthy = _gauge("unhealthy", "Unhealthy GPUs, by cause.", "cause")
    since = _gauge("health_changed_timestamp_seconds", "Unix time of the last change of health.")
    xids = _counter("xids", "XID errors; no UUID where the driver named no GPU.", "xid")
    for gpu in gpus:
        verdict = health.verdict(gpu.uuid)
        healthy.add_metric([gpu.uuid], not verdict.reason)
        since.add_metric([gpu.uuid], verdict.since)
        if verdict.reason:
            unhealthy.add_metric([gpu.uuid, verdict.cause], 1)
    for (uuid, number), count in sorted(health.xids().items()):
        xids.add_metric([uuid, str(number)], count)
    yield from (healthy, unhealthy, since, xids)


_Readings = Sequence[tuple[str, Reading]]


def _measured(readings: _Readings) -> Iterator[Metric]:
    for metric, attribute, help_ in _GAUGES:
        yield _filled(_gauge(metric, help_), readings, {(): attribute})
    for metric, attribute, help_ in _COUNTERS:
        yield _filled(_counter(metric, help_), readings, {(): attribute})
    ecc = _counter("ecc_errors", "ECC memory errors since the driver was loaded.", "type")
    yield _filled(ecc, readings, {(kind,): f"ecc_{kind}" for kind in _TYPES})
    rows = _gauge("remapped_rows", "Remapped memory rows, by type of error.", "type")
    yield _filled(rows, readings, {(kind,): f"remapped_{kind}" for kind in _TYPES})
    yield _throttled(readings)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily,
    readings: _Readings,
    attributes: Mapping[tuple[str, ...], str],
) -> Metric:
    """Return ``family`` with those attributes of readings that exist, by further labels."""
    for uuid, reading in readings:
        for labels, attribute in attributes.items():
            value = getattr(reading, attribute)
            if value is not None:
                family.add_metric([uuid, *labels], value)
    return family


def _throttled(readings: _Readings) -> Metric:
    family = _gauge("throttled", "Whether clocks are throttled, by reason: 1 or 0.", "reason")
    for uuid, reading in readings:
        if reading.throttling is not None:
            for reason, bit in THROTTLING.items():
                family.add_metric([uuid, reason], bool(reading.throttling & bit))
    return family


_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0


class NvmlReader:
    """Reads GPUs through ``session``. A value that a GPU does not report is None."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, uuid: str) -> Reading:
        """Return the present readings of the GPU, or raise NvmlError if it is lost."""
        with self._session.use():
            gpu = call("nvmlDeviceGetHandleByUUID", uuid)
            memory = _asked("nvmlDeviceGetMemoryInfo", gpu)
            rows = _asked("nvmlDeviceGetRemappedRows", gpu) or (None, None, None, None)
            return Reading(
                utilization=_of(
                    _asked("nvmlDeviceGetUtilizationRates", gpu), lambda rates: rates.gpu / 100
                ),
                memory_used=_of(memory, lambda info: int(info.used)),
                memory_total=_of(memory, lambda info: int(info.total)),
                temperature=_asked("nvmlDeviceGetTemperature", gpu, _GPU_SENSOR),
                power=_of(_asked("nvmlDeviceGetPowerUsage", gpu), _thousandth),
                energy=_of(_asked("nvmlDeviceGetTotalEnergyConsumption", gpu), _thousandth),
                ecc_corrected=_asked("nvmlDeviceGetTotalEccErrors", gpu, _CORRECTED, _VOLATILE),
                ecc_uncorrected=_asked("nvmlDeviceGetTotalEccErrors", gpu, _UNCORRECTED, _VOLATILE),
                throttling=_asked("nvmlDeviceGetCurrentClocksEventReasons", gpu),
                pcie_replays=_asked("nvmlDeviceGetPcieReplayCounter", gpu),
                remapped_corrected=rows[0],
                remapped_uncorrected=rows[1],
                remapping_pending=_of(rows[2], bool),
                remapping_failed=_of(rows[3], bool),
            )


def _asked(function: str, *arguments: object) -> Any:
    """Return the result of NVML's ``function``; None if it fails, unless the GPU is lost."""
    try:
        return call(function, *arguments)
    except NvmlError as error:
        if error.code == GPU_IS_LOST:
            raise
        return None


def _of(value: Any, convert: Callable[[Any], _T]) -> _T | None:
    return None if value is None else convert(value)


def _thousandth(value: int) -> float:
    return value / 1000
