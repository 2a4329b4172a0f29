"""Metrics of GPUs."""

import re
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.health.gpu_health import Health
from deviceplugin_gpu.metrics import THROTTLING, GpuMetrics, Reading
from deviceplugin_gpu.nvml.api import NvmlError
from deviceplugin_gpu.nvml.enumeration import UnidentifiedGpu
from deviceplugin_gpu.snapshot import Gpu, Snapshot
from gpu.fake_nvml import Fleet
from gpu.rig import GpuRig, uuid


def samples(rig: GpuRig, **given: object) -> dict[str, float]:
    """Return the metrics of GPU 0 by name and last label."""
    plugin = rig.plugin(**given)
    plugin.discover()
    return {
        sample.name.removeprefix("deviceplugin_gpu_")
        + "".join(
            f"/{value}" for key, value in sample.labels.items() if key == "type"
        ): sample.value
        for family in plugin.metrics()
        for sample in family.samples
        if sample.labels["uuid"] == uuid(0)
    }


def test_what_a_gpu_measures_is_told_in_base_units(rig: GpuRig) -> None:
    rig.has(Fleet.of(1, memory=81920, used=1024, utilization=75, temperature=61, power=350_500))
    found = samples(rig)
    expected = {
        "utilization_ratio": 0.75,
        "memory_used_bytes": 1 << 30,
        "memory_bytes": 80 << 30,
        "temperature_celsius": 61,
        "power_watts": 350.5,
        "healthy": 1,
        "ecc_errors_total/corrected": 0,
    }
    assert expected == {name: found[name] for name in expected}


def test_what_a_gpu_cannot_tell_is_left_out(rig: GpuRig) -> None:
    rig.has(Fleet.of(1)).fake.fail("nvmlDeviceGetPowerUsage", 3)
    rig.fake.fail("nvmlDeviceGetTemperature", 4)
    rig.fake.fail("nvmlDeviceGetTemperatureV", 4)
    found = samples(rig)
    assert {"utilization_ratio"} == found.keys() & {
        "utilization_ratio",
        "power_watts",
        "temperature_celsius",
    }


def test_a_lost_gpu_has_health_and_no_readings(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(2)).plugin()
    plugin.discover()
    rig.fake.change(0, state="lost")
    plugin.discover()
    found = {
        family.name.removeprefix("deviceplugin_gpu_"): [
            sample.value for sample in family.samples if sample.labels["uuid"] == uuid(0)
        ]
        for family in plugin.metrics()
    }
    assert ([0], []) == (found["healthy"], found["utilization_ratio"])


def test_reading_stands_in_nobodys_way_when_nvml_is_shut_down(rig: GpuRig) -> None:
    driver: Driver = rig.has(Fleet.of(1)).driver()
    driver.poll()
    driver.close()
    names = {family.name for family in driver.metrics.collect(driver.gpus, driver.health)}
    assert "deviceplugin_gpu_info" in names
    assert "deviceplugin_gpu_power_watts" not in names


def test_a_driver_that_calls_it_events_is_asked_by_no_older_name(rig: GpuRig) -> None:
    rig.has(Fleet.of(1))
    samples(rig)
    calls = rig.fake.calls()
    assert 2 == calls["nvmlDeviceGetCurrentClocksEventReasons"]  # for health, and for metrics
    assert 0 == calls["nvmlDeviceGetCurrentClocksThrottleReasons"]


PAGE = Path(__file__).parents[3] / "plugins/gpu/docs/metrics.md"
GPUS = (Gpu(0, "g0", "A100", pci="0000:01:00.0"), Gpu(1, "g1", "H100", pci="0000:02:00.0"))
FULL = Reading(
    utilization=0.25,
    memory_used=1 << 30,
    memory_total=80 << 30,
    temperature=41,
    power=62.5,
    energy=1000.25,
    ecc_corrected=3,
    ecc_uncorrected=0,
    throttling=0x4 | 0x1,
    pcie_replays=7,
    remapped_corrected=1,
    remapped_uncorrected=0,
    remapping_pending=True,
    remapping_failed=False,
)


class Measured:
    """Readings by UUID; ``answers`` holds them back while it is not set."""

    def __init__(self, **readings: Reading) -> None:
        self.readings, self.asked = readings, 0
        self.answers = threading.Event()
        self.answers.set()

    def read(self, uuid: str) -> Reading:
        self.asked += 1
        self.answers.wait()
        if uuid not in self.readings:
            raise NvmlError("nvmlDeviceGetUtilizationRates", 15, "GPU is lost")
        return self.readings[uuid]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def health() -> Health:
    health = Health(wall=lambda: 1234.5)
    health.observe(Snapshot(GPUS))
    return health


def values(families: Iterable[Metric]) -> dict[str, float]:
    """Return the values by what stands before them on a page of metrics."""
    found: list[Metric] = list(families)

    class Page(Collector):
        def collect(self) -> Iterable[Metric]:
            return found

    registry = CollectorRegistry()
    registry.register(Page())
    lines = generate_latest(registry).decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    assert len(pairs) == len(dict(pairs))
    return {name.removeprefix("deviceplugin_gpu_"): float(value) for name, value in pairs}


def test_what_the_driver_measures_is_told_in_base_units(health: Health) -> None:
    found = values(GpuMetrics(Measured(g0=FULL)).collect(GPUS, health))
    measured = {name: value for name, value in found.items() if '"g0"' in name}
    assert {
        'info{index="0",model="A100",pci="0000:01:00.0",uuid="g0"}': 1,
        'healthy{uuid="g0"}': 1,
        'health_changed_timestamp_seconds{uuid="g0"}': 1234.5,
        'utilization_ratio{uuid="g0"}': 0.25,
        'memory_used_bytes{uuid="g0"}': 2**30,
        'memory_bytes{uuid="g0"}': 80 * 2**30,
        'temperature_celsius{uuid="g0"}': 41,
        'power_watts{uuid="g0"}': 62.5,
        'energy_joules_total{uuid="g0"}': 1000.25,
        'ecc_errors_total{type="corrected",uuid="g0"}': 3,
        'ecc_errors_total{type="uncorrected",uuid="g0"}': 0,
        'pcie_replays_total{uuid="g0"}': 7,
        'remapped_rows{type="corrected",uuid="g0"}': 1,
        'remapped_rows{type="uncorrected",uuid="g0"}': 0,
        'row_remapping_pending{uuid="g0"}': 1,
        'row_remapping_failed{uuid="g0"}': 0,
        **{
            f'throttled{{reason="{reason}",uuid="g0"}}': float(reason == "software_power_cap")
            for reason in THROTTLING
        },
    } == measured


def test_what_is_not_told_is_left_out(health: Health) -> None:
    found = values(GpuMetrics(Measured(g0=Reading(temperature=30))).collect(GPUS, health))
    assert {"info", "healthy", "health_changed_timestamp_seconds", "temperature_celsius"} == {
        name.partition("{")[0] for name in found if '"g0"' in name
    }
    assert {"info", "healthy", "health_changed_timestamp_seconds"} == {
        name.partition("{")[0] for name in found if '"g1"' in name
    }


def test_a_gpu_with_a_problem_is_not_asked(health: Health) -> None:
    driver = Measured(g0=FULL)
    GpuMetrics(driver).collect([GPUS[0], Gpu(1, "g1", problem="GPU is lost")], health)
    assert 1 == driver.asked


def test_health_and_xids_are_told(health: Health) -> None:
    health.saw_xid("g1", 79)
    health.saw_xid("g1", 79)
    health.saw_xid("", 13)
    found = values(GpuMetrics(Measured()).collect(GPUS, health))
    assert 0 == found['healthy{uuid="g1"}']
    assert 1 == found['unhealthy{cause="xid_79",uuid="g1"}']
    assert 2 == found['xids_total{uuid="g1",xid="79"}']
    assert 1 == found['xids_total{uuid="",xid="13"}']
    assert 'unhealthy{cause="",uuid="g0"}' not in found


def test_the_driver_is_asked_again_when_values_are_not_fresh(health: Health) -> None:
    driver, clock = Measured(g0=FULL, g1=FULL), Clock()
    metrics = GpuMetrics(driver, fresh=5, clock=clock)
    for clock.now, asked in [(0, 2), (4.9, 2), (5, 4), (9, 4), (10, 6)]:
        metrics.collect(GPUS, health)
        assert asked == driver.asked


def test_a_driver_that_does_not_answer_costs_its_values_only(health: Health) -> None:
    driver, clock = Measured(g0=FULL, g1=FULL), Clock()
    metrics = GpuMetrics(driver, fresh=5, patience=0.01, stale=60, clock=clock)

    def temperatures() -> list[str]:
        found = values(metrics.collect(GPUS, health))
        assert 1 == found['healthy{uuid="g0"}']
        return [name for name in found if name.startswith("temperature")]

    driver.answers.clear()
    assert [] == temperatures(), "nothing has been told yet"
    driver.answers.set()
    asking = metrics._asking
    if asking is not None:
        asking.join()
    assert 2 == len(temperatures())

    driver.answers.clear()
    clock.now = 30
    assert 2 == len(temperatures()), "the last values"
    clock.now = 59
    assert 2 == len(temperatures())
    assert 3 == driver.asked, "it is not asked again while it does not answer"
    clock.now = 60
    assert [] == temperatures(), "too old"
    driver.answers.set()
    asking = metrics._asking
    if asking is not None:
        asking.join()
    assert 2 == len(temperatures())


UNITS = ["seconds", "celsius", "bytes", "ratio", "joules", "watts"]


def test_names_are_as_prometheus_wants_them(health: Health) -> None:
    health.saw_xid("g0", 79)
    families = GpuMetrics(Measured(g0=FULL, g1=FULL)).collect(GPUS, health)
    for family in families:
        assert re.fullmatch(r"deviceplugin_gpu_[a-z]+(_[a-z]+)*", family.name)
        assert re.fullmatch(r"[A-Z].+\.", family.documentation)
        assert {"counter": "_total", "gauge": ""}[family.type] in family.samples[0].name
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert not re.search(r"_(gauge|counter|milli|kilo|mib|gib|ms|percent)", family.name)
        labels = {label for sample in family.samples for label in sample.labels}
        assert labels <= {"uuid", "index", "model", "pci", "cause", "xid", "type", "reason"}


def test_the_documentation_lists_all_of_them(health: Health) -> None:
    health.saw_xid("g0", 79)
    unidentified = [UnidentifiedGpu("has no driver", pci="0000:03:00.0")]
    families = GpuMetrics(Measured(g0=FULL, g1=FULL)).collect(GPUS, health, unidentified)
    documented = re.findall(r"^\| `deviceplugin_gpu_(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    told = [sample.name for family in families for sample in family.samples[:1]]
    assert [f"deviceplugin_gpu_{name}" for name in documented] == told
