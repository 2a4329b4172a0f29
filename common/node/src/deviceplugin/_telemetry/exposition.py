"""Writing the metrics as Prometheus reads them. Only a scrape imports this module."""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString
from typing_extensions import override

from deviceplugin._platform.packages import version
from deviceplugin._telemetry.instruments import Count, Counter, Gauge, Histogram, Level
from deviceplugin._telemetry.metrics import MAX_NOT_HEALTHY, Attribution, Metrics
from deviceplugin._telemetry.plugin_metrics import Additions, series

_HELD: Final = "deviceplugin_device_allocated"
_END: Final = b"# EOF\n"
"""The last line of the OpenMetrics format."""
_OPENMETRICS: Final = re.compile(
    r"application/openmetrics-text; ?version=1\.0\.0"
    r"(?:; ?escaping=(allow-utf-8|underscores|dots|values))?(?:; ?q=[01](?:\.[0-9]*)?)?(?:,|$)"
)
"""The beginning of the header ``Accept`` of Prometheus."""
_CHUNK: Final = 250
"""Lines that are written before other threads may run."""


class Exposition:
    """Writes ``metrics`` and what plugins add to them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._registry = CollectorRegistry()
        for collector in (_Build(), _Instruments(metrics.instruments), _Devices(metrics)):
            self._registry.register(collector)
        taken = {name for family in self.families() for name in series(family)}
        self.additions = Additions(metrics.plugins, {*taken, _HELD}, metrics.count_skipped_samples)
        self._registry.register(self.additions)

    def families(self) -> Iterable[Metric]:
        """Return what is collected now: all metrics but the holder of each device."""
        return self._registry.collect()

    def write(self, accept: str) -> tuple[str, bytes]:
        encode, content_type = _encoder(accept)
        body = encode(self._registry)
        held = "".join(_write_held(self._metrics.attribution())).encode()
        end = body.rfind(_END) if body.endswith(_END) else len(body)
        return content_type, body[:end] + held + body[end:]


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return how to write what a scraper accepts, and its content type.

    The library is asked only if OpenMetrics is not what is wanted first, as it is by Prometheus:
    the module in which it decides also has its servers and clients, and needs OpenSSL.
    """
    if (wanted := _OPENMETRICS.match(accept)) and hasattr(openmetrics, "ALLOWUTF8"):
        escaping = wanted[1] or openmetrics.UNDERSCORES
        encode = partial(openmetrics.generate_latest, escaping=escaping, version="1.0.0")
        kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
        return encode, f"{kind}; escaping={escaping}"
    from prometheus_client.exposition import choose_encoder

    try:
        return choose_encoder(accept)
    except (ValueError, TypeError):  # an invalid header
        return choose_encoder("")


class _Build(Collector):
    def __init__(self) -> None:
        names = {"version": "deviceplugin", "grpc": "grpcio"}
        versions = {name: version(package) for name, package in names.items()}
        self._versions = {**versions, "python": sys.version.split()[0]}

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
        by_health = _gauge("deviceplugin_devices", "Advertised devices, by health.", "health")
        for resource, healthy, unhealthy in self._metrics.devices():
            by_health.add_metric([resource, "healthy"], healthy)
            by_health.add_metric([resource, "unhealthy"], unhealthy)
        allocatable = _gauge(
            "deviceplugin_devices_allocatable", "Healthy devices, allocated or not."
        )
        allocated = _gauge("deviceplugin_devices_allocated", "Devices allocated to pods.")
        free = _gauge("deviceplugin_devices_free", "Healthy devices not allocated to any pod.")
        text = "Healthy devices that will not be healthy for long."
        degraded = _gauge("deviceplugin_devices_degraded", text)
        text = "Devices that are back under another device number while a pod has the old node."
        stale = _gauge("deviceplugin_devices_stale", text)
        text = (
            "When a device became unhealthy or degraded, as Unix time; of each resource at most "
            f"{MAX_NOT_HEALTHY} devices are listed."
        )
        name = "deviceplugin_device_health_timestamp_seconds"
        not_healthy = _gauge(name, text, "device", "state", "reason")
        text = "Parts, by what could be: made, free (there is room for each by itself), blocked."
        parts = _gauge("deviceplugin_parts", text, "profile", "state")
        text = "How many more parts of a profile could be made together."
        possible = _gauge("deviceplugin_parts_possible", text, "profile")
        for each in self._metrics.attribution():
            allocatable.add_metric([each.resource], each.allocatable)
            degraded.add_metric([each.resource], each.degraded)
            stale.add_metric([each.resource], each.stale)
            for profile, count in each.parts.items():
                profile_labels = [each.resource, _writable(profile)]
                for state in ("made", "free", "blocked"):
                    parts.add_metric([*profile_labels, state], count[state])
                possible.add_metric(profile_labels, count["possible"])
            for one in each.not_healthy:
                labels = (each.resource, one.device, one.state, one.short_reason)
                not_healthy.add_metric([*map(_writable, labels)], one.since)
            if each.holders is None:  # unknown is not 0
                continue
            allocated.add_metric([each.resource], len(each.holders))
            free.add_metric([each.resource], each.free)
        text = "Devices that a new pod may get, by protocol, if DRA concerns the resource."
        offered = _gauge("deviceplugin_devices_offered", text, "protocol")
        text = "Devices that the wanted protocol does not offer yet, because the other one did."
        leaving = _gauge("deviceplugin_devices_leaving", text)
        for now in self._metrics.offered():
            offered.add_metric([now.resource, "device-plugin"], now.by_plugin)
            offered.add_metric([now.resource, "dra"], now.count_by_dra)
            leaving.add_metric([now.resource], now.leaving)
        yield from (by_health, allocatable, allocated, free, degraded, stale, not_healthy)
        yield from (offered, leaving, parts, possible)


def _gauge(name: str, text: str, *more: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["resource", *more])


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


def _writable(value: str) -> str:
    """Return what can be written of ``value``, which may come from a file's name."""
    return value.encode(errors="replace").decode()


def _quoted(value: str) -> str:
    return _writable(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
