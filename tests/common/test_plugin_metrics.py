import logging
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Exemplar
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._app.host import _names
from deviceplugin._platform.hooks import MAX_HANGING, Hooks
from deviceplugin._telemetry import plugin_metrics
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin._telemetry.plugin_metrics import Additions
from patience import PATIENCE
from scripted_plugin import ScriptedPlugin


class Measuring(ScriptedPlugin):
    def __init__(self, measure: Callable[[], Iterable[Metric]]) -> None:
        super().__init__()
        self._measure = measure

    @override
    def metrics(self) -> Iterable[Metric]:
        return self._measure()


class Other(Measuring):
    pass


class PatientHooks(Hooks):
    """Waits for those that do not hang for as long as a busy machine needs."""

    @override
    def call(self, *args: Any, timeout: float) -> Any:
        return super().call(*args, timeout=PATIENCE)


def gauge(name: str, value: float | str, *label: str) -> Metric:
    family = GaugeMetricFamily(name, "For a test.", labels=["card"])
    family.add_metric(label or ["0"], value)  # type: ignore[arg-type]
    return family


def with_sample(
    name: str, sample: str, exemplar: Exemplar | None = None, at: float | None = None
) -> Metric:
    family = Metric(name, "For a test.", "gauge")
    family.add_sample(sample, {}, 1, timestamp=at, exemplar=exemplar)
    return family


def histogram(seconds: float, count: int, **labels: str) -> Metric:
    """A histogram with one limit, in ``seconds``."""
    family = HistogramMetricFamily("wait_seconds", "For a test.", labels=list(labels))
    buckets: list[tuple[str, float]] = [(str(seconds), 0), ("+Inf", count)]
    family.add_metric(list(labels.values()), buckets, seconds * count)
    return family


def scrape(additions: Additions) -> list[str]:
    registry = CollectorRegistry()
    registry.register(additions)
    text = generate_latest(registry).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def additions(*plugins: dp.Plugin, skipped: dict[str, int] | None = None) -> Additions:
    """Return what ``plugins`` add; what they give in vain is counted in ``skipped``."""
    named = dict(zip(_names(plugins), plugins, strict=True))
    count = ({} if skipped is None else skipped).__setitem__
    return Additions(lambda: named, (), count)


def test_many_scrapes_at_once_ask_a_plugin_once() -> None:
    calls: list[None] = []

    def measure() -> Iterable[Metric]:
        calls.append(None)
        return [gauge("fan_rpm", 900)]

    source = additions(ScriptedPlugin(), Measuring(measure))
    with ThreadPoolExecutor(8) as pool:
        scrapes = [*pool.map(scrape, [source] * 8)]
    assert ([['fan_rpm{card="0"} 900.0']] * 8, 1) == (scrapes, len(calls))


@pytest.mark.parametrize(
    ("measure", "error"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: [gauge("fan_rpm", 1, "0", "1", "2"), None], "AttributeError"),
        (lambda: [gauge("fan_rpm", "many")], "ValueError"),
        # Only one of the two formats can be written with it.
        (lambda: [with_sample("fan_rpm", "fan_rpm", Exemplar({"trace": "1"}, 1))], "ValueError"),
        (lambda: [with_sample("fan_rpm", "fan_rpm", at=math.nan)], "ValueError"),
        (lambda: [with_sample("fan", "fan_rpm")], "ValueError: fan has a sample of fan_rpm"),
    ],
)
def test_a_plugin_that_fails_costs_its_own_metrics_only(
    measure: Callable[[], Iterable[Metric]], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = additions(Other(measure), Measuring(lambda: [gauge("fan_rpm", 900)]))
    assert ['fan_rpm{card="0"} 900.0'] == scrape(source)
    assert [("plugin metrics unavailable", "Other")] == [
        (record.message, record.__dict__["plugin"]) for record in caplog.records
    ]
    assert error in caplog.records[0].__dict__["error"]


def test_a_failure_that_lasts_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_metrics, "_FRESH", -1.0)
    source = additions(Measuring(lambda: [None]), Measuring(tuple))  # type: ignore[list-item]
    for _ in range(3):
        assert not scrape(source)
    assert [(logging.WARNING, "Measuring")] == [
        (record.levelno, vars(record)["plugin"]) for record in caplog.records
    ]


def test_a_plugin_that_goes_on_hanging_costs_its_own_metrics_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin_metrics, "_TIMEOUT", 0.05)
    monkeypatch.setattr(plugin_metrics, "_FRESH", -1.0)
    release = threading.Event()
    hanging = Other(lambda: [gauge("never", release.wait())])
    source = additions(hanging, Measuring(lambda: [gauge("fan_rpm", 900)]))
    source._hooks["Measuring"] = PatientHooks()
    try:
        scrapes = [scrape(source) for _ in range(MAX_HANGING + 1)]
    finally:
        release.set()
    assert [['fan_rpm{card="0"} 900.0']] * (MAX_HANGING + 1) == scrapes


def test_what_two_plugins_of_a_class_give_alike_is_there_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_metrics, "_FRESH", -1.0)
    skipped: dict[str, int] = {}
    kept = gauge("fan_rpm", 900, "0")  # the same object at each scrape
    source = additions(
        Measuring(lambda: [kept]),
        Measuring(lambda: [gauge("fan_rpm", 800, "0"), gauge("fan_rpm", 700, "1")]),
        skipped=skipped,
    )
    for _ in range(2):
        assert ['fan_rpm{card="0"} 900.0', 'fan_rpm{card="1"} 700.0'] == scrape(source)
    assert {"Measuring": 0, "Measuring-2": 1} == skipped
    assert [("duplicate metric samples dropped", "Measuring-2", "fan_rpm")] == [
        (record.message, record.__dict__["plugin"], record.__dict__["metric"])
        for record in caplog.records
    ]


def test_a_sample_that_one_family_has_twice_is_there_once() -> None:
    family = gauge("fan_rpm", 900, "0")
    family.add_sample("fan_rpm", {"card": "0", "slot": ""}, 800)  # no value is no label
    skipped: dict[str, int] = {}
    source = additions(Measuring(lambda: [family]), skipped=skipped)
    assert (['fan_rpm{card="0"} 900.0'], {"Measuring": 1}) == (scrape(source), skipped)


def test_of_two_histograms_alike_no_part_of_the_second_is_mixed_into_the_first() -> None:
    skipped: dict[str, int] = {}
    source = additions(
        Measuring(lambda: [histogram(0.1, 3, card="0")]),
        Measuring(lambda: [histogram(0.5, 7, card="0"), histogram(0.5, 5, card="1")]),
        skipped=skipped,
    )
    assert [
        'wait_seconds_bucket{card="0",le="0.1"} 0.0',
        'wait_seconds_bucket{card="0",le="+Inf"} 3.0',
        'wait_seconds_count{card="0"} 3.0',
        'wait_seconds_bucket{card="1",le="0.5"} 0.0',
        'wait_seconds_bucket{card="1",le="+Inf"} 5.0',
        'wait_seconds_count{card="1"} 5.0',
    ] == [line for line in scrape(source) if "_sum" not in line]
    assert {"Measuring": 0, "Measuring-2": 4} == skipped


@pytest.mark.parametrize("taken", ["fan_turns", "fan_turns_total"])
def test_one_name_has_one_type_and_the_series_of_a_counter_are_taken_with_it(
    taken: str, caplog: pytest.LogCaptureFixture
) -> None:
    counter = CounterMetricFamily("fan_turns", "For a test.", value=1)
    source = additions(
        Other(lambda: [counter]),
        Measuring(lambda: [gauge(taken, 2), gauge("fan_rpm", 900)]),
    )
    assert ["fan_turns_total 1.0", 'fan_rpm{card="0"} 900.0'] == scrape(source)
    assert [("Measuring", taken)] == [
        (record.__dict__["plugin"], record.__dict__["metric"]) for record in caplog.records
    ]


def test_what_a_plugin_adds_leaves_the_whole_in_order(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    own = [gauge("deviceplugin_registrations_total", 1), gauge("fan_rpm", 900)]
    named = {"Measuring": Measuring(lambda: own)}
    metrics.plugins = lambda: named
    text = metrics.expose("")[1].decode()
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert "fan_rpm" in types
    assert ["deviceplugin_registrations_total"] == [r.__dict__["metric"] for r in caplog.records]
