"""The metrics of the framework. ``docs/metrics.md`` promises their names and labels."""

# ruff: noqa: RUF009 - the rows of the table are calls
import platform
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from deviceplugin._telemetry.events import Events

_M = TypeVar("_M", Info, Counter, Gauge, Histogram)

_HELD: Final = "deviceplugin_device_allocated"
_END: Final = b"# EOF\n"
"""The last line of the OpenMetrics format."""
_CHUNK: Final = 250
"""Lines that are written before other threads may run."""
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

Count = tuple[str, int, int]
"""A resource with its numbers of healthy and unhealthy devices."""
Holder = tuple[str, str, str, str, str]
"""Resource, device, namespace, pod and container."""


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


class Attribution(NamedTuple):
    """The allocation of one resource."""

    resource: str
    allocatable: int
    """Healthy devices, allocated or not."""
    free: int
    """Healthy devices that nobody holds."""
    holders: Mapping[str, Iterable[Holder]] | None
    """The holders of each held device, by its id; None if they are unknown."""


def _family(kind: Callable[..., _M], name: str, text: str, *labels: str, **options: Any) -> _M:
    """Return a field of ``Metrics``: each instance creates its own metric."""
    make = partial(kind, name, text, labels, registry=None, **options)
    return field(init=False, default_factory=make)


_counter = partial(_family, Counter)
_gauge = partial(_family, Gauge)
_seconds = partial(_family, Histogram, buckets=_SECONDS)


class _BuildInfo(Info):
    """Reads the versions at the first scrape, because that would delay the start."""

    _is_read = False

    @override
    def collect(self) -> Iterable[Metric]:
        if not self._is_read:
            from importlib.metadata import version

            names = {"version": "deviceplugin", "grpc": "grpcio"}
            versions = {name: version(package) for name, package in names.items()}
            self.info({**versions, "python": platform.python_version()})
            self._is_read = True
        return super().collect()


@dataclass(eq=False, repr=False)
class Metrics:
    """The metrics of one process, in their own registry."""

    build: Info = _family(
        _BuildInfo, "deviceplugin_build", "Versions of the framework, Python and grpcio."
    )
    registrations: Counter = _counter(
        "deviceplugin_registrations", "Registrations that the kubelet accepted.", "resource"
    )
    registration_failures: Counter = _counter(
        "deviceplugin_registration_failures",
        "Failed registration attempts: unavailable (no answer) or refused.",
        "resource",
        "reason",
    )
    registered: Gauge = _gauge(
        "deviceplugin_registered", "1 while the kubelet watches the resource, else 0.", "resource"
    )
    kubelet_restarts: Counter = _counter(
        "deviceplugin_kubelet_restarts",
        "Kubelet restarts, seen by a new kubelet.sock.",
    )
    streams: Gauge = _gauge("deviceplugin_streams", "Open ListAndWatch streams.", "resource")
    allocations: Counter = _counter(
        "deviceplugin_allocations",
        "Allocate requests, by gRPC code.",
        "resource",
        "code",
    )
    allocation_seconds: Histogram = _seconds(
        "deviceplugin_allocation_duration_seconds",
        "Duration of Allocate requests, in seconds.",
        "resource",
    )
    discovery_seconds: Histogram = _seconds(
        "deviceplugin_discovery_duration_seconds", "Duration of discover(), in seconds.", "plugin"
    )
    discovery_errors: Counter = _counter(
        "deviceplugin_discovery_errors", "Failed discoveries and rejected device lists.", "plugin"
    )
    discovery_success: Gauge = _gauge(
        "deviceplugin_discovery_last_success_timestamp_seconds",
        "Unix time of the last successful discovery.",
        "plugin",
    )
    skipped_devices: Gauge = _gauge(
        "deviceplugin_skipped_devices",
        "Invalid devices skipped by the last discovery.",
        "plugin",
    )
    skipped_samples: Gauge = _gauge(
        "deviceplugin_skipped_samples",
        "Samples of a plugin's own metrics dropped as duplicates.",
        "plugin",
    )
    released: Counter = _counter(
        "deviceplugin_released_devices",
        "Devices that pods released, as reported to released().",
        "resource",
    )
    pod_resources_requests: Counter = _counter(
        "deviceplugin_pod_resources_requests",
        "PodResources requests to the kubelet, by gRPC code.",
        "method",
        "code",
    )

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        for family in fields(self):
            self.registry.register(getattr(self, family.name))
        self.events = Events()
        """The latest events, which the page shows."""
        self._attribution: Callable[[], Iterable[Attribution]] = tuple

    def count_skipped_samples(self, plugin: str, number: int) -> None:
        """Set how many samples of the metrics of ``plugin`` were dropped."""
        self.skipped_samples.labels(plugin).set(number)

    def count_pod_resources(self, method: str, code: str) -> None:
        """Count a request to the kubelet."""
        self.pod_resources_requests.labels(method, code).inc()

    def attribute(self, source: Callable[[], Iterable[Attribution]]) -> None:
        """Report the holders of devices. ``source`` is called at each scrape."""
        self._attribution = source
        self.registry.register(_Attributed(source))

    def expose(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and all metrics; ``accept`` is the HTTP header of that name."""
        try:
            encode, content_type = choose_encoder(accept)
        except (ValueError, TypeError):  # an invalid header
            encode, content_type = choose_encoder("")
        body = encode(self.registry)
        held = "".join(_write_held(self._attribution())).encode()
        end = body.rfind(_END) if body.endswith(_END) else len(body)
        return content_type, body[:end] + held + body[end:]

    def count_devices(self, source: Callable[[], Iterable[Count]]) -> None:
        """Report the numbers of devices. ``source`` is called at each scrape."""
        self.registry.register(_Devices(source))

    def add(self, source: Callable[[Collection[str]], Collector]) -> None:
        """Add the collector that ``source`` returns. It gets the names that are taken."""
        taken = {name for family in self.registry.collect() for name in series(family)}
        self.registry.register(source({*taken, _HELD}))

    def expect_plugin(self, plugin: str) -> None:
        """Start the counters of a plugin at 0, so that the first increase is visible."""
        self.discovery_errors.labels(plugin)

    def expect_resource(self, resource: str) -> None:
        """Start the counters of a resource at 0, so that the first increase is visible."""
        self.registrations.labels(resource)
        self.allocations.labels(resource, "OK")
        for reason in ("unavailable", "refused"):
            self.registration_failures.labels(resource, reason)

    def forget(self, resource: str) -> None:
        """Remove the gauges of a withdrawn resource; its counters stay."""
        for gauge in (self.registered, self.streams):
            gauge.remove(resource)


class _Devices(Collector):
    def __init__(self, source: Callable[[], Iterable[Count]]) -> None:
        self._source = source

    @override
    def collect(self) -> Iterator[Metric]:
        devices = GaugeMetricFamily(
            "deviceplugin_devices",
            "Advertised devices, by health.",
            labels=["resource", "health"],
        )
        for resource, healthy, unhealthy in self._source():
            devices.add_metric([resource, "healthy"], healthy)
            devices.add_metric([resource, "unhealthy"], unhealthy)
        yield devices


class _Attributed(Collector):
    def __init__(self, source: Callable[[], Iterable[Attribution]]) -> None:
        self._source = source

    @override
    def collect(self) -> Iterator[Metric]:
        allocatable = GaugeMetricFamily(
            "deviceplugin_devices_allocatable",
            "Healthy devices, allocated or not.",
            labels=["resource"],
        )
        allocated = GaugeMetricFamily(
            "deviceplugin_devices_allocated", "Devices allocated to pods.", labels=["resource"]
        )
        free = GaugeMetricFamily(
            "deviceplugin_devices_free",
            "Healthy devices not allocated to any pod.",
            labels=["resource"],
        )
        for each in self._source():
            allocatable.add_metric([each.resource], each.allocatable)
            if each.holders is None:  # unknown is not 0
                continue
            allocated.add_metric([each.resource], len(each.holders))
            free.add_metric([each.resource], each.free)
        yield from (allocatable, allocated, free)


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
        resource, device, namespace, pod, container = map(_quoted, holder)
        yield (
            f'{_HELD}{{resource="{resource}",device="{device}",namespace="{namespace}",'
            f'pod="{pod}",container="{container}"}} 1.0\n'
        )


def _quoted(value: str) -> str:
    value = value.encode(errors="replace").decode()
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
