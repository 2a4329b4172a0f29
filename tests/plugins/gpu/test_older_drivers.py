"""Drivers and releases of pynvml that are older than this plugin, and answers that are odd."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import pynvml
import pytest

import deviceplugin_gpu
from deviceplugin_gpu.metrics import read_gpu
from deviceplugin_gpu.nvml import api
from deviceplugin_gpu.nvml.events import EventWatch
from deviceplugin_gpu.nvml.library import names_of
from deviceplugin_gpu.nvml.processes import memory_by_pid
from deviceplugin_testing.fixture import Kubelet
from gpu import fake_library
from gpu.fake_nvml import FakeGpu, FakeMig, Fleet
from gpu.rig import GPU, GpuRig, devices, unhealthy, uuid, uuids
from patience import eventually

SINCE_R450 = (
    *("nvmlEventSetWait_v2", "nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount"),
    *("nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetAttributes_v2"),
    *("nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetRemappedRows"),
    *("nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetCurrentClocksEventReasons"),
    *("nvmlDeviceGetNumaNodeId", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetAddressingMode"),
    "nvmlDeviceGetNumGpuCores",
    *("nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetTemperatureV"),
)
SINCE_R384 = (
    *SINCE_R450,
    *("nvmlInitWithFlags", "nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"),
    *("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetNvLinkRemotePciInfo_v2"),
    *("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetTotalEnergyConsumption"),
)
EVERY_NEWER = (
    *SINCE_R384,
    *("nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"),
    "nvmlDeviceGetPciInfo_v2",
)
NO_EVENTS = ("nvmlEventSetCreate", "nvmlEventSetWait", "nvmlEventSetWait_v2")

Node = Callable[..., GpuRig]


@pytest.fixture
def node(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Node]:
    """Return what makes a node whose library lacks functions."""
    folder = fake_library.kept(pytestconfig, "fake-nvml")
    # What other tests have of pynvml comes back in the end.
    monkeypatch.setattr(pynvml, "nvmlLib", pynvml.nvmlLib)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    made: list[GpuRig] = []

    def make(*without: str) -> GpuRig:
        made.append(GpuRig(tmp_path, fake_library.build_or_skip(folder, without), monkeypatch))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.mark.parametrize(
    "without", [SINCE_R450, SINCE_R384, EVERY_NEWER], ids=["R440", "R384", "the first"]
)
def test_gpus_of_an_older_driver_are_served_whole(
    node: Node, kubelet: Kubelet, without: tuple[str, ...]
) -> None:
    rig = node(*without).has(Fleet.of(3, mig="unsupported"))
    rig.place({0: 0, 1: 1, 2: 1})
    plugin = rig.plugin(discovery_deadline=timedelta(seconds=5))
    found = devices(plugin)
    assert {} == unhealthy(found)
    assert ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"] == [
        device.attributes["pci"] for device in found.values()
    ]
    assert [{0}, {1}, {1}] == [
        set(one.topology.numa_nodes) if one.topology else None for one in found.values()
    ]
    with kubelet.running(plugin) as running:
        running.wait_for(GPU, uuids(0, 1, 2))
        eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"], "a wait for events")
        rig.fake.xid(1, 79)
        running.wait_for(GPU, uuids(0, 2), unhealthy=uuids(1))


def test_links_of_an_older_driver_are_known(node: Node) -> None:
    rig = node(*SINCE_R384).has(Fleet.of(3, links={(1, 2): 2}))
    links = rig.driver().poll().snapshot.links
    assert [0, 0, 2] == [links[uuid(a), uuid(b)].nvlinks for a, b in ((0, 1), (0, 2), (1, 2))]


def test_mig_devices_of_the_first_driver_that_had_them_are_offered(node: Node) -> None:
    rig = node("nvmlDeviceGetAttributes_v2").has(
        Fleet((FakeGpu(0, (FakeMig(1, "1g.5gb", values={"memory": 4864}),)),))
    )
    (device,) = rig.plugin(mig_strategy="mixed").discover()
    assert ("nvidia.com/mig-1g.5gb", "4.75Gi") == (device.resource, device.attributes["memory"])


def test_metrics_of_an_older_driver_are_those_that_it_has(node: Node) -> None:
    driver = node(*SINCE_R384).has(Fleet.of(1, throttle=4, temperature=50)).driver()
    driver.poll()
    reading = read_gpu(driver.session, uuid(0))
    assert (50, True) == (
        reading["temperature_celsius",],
        reading["throttled", "software_power_cap"],
    )
    assert reading.keys().isdisjoint({("row_remapping_failed",), ("energy_joules",)})


@pytest.mark.parametrize("way", ["no functions", "not supported"])
def test_a_driver_without_any_events_costs_no_gpu(
    node: Node, kubelet: Kubelet, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    rig = node(*(NO_EVENTS if way == "no functions" else ()))
    rig.has(Fleet.of(2))
    if way == "not supported":
        rig.fake.fail("nvmlEventSetCreate", 3)
    rig.now = 0.0
    plugin = rig.plugin(discovery_deadline=timedelta(seconds=5))
    with kubelet.running(plugin, discovery_interval=timedelta(milliseconds=50)) as running:
        running.wait_for(GPU, uuids(0, 1))
        eventually(lambda: _said(caplog, "NVML events unavailable"), "a line about it")
        rig.now = 1000.0
        assert {} == unhealthy(devices(plugin))
        assert 1 == _said(caplog, "NVML events unavailable")


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("nvmlDeviceGetSupportedEventTypes", 3),
        *(("nvmlDeviceRegisterEvents", code) for code in (2, 4, 6, 13)),
    ],
)
def test_a_gpu_whose_events_are_not_to_be_had_is_healthy(
    rig: GpuRig, kubelet: Kubelet, function: str, code: int
) -> None:
    rig.has(Fleet.of(2)).fake.fail(function, code, gpu=1)
    plugin = rig.plugin()
    with kubelet.running(plugin) as running:
        eventually(lambda: plugin._discovery._watch.mute, "a registration")
        running.wait_for(GPU, uuids(0, 1))
        assert (uuids(1), {}) == (set(plugin._discovery._watch.mute), unhealthy(devices(plugin)))
        rig.fake.xid(0, 79)
        running.wait_for(GPU, uuids(1), unhealthy=uuids(0))


def test_a_kind_of_event_that_is_refused_does_not_cost_the_others(
    rig: GpuRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = pynvml.nvmlDeviceRegisterEvents
    asked: list[int] = []

    def picky(gpu: object, kinds: int, events: object) -> object:
        asked.append(kinds)
        if kinds & api.EVENT_MIG:
            raise pynvml.NVMLError(api.INVALID_ARGUMENT)
        return register(gpu, kinds, events)

    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", picky)
    driver = rig.has(Fleet.of(1)).driver()
    driver.poll()
    watch, stop = EventWatch(driver.session), Event()
    listening = watch.events(stop)
    next(listening)
    rig.fake.xid(0, 48)
    event = next(listening)
    stop.set()
    assert (uuid(0), 48) == (event.uuid, event.number)
    assert ([api.EVENTS, api.EVENT_XID], frozenset()) == (asked, watch.mute)


OPTIONAL = [
    *("nvmlDeviceGetRemappedRows", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMinorNumber"),
    *("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetCudaComputeCapability"),
]


@pytest.mark.parametrize(("function", "code"), [*zip(OPTIONAL, [4, 7, 17, 999, 4], strict=True)])
def test_what_need_not_be_known_is_told_once_and_costs_no_gpu(
    rig: GpuRig, caplog: pytest.LogCaptureFixture, function: str, code: int
) -> None:
    plugin = rig.has(Fleet.of(2)).plugin()
    rig.fake.fail(function, code, gpu=1)
    for _ in range(3):
        assert {} == unhealthy(devices(plugin))
    (record,) = [one for one in caplog.records if one.msg == "driver query not answered"]
    assert f"GPU {uuid(1)}: {function}: " in vars(record)["problem"]
    assert 1 == rig.fake.calls()["nvmlInitWithFlags"]
    rig.fake.mend()
    devices(plugin)
    rig.fake.fail(function, code, gpu=1)
    devices(plugin)
    assert 2 == _said(caplog, "driver query not answered")


def test_what_is_not_told_this_time_is_as_it_was(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(1, name="NVIDIA L4")).plugin()
    before = devices(plugin)
    for function in [*OPTIONAL, "nvmlDeviceGetName"]:
        rig.fake.fail(function, 999)
    assert before == devices(plugin)


@pytest.mark.parametrize(("function", "code"), [*zip(OPTIONAL, [1, 8, 9, 15, 16], strict=True)])
def test_an_answer_that_the_gpu_cannot_be_used_costs_it_whatever_was_asked(
    rig: GpuRig, function: str, code: int
) -> None:
    plugin = rig.has(Fleet.of(2)).plugin()
    rig.fake.fail(function, code, gpu=1)
    assert uuids(1) == unhealthy(devices(plugin)).keys()


def test_every_function_that_is_called_exists_in_pynvml() -> None:
    folder = Path(deviceplugin_gpu.__file__).parent
    texts = [path.read_text() for path in folder.rglob("*.py") if path.name != "library.py"]
    called = {name for text in texts for name in re.findall(r'"(nvml[A-Z]\w+)"', text)}
    assert len(called) > 30
    known = {name for name in called if any(hasattr(pynvml, one) for one in names_of(name))}
    assert set() == called - known


NUMBERS = {
    "MAX_LINKS": "NVML_NVLINK_MAX_LINKS",
    "REMOTE_SWITCH": "NVML_NVLINK_DEVICE_TYPE_SWITCH",
    "RECOVERY_ACTION": "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
    "EVENT_XID": "nvmlEventTypeXidCriticalError",
    "EVENT_SINGLE_BIT": "nvmlEventTypeSingleBitEccError",
    "EVENT_DOUBLE_BIT": "nvmlEventTypeDoubleBitEccError",
    "EVENT_MIG": "nvmlEventMigConfigChange",
    "VERSION_MISMATCH": "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    **{
        name: f"NVML_ERROR_{name}"
        for name in (
            *("UNINITIALIZED", "INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION"),
            *("NOT_FOUND", "INSUFFICIENT_POWER", "DRIVER_NOT_LOADED", "TIMEOUT", "UNKNOWN"),
            *("LIBRARY_NOT_FOUND", "FUNCTION_NOT_FOUND", "GPU_IS_LOST", "RESET_REQUIRED"),
        )
    },
}


def test_numbers_are_nvmls() -> None:
    expected = {ours: getattr(pynvml, theirs) for ours, theirs in NUMBERS.items()}
    assert expected == {ours: getattr(api, ours) for ours in NUMBERS}


def test_an_older_pynvml_is_asked_by_the_names_that_it_has(
    rig: GpuRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for newest in (
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlDeviceGetCurrentClocksEventReasons",
    ):
        monkeypatch.delattr(pynvml, newest)
    driver = rig.has(Fleet.of(1, throttle=4)).driver()
    assert (13, 0) == driver.poll().snapshot.cuda
    assert read_gpu(driver.session, uuid(0))["throttled", "software_power_cap"]


@pytest.mark.parametrize(
    "function",
    [
        *("nvmlDeviceGetRemappedRows", "nvmlDeviceGetMigMode", "nvmlDeviceGetFieldValues"),
        *("nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetCudaComputeCapability"),
    ],
)
def test_a_function_that_pynvml_does_not_have_costs_no_gpu(
    rig: GpuRig, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.delattr(pynvml, function)
    assert {} == unhealthy(devices(rig.has(Fleet.of(2)).plugin()))


def _said(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return sum(one.msg == event for one in caplog.records)


def test_processes_are_listed_by_the_second_version_of_a_list(node: Node) -> None:
    lists = [f"nvmlDeviceGet{one}RunningProcesses_v3" for one in ("Compute", "Graphics")]
    rig = node(*lists, "nvmlDeviceGetMPSComputeRunningProcesses_v3")
    rig.fake.write("gpu 0\nprocess 0 pid=7 used=1\nprocess 0 pid=8 kind=graphics\n")
    driver = rig.driver()
    driver.poll()
    with driver.session.use():
        gpu = api.call("nvmlDeviceGetHandleByIndex", 0)
        assert ["7: 1", "8: nan"] == [f"{pid}: {used}" for pid, used in memory_by_pid(gpu).items()]
