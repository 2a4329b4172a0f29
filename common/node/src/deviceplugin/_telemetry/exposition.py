"""Writing the metrics as Prometheus reads them. Only a scrape imports this module."""

import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from typing_extensions import override

from deviceplugin._telemetry.instruments import Count, Counter, Gauge, Histogram, Level
from deviceplugin._telemetry.metrics import Attribution, Metrics

_HELD: Final = "deviceplugin_device_allocated"
_END: Final = b"# EOF\n"
"""The last line of the OpenMetrics format."""
_CHUNK: Final = 250
"""Lines that are written before other threads may run."""
_SUFFIXES: Final[Mapping[str, Sequence[str]]] = {
    "counter": ("_total", "_created"),
    "summary": ("_sum", "_count", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "info": ("_info",),
}


def series(family: Metric) -> set[str]:
    """Return the names that ``family`` has in any format, which no other family may have."""
    return {family.name, *(family.name + suffix for suffix in _SUFFIXES.get(family.type, ()))}


class Exposition:
    """Writes ``metrics`` and what its sources collect."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._registry = CollectorRegistry()
        self._registry.register(_Build())
        self._registry.register(_Instruments(metrics.instruments))
        self._registry.register(_Devices(metrics))
        self._registry.register(_Attributed(metrics))
        for source in metrics.sources:
            taken = {name for family in self.families() for name in series(family)}
            self._registry.register(source({*taken, _HELD}))

    def families(self) -> Iterable[Metric]:
        """Return what is collected now: all metrics but the holder of each device."""
        return self._registry.collect()

    def write(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and all metrics; ``accept`` is the HTTP header of that name."""
        try:
            encode, content_type = choose_encoder(accept)
        except (ValueError, TypeError):  # an invalid header
            encode, content_type = choose_encoder("")
        body = encode(self._registry)
        held = "".join(_write_held(self._metrics.attribution())).encode()
        end = body.rfind(_END) if body.endswith(_END) else len(body)
        return content_type, body[:end] + held + body[end:]


class _Build(Collector):
    def __init__(self) -> None:
        names = {"version": "deviceplugin", "grpc": "grpcio"}
        versions = {name: version(package) for name, package in names.items()}
        self._versions = {**versions, "python": platform.python_version()}

    @override
    def collect(self) -> Iterator[Metric]:
        text = "Versions of the framework, Python and grpcio."
        yield InfoMetricFamily("deviceplugin_build", text, value=self._versions)


class _Instruments(Collector):
    def __init__(self, instruments: Iterable[Counter | Gauge | Histogram]) -> None:
        self._instruments = instruments

    @override
    def collect(self) -> Iterator[Metric]:
        for instrument in self._instruments:
            family = Metric(instrument.name, instrument.text, instrument.kind)
            for labels, value in instrument.read():
                if isinstance(value, Level):
                    family.add_sample(family.name, labels, value.value)
                    continue
                if isinstance(value, Count):
                    family.add_sample(f"{family.name}_total", labels, value.value)
                else:
                    counts, total = value.read()
                    for bound, count in counts.items():
                        le = {**labels, "le": str(floatToGoString(bound))}  # type: ignore[no-untyped-call]
                        family.add_sample(f"{family.name}_bucket", le, count)
                    family.add_sample(f"{family.name}_count", labels, counts[float("inf")])
                    family.add_sample(f"{family.name}_sum", labels, total)
                family.add_sample(f"{family.name}_created", labels, value.created)
            yield family


class _Devices(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    @override
    def collect(self) -> Iterator[Metric]:
        devices = GaugeMetricFamily(
            "deviceplugin_devices",
            "Advertised devices, by health.",
            labels=["resource", "health"],
        )
        for resource, healthy, unhealthy in self._metrics.devices():
            devices.add_metric([resource, "healthy"], healthy)
            devices.add_metric([resource, "unhealthy"], unhealthy)
        yield devices


class _Attributed(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    @override
    def collect(self) -> Iterator[Metric]:
        one = ["resource"]
        allocatable = GaugeMetricFamily(
            "deviceplugin_devices_allocatable", "Healthy devices, allocated or not.", labels=one
        )
        allocated = GaugeMetricFamily(
            "deviceplugin_devices_allocated", "Devices allocated to pods.", labels=one
        )
        free = GaugeMetricFamily(
            "deviceplugin_devices_free", "Healthy devices not allocated to any pod.", labels=one
        )
        text = "Healthy devices that will not be healthy for long."
        degraded = GaugeMetricFamily("deviceplugin_devices_degraded", text, labels=one)
        for each in self._metrics.attribution():
            allocatable.add_metric([each.resource], each.allocatable)
            degraded.add_metric([each.resource], each.degraded)
            if each.holders is None:  # unknown is not 0
                continue
            allocated.add_metric([each.resource], len(each.holders))
            free.add_metric([each.resource], each.free)
        yield from (allocatable, allocated, free, degraded)


def _write_held(source: Iterable[Attribution]) -> Iterator[str]:
    """Yield the lines of the only metric that can have very many, ten times as fast as the library.

    The lines are the same in both formats.
    """
    yield f"# HELP {_HELD} 1 for each device allocated to a container.\n"
    yield f"# TYPE {_HELD} gauge\n"
    holders = (h for each in source for held in (each.holders or {}).values() for h in held)
    for number, holder in enumerate(holders):
        if number % _CHUNK == 0:
            time.sleep(0)  # let another thread run, which may answer an Allocate
        resource, device, namespace, pod, container = map(_quoted, holder[:5])
        yield (
            f'{_HELD}{{resource="{resource}",device="{device}",namespace="{namespace}",'
            f'pod="{pod}",container="{container}"}} 1.0\n'
        )


def _quoted(value: str) -> str:
    value = value.encode(errors="replace").decode()
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
