"""Metrics of GPUs."""

import re
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from deviceplugin.kit.containers import Container
from deviceplugin_gpu import usage
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.health.gpu_health import Health
from deviceplugin_gpu.metrics import THROTTLING, GpuMetrics, Reading
from deviceplugin_gpu.nvml.api import NvmlError
from deviceplugin_gpu.nvml.enumeration import UnidentifiedGpu
from deviceplugin_gpu.recent import Recent
from deviceplugin_gpu.snapshot import Gpu, License, Snapshot
from gpu.fake_nvml import Fleet
from gpu.rig import GpuRig, uuid
from patience import eventually

PAGE = Path(__file__).parents[3] / "plugins/gpu/docs/metrics.md"
GPUS = (Gpu(0, "g0", "A100", pci="0000:01:00.0"), Gpu(1, "g1", "H100", pci="0000:02:00.0"))
WARM: Reading = {("temperature_celsius",): 41}
OF_HEALTH = {"info", "healthy", "health_changed_timestamp_seconds"}


class Measured:
    """Readings by UUID; ``answers`` holds them back while it is not set."""

    def __init__(self, **readings: Reading) -> None:
        self.readings, self.asked, self.now = readings, 0, 0.0
        self.answers = threading.Event()
        self.answers.set()
        self.metrics = GpuMetrics(self.read, patience=0.01, clock=lambda: self.now)

    def read(self, uuid: str) -> Reading:
        self.asked += 1
        self.answers.wait()
        if uuid not in self.readings:
            raise NvmlError("nvmlDeviceGetUtilizationRates", 15, "GPU is lost")
        return self.readings[uuid]

    def answer(self) -> None:
        """Answer, and wait until that is known."""
        self.answers.set()
        asking = self.metrics.recent.asking
        if asking is not None:
            asking.join()


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


def of(uuid: str, found: dict[str, float]) -> set[str]:
    """Return the names of the metrics of a GPU."""
    return {name.partition("{")[0] for name in found if f'uuid="{uuid}"' in name}


ALL = """gpu 0 name=A100 memory=80GiB used=1GiB utilization=75 temperature=61 power=350500 \
energy=1000250 corrected=3 uncorrected=2 throttle=5 replays=7 remapped-corrected=1 \
remapped-uncorrected=4 remap-pending=yes
"""


def test_what_a_gpu_measures_is_told_in_base_units(rig: GpuRig) -> None:
    rig.fake.write(ALL)
    plugin = rig.plugin()
    plugin.discover()
    found = values(plugin.metrics())
    since = found.pop(f'health_changed_timestamp_seconds{{uuid="{uuid(0)}"}}')
    assert since > 1e9
    expected = {
        'info{index="0",model="A100",pci="0000:01:00.0",uuid="g0"}': 1,
        'healthy{uuid="g0"}': 1,
        'utilization_ratio{uuid="g0"}': 0.75,
        'memory_used_bytes{uuid="g0"}': 2**30,
        'memory_bytes{uuid="g0"}': 80 * 2**30,
        'temperature_celsius{uuid="g0"}': 61,
        'power_watts{uuid="g0"}': 350.5,
        'energy_joules_total{uuid="g0"}': 1000.25,
        'ecc_errors_total{type="corrected",uuid="g0"}': 3,
        'ecc_errors_total{type="uncorrected",uuid="g0"}': 2,
        'pcie_replays_total{uuid="g0"}': 7,
        'remapped_rows{type="corrected",uuid="g0"}': 1,
        'remapped_rows{type="uncorrected",uuid="g0"}': 4,
        'row_remapping_pending{uuid="g0"}': 1,
        'row_remapping_failed{uuid="g0"}': 0,
        **{
            f'throttled{{reason="{reason}",uuid="g0"}}': float(reason == "software_power_cap")
            for reason in THROTTLING
        },
    }
    assert expected == {name.replace(uuid(0), "g0"): value for name, value in found.items()}
    calls = rig.fake.calls()
    assert 2 == calls["nvmlDeviceGetCurrentClocksEventReasons"]  # for health, and for metrics
    assert 0 == calls["nvmlDeviceGetCurrentClocksThrottleReasons"]


def test_what_a_gpu_cannot_tell_is_left_out(rig: GpuRig) -> None:
    rig.has(Fleet.of(1))
    for function in (
        *("UtilizationRates", "MemoryInfo", "Temperature", "TemperatureV", "PowerUsage"),
        *("TotalEnergyConsumption", "TotalEccErrors", "PcieReplayCounter", "RemappedRows"),
        "CurrentClocksEventReasons",
    ):
        rig.fake.fail(f"nvmlDeviceGet{function}", 4)
    plugin = rig.plugin()
    plugin.discover()
    assert OF_HEALTH == of(uuid(0), values(plugin.metrics()))


def test_a_lost_gpu_has_health_and_no_readings(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(2)).plugin()
    plugin.discover()
    rig.fake.change(0, state="lost")
    plugin.discover()
    found = values(plugin.metrics())
    assert {*OF_HEALTH, "unhealthy"} == of(uuid(0), found)
    assert 0 == found[f'healthy{{uuid="{uuid(0)}"}}']
    assert "utilization_ratio" in of(uuid(1), found)


def test_reading_stands_in_nobodys_way_when_nvml_is_shut_down(rig: GpuRig) -> None:
    driver: Driver = rig.has(Fleet.of(1)).driver()
    driver.poll()
    driver.close()
    found = values(driver.metrics.collect(driver.gpus, driver.health))
    assert {*OF_HEALTH, "unhealthy"} == of(uuid(0), found)


def test_a_gpu_with_a_problem_is_not_asked(health: Health) -> None:
    driver = Measured(g0=WARM)
    lost = Gpu(1, "g1", problem="GPU is lost")
    driver.metrics.collect([GPUS[0], lost], health)
    driver.answer()
    found = values(driver.metrics.collect([GPUS[0], lost], health))
    assert (1, {*OF_HEALTH, "temperature_celsius"}) == (driver.asked, of("g0", found))


def test_a_gpu_whose_rows_cannot_be_remapped_says_so(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(1, remap_failed=True)).plugin()
    plugin.discover()
    found = values(plugin.metrics())
    assert (0, 1) == tuple(
        found[f'{name}{{uuid="{uuid(0)}"}}'] for name in ("healthy", "row_remapping_failed")
    )


def test_health_and_xids_are_told(health: Health) -> None:
    health.saw_xid("g1", 79)
    health.saw_xid("g1", 79)
    health.saw_xid("", 13)
    found = values(Measured().metrics.collect(GPUS, health))
    assert OF_HEALTH == of("g0", found)
    assert 0 == found['healthy{uuid="g1"}']
    assert 1234.5 == found['health_changed_timestamp_seconds{uuid="g1"}']
    assert 1 == found['unhealthy{cause="xid_79",uuid="g1"}']
    assert 2 == found['xids_total{uuid="g1",xid="79"}']
    assert 1 == found['xids_total{uuid="",xid="13"}']


def test_the_driver_is_asked_again_when_values_are_not_fresh(health: Health) -> None:
    driver = Measured(g0=WARM, g1=WARM)
    for driver.now, asked in [(0, 2), (4.9, 2), (5, 4), (9, 4), (10, 6)]:
        driver.metrics.collect(GPUS, health)
        driver.answer()
        assert asked == driver.asked


def test_a_driver_that_does_not_answer_costs_its_values_only(health: Health) -> None:
    driver = Measured(g0=WARM, g1=WARM)

    def temperatures() -> int:
        found = values(driver.metrics.collect(GPUS, health))
        assert 1 == found['healthy{uuid="g0"}']
        return sum(name.startswith("temperature") for name in found)

    driver.answers.clear()
    assert 0 == temperatures(), "nothing has been told yet"
    driver.answer()
    assert 2 == temperatures()
    driver.answers.clear()
    for driver.now in (30, 59):
        assert 2 == temperatures(), "the last values"
    assert 3 == driver.asked, "it is not asked again while it does not answer"
    driver.now = 60
    assert 0 == temperatures(), "too old"
    driver.answer()
    assert 2 == temperatures()


def test_a_call_that_hangs_delays_only_the_first_scrape() -> None:
    now, answers = 0.0, threading.Event()
    recent = Recent("slow", "nothing", lambda: now, patience=3600)
    begun = recent.begin(lambda: str(answers.wait()))
    now = 3600.0
    assert ["nothing"] * 2 == [begun(), recent.begin(str)()]
    answers.set()


def test_a_scrape_waits_for_measurements_and_usage_at_once(
    rig: GpuRig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = rig.plugin(container_logs=tmp_path)
    rig.fake.write("gpu 0\n")
    list(plugin.discover())
    hangs = Measured()
    hangs.answers.clear()
    plugin._driver.metrics = GpuMetrics(hangs.read, patience=3600)
    scrape = threading.Thread(target=plugin.metrics)
    scrape.start()
    try:
        eventually(lambda: "GPU usage incomplete" in caplog.messages, "the usage")
    finally:
        hangs.answers.set()
        scrape.join()


def test_without_a_free_thread_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recent = Recent("late", "nothing", lambda: 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("no thread")))
        with pytest.raises(RuntimeError, match="no thread"):
            recent.begin(str)
    assert "something" == recent.begin(lambda: "something")()


def test_names_are_as_prometheus_wants_them_and_as_the_page_has_them(
    rig: GpuRig, health: Health
) -> None:
    rig.fake.write(ALL)
    driver = rig.driver()
    driver.poll()
    health.saw_xid("g0", 79)
    unidentified = [UnidentifiedGpu("has no driver", pci="0000:03:00.0")]
    virtual = replace(GPUS[0], license=License(licensed=True, expires=9e9))
    health.observe(Snapshot((virtual, GPUS[1])))
    families = driver.metrics.collect([*driver.gpus, *GPUS], health, unidentified)
    used = {"memory_used_bytes": 1, "utilization_ratio": 0.5}
    rows = [usage.Row("g0", "g0", who, used) for who in (Container("a", "b", "c"), None)]
    families += usage.families(rows, (), {})
    for family in families:
        assert re.fullmatch(r"deviceplugin_gpu_[a-z]+(_[a-z]+)*", family.name)
        assert re.fullmatch(r"[A-Z].+\.", family.documentation)
        assert {"counter": "_total", "gauge": ""}[family.type] in family.samples[0].name
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert not re.search(r"_(gauge|counter|milli|kilo|mib|gib|ms|percent)", family.name)
        labels = {label for sample in family.samples for label in sample.labels}
        known = "uuid index model pci cause xid type reason state"
        assert labels <= {*known.split(), "resource", "device", "namespace", "pod", "container"}
    documented = re.findall(r"^\| `deviceplugin_gpu_(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    told = [sample.name for family in families for sample in family.samples[:1]]
    assert [f"deviceplugin_gpu_{name}" for name in documented] == told
