"""What is counted and measured. Names and labels are promised in ``docs/metrics.md``."""

import platform
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

Count = tuple[str, int, int]
"""A resource with its numbers of healthy and unhealthy devices."""


class Metrics:
    """The metrics of one process, on a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        build = Info("deviceplugin_build", "Versions that are running.", registry=registry)
        build.info(
            {
                "version": version("deviceplugin"),
                "python": platform.python_version(),
                "grpc": version("grpcio"),
            }
        )
        self.registrations = Counter(
            "deviceplugin_registrations",
            "Registrations that the kubelet accepted.",
            ["resource"],
            registry=registry,
        )
        self.registration_failures = Counter(
            "deviceplugin_registration_failures",
            "Registrations that failed: unavailable (no kubelet answers) or refused.",
            ["resource", "reason"],
            registry=registry,
        )
        self.registered = Gauge(
            "deviceplugin_registered",
            "1 while the kubelet is watching the resource.",
            ["resource"],
            registry=registry,
        )
        self.kubelet_restarts = Counter(
            "deviceplugin_kubelet_restarts",
            "Times that a new kubelet socket took the place of an old one.",
            registry=registry,
        )
        self.streams = Gauge(
            "deviceplugin_streams", "Open ListAndWatch streams.", ["resource"], registry=registry
        )
        self.allocations = Counter(
            "deviceplugin_allocations",
            "Allocate requests by the gRPC code of the answer.",
            ["resource", "code"],
            registry=registry,
        )
        self.allocation_seconds = Histogram(
            "deviceplugin_allocation_duration_seconds",
            "Time to answer Allocate.",
            ["resource"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.discovery_seconds = Histogram(
            "deviceplugin_discovery_duration_seconds",
            "Time that discover() took.",
            ["plugin"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.discovery_errors = Counter(
            "deviceplugin_discovery_errors",
            "Discoveries that failed.",
            ["plugin"],
            registry=registry,
        )
        self.discovery_success = Gauge(
            "deviceplugin_discovery_last_success_timestamp_seconds",
            "When a discovery last succeeded, in seconds since the epoch.",
            ["plugin"],
            registry=registry,
        )
        self.skipped_devices = Gauge(
            "deviceplugin_skipped_devices",
            "Devices of the last discovery that could not be advertised.",
            ["plugin"],
            registry=registry,
        )

    def count_devices(self, source: Callable[[], Iterable[Count]]) -> None:
        """Report the numbers that ``source`` gives, asked at each scrape."""
        self.registry.register(_Devices(source))

    def add(self, source: Callable[[Collection[str]], Collector]) -> None:
        """Add the metrics of ``source``, which is told the names of those that are here."""
        self.registry.register(source({family.name for family in self.registry.collect()}))

    def expect_plugin(self, plugin: str) -> None:
        """Have the counters of a plugin start at 0, so that the first increase is seen."""
        self.discovery_errors.labels(plugin)

    def expect_resource(self, resource: str) -> None:
        """Have the counters of a resource start at 0, so that the first increase is seen."""
        self.registrations.labels(resource)
        self.allocations.labels(resource, "OK")
        for reason in ("unavailable", "refused"):
            self.registration_failures.labels(resource, reason)

    def forget(self, resource: str) -> None:
        """Drop the gauges of a resource that has gone; its counters stay."""
        for gauge in (self.registered, self.streams):
            gauge.remove(resource)


class _Devices(Collector):
    def __init__(self, source: Callable[[], Iterable[Count]]) -> None:
        self._source = source

    @override
    def collect(self) -> Iterator[Metric]:
        devices = GaugeMetricFamily(
            "deviceplugin_devices",
            "Devices advertised, by health.",
            labels=["resource", "health"],
        )
        for resource, healthy, unhealthy in self._source():
            devices.add_metric([resource, "healthy"], healthy)
            devices.add_metric([resource, "unhealthy"], unhealthy)
        yield devices
