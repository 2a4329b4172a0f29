import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

import deviceplugin as dp
from deviceplugin._http.devices_report import attribution
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.exposition import _encoder
from deviceplugin._telemetry.instruments import Count, Instrument, Level, Times
from deviceplugin._telemetry.metrics import MAX_NOT_HEALTHY, Attribution, Metrics, Offered
from scripted_plugin import ScriptedPlugin


def scraped(metrics: Metrics) -> list[Sample]:
    text = metrics.expose("")[1].decode()
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The values of ``name`` as they are scraped, by the values of their labels by name."""
    return {
        tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value
        for sample in scraped(metrics)
        if name == sample.name
    }


def test_the_versions_that_run_are_told() -> None:
    versions = (version("grpcio"), platform.python_version(), version("deviceplugin"))
    assert {versions: 1} == samples(Metrics(), "deviceplugin_build_info")


def test_devices_are_counted_at_each_scrape() -> None:
    metrics = Metrics()
    for count in (("x.io/a", 2, 1), ("x.io/b", 0, 0)):
        metrics.devices = lambda count=count: [count]  # type: ignore[misc]
        name, healthy, unhealthy = count
        expected = {("healthy", name): healthy, ("unhealthy", name): unhealthy}
        assert expected == samples(metrics, "deviceplugin_devices")


def test_what_each_protocol_offers_is_told() -> None:
    metrics = Metrics()
    metrics.offered = lambda: [Offered("x.io/a", 2, frozenset("d"), 3)]
    expected = {("device-plugin", "x.io/a"): 2, ("dra", "x.io/a"): 1}
    assert expected == samples(metrics, "deviceplugin_devices_offered")
    assert {("x.io/a",): 3} == samples(metrics, "deviceplugin_devices_leaving")


def test_holders_are_told_by_device_and_counted_and_absent_where_they_are_not_known() -> None:
    metrics = Metrics()
    holders = [("x.io/a", "1", "ns", "pod", "main"), ("x.io/a", "1", "ns", "pod", "side")]
    metrics.attribution = lambda: [
        Attribution("x.io/a", 3, 2, {"1": holders}),
        Attribution("x.io/b", 3, 3, None),
    ]
    expected = {
        "device_allocated": {
            ("main", "1", "ns", "pod", "x.io/a"): 1,
            ("side", "1", "ns", "pod", "x.io/a"): 1,
        },
        "devices_allocated": {("x.io/a",): 1},
        "devices_free": {("x.io/a",): 2},
        "devices_allocatable": {("x.io/a",): 3, ("x.io/b",): 3},
    }
    assert expected == {name: samples(metrics, f"deviceplugin_{name}") for name in expected}
    taken = metrics.exposition.additions.taken
    assert {"deviceplugin_device_allocated", "deviceplugin_registered"} <= taken


def test_names_of_holders_are_written_as_prometheus_reads_them() -> None:
    metrics = Metrics()
    odd = ("x.io/a", 'a"\n\\n', "\udc80", "{}", "é")
    metrics.attribution = lambda: [Attribution("x.io/a", 1, 0, {"a": [odd]})]
    expected = {("é", 'a"\n\\n', "?", "{}", "x.io/a"): 1}
    assert expected == samples(metrics, "deviceplugin_device_allocated")
    accept = "application/openmetrics-text; version=1.0.0"
    kind, text = metrics.expose(accept)
    assert "application/openmetrics-text" == kind.partition(";")[0]
    (family,) = (
        family
        for family in openmetrics_families(text.decode())  # type: ignore[no-untyped-call]
        if "deviceplugin_device_allocated" == family.name
    )
    assert ("gauge", 1, 'a"\n\\n') == (
        family.type,
        len(family.samples),
        family.samples[0].labels["device"],
    )


_OM = "application/openmetrics-text"


@pytest.mark.parametrize(
    "accept",
    [
        f"{_OM};version=1.0.0;escaping=allow-utf-8;q=0.6,{_OM};version=0.0.1;q=0.5,*/*;q=0.2",
        f"{_OM};version=1.0.0,{_OM};version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5",
        *(f"{_OM}; version=1.0.0; escaping={one}" for one in ("dots", "values", "odd", "")),
        *(f"{_OM};version={one}" for one in ("1.0.0", "1.0.00", "2.0.0", "0.0.1", "x")),
        *(f"{_OM};version=1.0.0{one}" for one in (";q=0", ";charset=utf-8", ";", ",,", "x")),
        *(_OM, f"text/html,{_OM};version=1.0.0", f" {_OM} ;version=1.0.0", f"{_OM}ion=1.0.0"),
        *("", "*/*", "text/plain;version=0.0.4", "text/plain;version=1.0.0;escaping=dots", ";;,="),
    ],
)
def test_the_format_is_the_one_that_the_library_chooses(accept: str) -> None:
    try:
        expected = choose_encoder(accept)
    except (ValueError, TypeError):
        expected = choose_encoder("")
    encode, kind = _encoder(accept)
    registry = CollectorRegistry()
    registry.register(Metrics().exposition.additions)
    assert (expected[1], expected[0](registry)) == (kind, encode(registry))


def not_healthy(metrics: Metrics, *devices: dp.Device) -> list[tuple[str, ...]]:
    """What the series of devices that are not healthy have as labels, and how old they are."""
    resource = Resource("x.io/a", ScriptedPlugin())
    resource.publish(devices)
    metrics.attribution = lambda: [attribution(resource, None)]
    return list(samples(metrics, "deviceplugin_device_health_timestamp_seconds"))


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        (dp.Health(), []),
        (dp.Health.unhealthy("XID 79"), [("a", "XID 79", "x.io/a", "unhealthy")]),
        (dp.Health.degraded("worn out"), [("a", "worn out", "x.io/a", "degraded")]),
        (dp.Health(healthy=False), [("a", "", "x.io/a", "unhealthy")]),
        (dp.Health.unhealthy('a"\\\n\udc80'), [("a", 'a"\\\n?', "x.io/a", "unhealthy")]),
        (dp.Health.unhealthy("x" * 200), [("a", "x" * 200, "x.io/a", "unhealthy")]),
        (dp.Health.unhealthy("x" * 201), [("a", "x" * 199 + "…", "x.io/a", "unhealthy")]),
    ],
)
def test_a_device_that_is_not_healthy_is_named_with_its_reason(
    health: dp.Health, expected: list[tuple[str, ...]]
) -> None:
    assert expected == not_healthy(Metrics(), dp.Device("a", health=health), dp.Device("b"))


def test_a_series_says_since_when_its_device_is_not_healthy() -> None:
    metrics, before = Metrics(), time.time()
    not_healthy(metrics, dp.Device("a", health=dp.Health.unhealthy("hot")))
    (since,) = samples(metrics, "deviceplugin_device_health_timestamp_seconds").values()
    assert before <= since <= time.time()


def test_of_many_devices_that_are_not_healthy_the_first_are_named_unhealthy_ones_first() -> None:
    metrics = Metrics()
    health = {0: dp.Health.unhealthy("hot"), 1: dp.Health.degraded("old")}
    devices = [dp.Device(f"d{n}", health=health[n % 2]) for n in range(4 * MAX_NOT_HEALTHY)]
    found = not_healthy(metrics, *devices)
    assert [f"d{2 * n}" for n in range(MAX_NOT_HEALTHY)] == [labels[0] for labels in found]
    some = devices[: MAX_NOT_HEALTHY + 50]
    states = [labels[-1] for labels in not_healthy(metrics, *some)]
    unhealthy = MAX_NOT_HEALTHY // 2 + 25
    assert ["unhealthy"] * unhealthy + ["degraded"] * (MAX_NOT_HEALTHY - unhealthy) == states
    assert {("x.io/a",): unhealthy} == samples(metrics, "deviceplugin_devices_degraded")


def test_the_gauges_of_a_resource_that_has_gone_are_dropped_and_its_counters_stay() -> None:
    metrics = Metrics()
    for resource in ("x.io/a", "x.io/b"):
        metrics.registered.labels(resource).set(1)
        metrics.streams.labels(resource).set(1)
        metrics.registrations.labels(resource).inc()
    for gone in ("x.io/a", "x.io/none"):
        metrics.forget(gone)
    left = {("x.io/b",): 1}
    expected = {
        "registered": left,
        "streams": left,
        "registrations_total": {**left, ("x.io/a",): 1},
    }
    assert expected == {name: samples(metrics, f"deviceplugin_{name}") for name in expected}


def test_times_are_counted_in_buckets() -> None:
    metrics, name = Metrics(), "deviceplugin_allocation_duration_seconds"
    for seconds in (0.0005, 0.0006, 2.5, 11):
        metrics.allocation_seconds.labels("x").observe(seconds)
    found = samples(metrics, f"{name}_bucket")
    assert [1, 2, 3, 4] == [found[bound, "x"] for bound in ("0.0005", "0.001", "2.5", "+Inf")]
    assert {("x",): 4} == samples(metrics, f"{name}_count")
    assert 13.5011 == pytest.approx(samples(metrics, f"{name}_sum")["x",])


def test_nothing_is_registered_for_the_whole_process() -> None:
    one, other = Metrics(), Metrics()
    one.kubelet_restarts.labels().inc()
    assert {(): 0} == samples(other, "deviceplugin_kubelet_restarts_total")
    assert b"deviceplugin" not in generate_latest(REGISTRY)


def test_a_header_that_makes_no_sense_is_answered_all_the_same() -> None:
    kind, text = Metrics().expose("application/openmetrics-text; version=x")
    assert ("text/plain", True) == (kind.partition(";")[0], b"deviceplugin_build_info" in text)


# Instruments.


def test_counts_of_many_threads_are_all_counted() -> None:
    counter = Instrument(Count, "x", "Text.", "resource")
    begin = threading.Barrier(8)

    def count(_number: int) -> None:
        begin.wait()
        for _ in range(2000):
            counter.labels("a").inc()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert 16_000 == counter.labels("a").value


def test_each_combination_of_labels_has_its_value_until_it_is_removed() -> None:
    gauge = Instrument(Level, "x", "Text.", "resource", "health")
    gauge.labels("a", "good").set(3)
    gauge.labels("a", "bad").set(1)
    good = {"resource": "a", "health": "good"}, 3.0
    bad = {"resource": "a", "health": "bad"}, 1.0
    assert [good, bad] == [(labels, value.value) for labels, value in gauge.read()]
    gauge.remove("a", "good")
    gauge.remove("a", "good")
    assert [bad] == [(labels, value.value) for labels, value in gauge.read()]


@pytest.mark.parametrize("values", [(), ("a",), ("a", "b", "c")])
def test_another_number_of_labels_is_an_error(values: tuple[str, ...]) -> None:
    gauge = Instrument(Level, "x", "Text.", "resource", "health")
    with pytest.raises(ValueError, match="x has the labels"):
        gauge.labels(*values)


def test_a_context_that_raises_is_timed_too() -> None:
    times = Times()
    with pytest.raises(KeyError), times.time():
        raise KeyError
    assert 1 == times.read()[0][float("inf")]
    assert times.sum > 0
