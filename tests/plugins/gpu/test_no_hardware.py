"""A node without NVIDIA hardware: nothing is there, and nothing is wrong with that."""

import logging
import urllib.error
import urllib.request
from datetime import timedelta
from threading import Event, Thread

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit.backoff import Clock
from deviceplugin_gpu.nvml.events import LISTENING, EventWatch
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.fixture import Kubelet
from gpu.fake_nvml import FakeGpu, Fleet
from gpu.rig import GPU, GpuRig, devices, unhealthy, uuid, uuids
from held_clock import are_within
from patience import PATIENCE, eventually

NO_DRIVER = 9
QUIET = "no NVIDIA hardware found"


@pytest.fixture
def empty(rig: GpuRig) -> GpuRig:
    """A node with a driver's library, as an image may bring one, and nothing else."""
    rig.fake.drop_driver()
    return rig


def status(address: str, path: str) -> int:
    """Return the status of an answer; 0 without one."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


def test_there_are_no_devices_and_one_line_says_why(
    empty: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plugin = empty.plugin()
    for _ in range(3):
        assert {} == devices(plugin)
    assert [(logging.INFO, QUIET)] == [(one.levelno, one.message) for one in caplog.records]
    calls = empty.fake.calls()
    assert 3 == calls["nvmlInitWithFlags"]
    assert {"nvmlInitWithFlags", "nvmlErrorString"} >= {*calls}
    empty.has_nodes("nvidia0")
    with pytest.raises(dp.DiscoveryError):
        plugin.discover()
    (empty.roots.dev / "nvidia0").unlink()
    plugin.discover()
    assert 2 == caplog.messages.count(QUIET), "something else was told meanwhile"


def test_the_plugin_is_ready_as_long_as_a_driver_serves_what_hardware_there_is(
    empty: GpuRig, kubelet: Kubelet, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not restarted for what a restart does not mend."""

    def readiness(code: int) -> None:
        eventually(lambda: status(address, "/readyz") == code, f"{code} of readiness")
        assert 200 == status(address, "/healthz")

    plugin, deadline = empty.plugin(), timedelta(milliseconds=500)
    with kubelet.running(plugin, http_address=address, discovery_deadline=deadline) as node:
        readiness(200)
        assert frozenset() == node.kubelet.registered
        assert [] == [one.message for one in caplog.records if one.levelno >= logging.WARNING]
        empty.has_card()
        readiness(503)
        empty.has(Fleet.of(2)).fake.mend()
        node.wait_for(GPU, uuids(0, 1))
        readiness(200)
        empty.fake.change(1, state="lost")
        eventually(lambda: not plugin._driver.health.verdict(uuid(1)).health, "a GPU that is lost")
        readiness(200)
        empty.fake.drop_driver()
        readiness(503)
        empty.fake.mend()
        readiness(200)


@pytest.mark.parametrize("trace", ["card", "device file", "driver"])
def test_any_trace_of_nvidia_makes_a_missing_driver_an_error(empty: GpuRig, trace: str) -> None:
    plugin = empty.plugin()
    assert {} == devices(plugin)
    if trace == "card":
        empty.has_card()
    elif trace == "device file":
        empty.has_nodes("nvidia0")
    else:
        (empty.roots.proc / "driver/nvidia").mkdir(parents=True)
    with pytest.raises(dp.DiscoveryError, match="NVML error 9"):
        plugin.discover()


@pytest.mark.parametrize(("name", "value"), [("vendor", "0x8086"), ("class", "0x068000")])
def test_hardware_of_others_and_bridges_are_none(empty: GpuRig, name: str, value: str) -> None:
    empty.has_card()
    (empty.roots.sys / "bus/pci/devices/0000:3b:00.0" / name).write_text(f"{value}\n")
    empty.has_nodes("nvram", "null")
    assert {} == devices(empty.plugin())


@pytest.mark.parametrize("driver", ["vfio-pci", "nvgrace-gpu-vfio-pci", "nvidia"])
def test_a_gpu_that_is_kept_for_virtual_machines_is_none(empty: GpuRig, driver: str) -> None:
    empty.has_card(driver=driver)
    if driver == "nvidia":  # VFIO has it, whatever its driver is called
        (empty.roots.sys / "bus/pci/devices/0000:3b:00.0/vfio-dev/vfio0").mkdir(parents=True)
    assert {} == devices(empty.plugin())


@pytest.mark.parametrize("count", [0, 1])
def test_a_driver_that_was_there_is_not_forgotten_silently(rig: GpuRig, count: int) -> None:
    plugin = rig.has(Fleet.of(count)).plugin()
    plugin.discover()
    rig.fake.drop_driver()
    for _ in range(2):
        with pytest.raises(dp.DiscoveryError, match=r"nvmlInit: .*NVML error 9"):
            plugin.discover()
    rig.fake.mend()
    found = devices(plugin)
    assert (count, {}) == (len(found), unhealthy(found))


def test_a_driver_that_fails_is_no_missing_one(rig: GpuRig) -> None:
    rig.has(Fleet.of(1)).fake.fail("nvmlDeviceGetCount_v2", 999)
    with pytest.raises(dp.DiscoveryError, match="NVML error 999"):
        rig.plugin().discover()


@pytest.mark.parametrize("strategy", ["cdi-cri", "envvar"])
def test_channels_that_are_required_are_not_where_no_gpu_is(empty: GpuRig, strategy: str) -> None:
    given = {"imex_channel_ids": (0,), "imex_required": True, "device_list_strategy": strategy}
    assert {} == devices(empty.plugin(**given))


def test_no_driver_is_no_silence_of_its_gpus(rig: GpuRig) -> None:
    rig.now = 0.0
    driver = rig.driver()
    watch, stop = EventWatch(driver.session, rig.clock), Event()
    heard: list[str] = []
    thread = Thread(target=lambda: heard.extend(event.uuid for event in watch.events(stop)))
    thread.start()
    try:
        rig.now = 3600.0
        eventually(lambda: watch.silence() is None, "the next turn")
        rig.has(Fleet.of(1))
        driver.poll()
        eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"], "a wait for events")
        rig.fake.xid(0, 79)
        eventually(lambda: len(heard) > 1, "the event")
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert [LISTENING.uuid, FakeGpu(0).uuid] == heard


def test_silence_is_told_of_in_the_same_words_however_long_it_lasts(
    rig: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.now = 0.0
    rig.has(Fleet.of(1)).fake.fail("nvmlEventSetCreate", 999)
    plugin, stop = rig.plugin(), Event()
    devices(plugin)
    thread = Thread(target=lambda: list(plugin.changes(stop)))
    thread.start()
    try:
        eventually(lambda: "NVML events unavailable" in caplog.messages, "that nobody can listen")
        told = set()
        for rig.now in (200.0, 230.0, 260.0):
            told |= {*unhealthy(devices(plugin)).values()}
    finally:
        stop.set()
        thread.join(PATIENCE)
    (text,) = told
    assert text.startswith("its errors could not be listened to for 120 s: ")


class _Unhurried(Clock):
    """A clock on which a wait takes no time; after so many it is time to stop."""

    def __init__(self, waits: int) -> None:
        self._now, self._left = 0.0, waits
        self.waits: list[float] = []

    @override
    def now(self) -> float:
        return self._now

    @override
    def wait(self, event: Event, until: float) -> None:
        self.waits.append(until - self._now)
        self._now = until
        if len(self.waits) == self._left:
            event.set()


def test_while_nobody_can_listen_it_is_tried_later_and_later(rig: GpuRig) -> None:
    rig.has(Fleet.of(1)).fake.fail("nvmlEventSetCreate", 999)
    driver, clock = rig.driver(), _Unhurried(8)
    driver.poll()
    assert [] == list(EventWatch(driver.session, clock).events(Event()))
    bounds = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert [True] * 8 == are_within(clock.waits, bounds)
