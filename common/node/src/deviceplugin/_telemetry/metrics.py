"""The metrics of the framework. ``docs/metrics.md`` promises their names and labels."""

# ruff: noqa: RUF009 - the rows of the table are calls
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from deviceplugin._telemetry.events import Events
from deviceplugin._telemetry.instruments import (
    Count,
    Counter,
    Gauge,
    Histogram,
    Instrument,
    Level,
    Times,
)
from deviceplugin.plugin import Holder, Plugin

if TYPE_CHECKING:
    from deviceplugin._telemetry.exposition import Exposition

UNAVAILABLE: Final = "unavailable"
REFUSED: Final = "refused"
"""The reasons for which registrations fail."""
OK: Final = "OK"
FAILED: Final = "FAILED"
"""The codes of claims and of writes of slices."""
ALLOCATION_CODES: Final = (OK, "NOT_FOUND", "FAILED_PRECONDITION", "DEADLINE_EXCEEDED", "INTERNAL")
"""All codes with which an Allocate is answered."""
DeviceCount = tuple[str, int, int]
"""A resource with its numbers of healthy and unhealthy devices."""
MAX_NOT_HEALTHY: Final = 100
"""Devices of a resource that have a series each because they are not healthy."""
_MAX_REASON: Final = 200
"""Characters of a reason in a label; the page and the log have all of it."""


class NotHealthy(NamedTuple):
    """A device that is unhealthy or degraded."""

    device: str
    state: str
    reason: str
    since: float
    """When its health last changed, in seconds since the epoch."""

    @property
    def short_reason(self) -> str:
        """The reason, cut to what a label should have."""
        long = len(self.reason) > _MAX_REASON
        return f"{self.reason[: _MAX_REASON - 1]}\N{HORIZONTAL ELLIPSIS}" if long else self.reason


class Attribution(NamedTuple):
    """The allocation and the health of one resource."""

    resource: str
    allocatable: int
    """Healthy devices, allocated or not."""
    free: int
    """Healthy devices that nobody holds."""
    holders: Mapping[str, Iterable[Holder]] | None
    """The holders of each held device, by its id; None if they are unknown."""
    degraded: int = 0
    """Healthy devices that will not be healthy for long."""
    not_healthy: Sequence[NotHealthy] = ()
    """The first ``MAX_NOT_HEALTHY`` of these, unhealthy ones before degraded ones."""
    stale: int = 0
    """Devices whose holder has a device node that is gone."""
    parts: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    """How many parts are made, free, blocked and possible, by profile."""


class Offered(NamedTuple):
    """What each protocol offers of one resource."""

    resource: str
    by_plugin: int
    """How many devices."""
    by_dra: frozenset[str]
    """The ids of the devices."""
    leaving: int
    """Devices that the wanted protocol does not offer yet, because the other one did."""
    spare: int = 0
    """How many of ``by_dra`` are parts that nobody has: they are not there yet."""

    @property
    def count_by_dra(self) -> int:
        return len(self.by_dra) - self.spare


def _counter(name: str, text: str, *labels: str) -> Counter:
    make = partial(Instrument, Count, name, text, *labels)
    return field(init=False, default_factory=make)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    make = partial(Instrument, Level, name, text, *labels)
    return field(init=False, default_factory=make)


def _seconds(name: str, text: str, *labels: str) -> Histogram:
    make = partial(Instrument, Times, name, text, *labels)
    return field(init=False, default_factory=make)


@dataclass(eq=False, repr=False)
class Metrics:
    """The metrics of one process. Only the first scrape imports what writes them."""

    registrations: Counter = _counter(
        "deviceplugin_registrations", "Registrations that the kubelet accepted.", "resource"
    )
    registration_failures: Counter = _counter(
        "deviceplugin_registration_failures",
        f"Failed registration attempts: {UNAVAILABLE} (no answer) or {REFUSED}.",
        "resource",
        "reason",
    )
    registered: Gauge = _gauge(
        "deviceplugin_registered",
        "0 while the kubelet should watch the resource and does not, else 1.",
        "resource",
    )
    kubelet_restarts: Counter = _counter(
        "deviceplugin_kubelet_restarts", "Kubelet restarts, seen by a new kubelet.sock."
    )
    lost_directories: Gauge = _gauge(
        "deviceplugin_lost_directories",
        "Directories that are mounted here and that the host does not have there any more.",
    )
    streams: Gauge = _gauge("deviceplugin_streams", "Open ListAndWatch streams.", "resource")
    allocations: Counter = _counter(
        "deviceplugin_allocations", "Allocate requests, by gRPC code.", "resource", "code"
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
        "deviceplugin_skipped_devices", "Invalid devices skipped by the last discovery.", "plugin"
    )
    shortfalls: Gauge = _gauge(
        "deviceplugin_shortfalls",
        "What the last discovery should offer and does not: hardware and settings.",
        "plugin",
    )
    invalid_entries: Gauge = _gauge(
        "deviceplugin_invalid_entries",
        "Entries of the settings that are wrong, and skipped.",
        "plugin",
    )
    skipped_samples: Gauge = _gauge(
        "deviceplugin_skipped_samples",
        "Samples of a plugin's own metrics dropped as duplicates.",
        "plugin",
    )
    held: Gauge = _gauge("deviceplugin_held_devices", "Devices that an operator holds.")
    oldest_hold: Gauge = _gauge(
        "deviceplugin_oldest_hold_timestamp_seconds",
        "Unix time since which a device has been held; 0 if none is.",
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

    driver_registered: Gauge = _gauge(
        "deviceplugin_driver_registered",
        "0 while the kubelet should have the DRA driver and has not, else 1.",
        "driver",
    )
    claims_prepared: Gauge = _gauge(
        "deviceplugin_claims_prepared", "Claims that are prepared or being prepared.", "driver"
    )
    part_calls: Counter = _counter(
        "deviceplugin_part_calls",
        f"Calls to make or remove a part of a device: {OK} or {FAILED}.",
        "driver",
        "method",
        "code",
    )
    claim_calls: Counter = _counter(
        "deviceplugin_claim_calls",
        f"Claims that the kubelet wanted prepared or unprepared: {OK} or {FAILED}.",
        "driver",
        "method",
        "code",
    )
    claim_seconds: Histogram = _seconds(
        "deviceplugin_claim_call_duration_seconds",
        "Time to prepare or unprepare a claim, in seconds.",
        "driver",
        "method",
    )
    slice_writes: Counter = _counter(
        "deviceplugin_slice_writes", "Writes of ResourceSlices.", "driver", "action", "code"
    )
    claim_status_writes: Counter = _counter(
        "deviceplugin_claim_status_writes", "Writes of the status of claims.", "driver", "code"
    )
    api_requests: Counter = _counter(
        "deviceplugin_api_requests",
        "DRA's requests to the API server, by status; 0 without an answer.",
        "method",
        "code",
    )

    def __post_init__(self) -> None:
        self.instruments: Sequence[Counter | Gauge | Histogram] = [
            getattr(self, each.name) for each in fields(self)
        ]
        """All of them."""
        self.events = Events()
        """The latest events, which the page shows."""
        self.attribution: Callable[[], Iterable[Attribution]] = tuple
        """Returns the holders of devices. It is called at each scrape."""
        self.devices: Callable[[], Iterable[DeviceCount]] = tuple
        """Returns the numbers of devices. It is called at each scrape."""
        self.offered: Callable[[], Iterable[Offered]] = tuple
        """Returns which protocol offers how many devices. It is called at each scrape."""
        self.plugins: Callable[[], Mapping[str, Plugin]] = dict
        """Returns the plugins by their names, which may add metrics of their own."""
        self._lock = threading.Lock()
        self._exposition: Exposition | None = None

    def count_skipped_samples(self, plugin: str, number: int) -> None:
        self.skipped_samples.labels(plugin).set(number)

    def count_pod_resources(self, method: str, code: str) -> None:
        self.pod_resources_requests.labels(method, code).inc()

    def count_api_request(self, method: str, status: int) -> None:
        self.api_requests.labels(method, str(status)).inc()

    @property
    def exposition(self) -> "Exposition":
        """What writes the metrics. The first access imports it."""
        with self._lock:
            if self._exposition is None:
                from deviceplugin._telemetry.exposition import Exposition

                self._exposition = Exposition(self)
            return self._exposition

    def expose(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and all metrics; ``accept`` is the HTTP header of that name."""
        return self.exposition.write(accept)

    def expect_resource(self, resource: str) -> None:
        """Start the counters of a resource at 0, so that the first increase is visible."""
        self.registrations.labels(resource)
        for code in ALLOCATION_CODES:
            self.allocations.labels(resource, code)
        for reason in (UNAVAILABLE, REFUSED):
            self.registration_failures.labels(resource, reason)

    def expect_driver(self, driver: str, actions: Iterable[str]) -> None:
        """Start the counters of a DRA driver at 0; ``actions`` are those on slices."""
        for code in (OK, FAILED):
            self.claim_status_writes.labels(driver, code)
            for action in actions:
                self.slice_writes.labels(driver, action, code)

    def forget(self, resource: str) -> None:
        """Remove the gauges of a withdrawn resource; its counters stay."""
        for gauge in (self.registered, self.streams):
            gauge.remove(resource)
