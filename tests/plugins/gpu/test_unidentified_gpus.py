"""GPUs that are on the node and cannot be offered are told of, by what is known of them."""

import logging
from collections.abc import Sequence

import pytest

from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_testing.fixture import Kubelet
from gpu.fake_nvml import FakeGpu, Fleet
from gpu.rig import GPU, GpuRig, devices, unhealthy, uuid, uuids
from patience import eventually

LOST = "cannot be read: nvmlDeviceGetUUID: GPU is lost (NVML error 15)"
UNLISTED = "is not known to NVML: it is lost, or hidden from this plugin"
LOG = "see the kernel's log: dmesg | grep NVRM"


@pytest.fixture
def node(rig: GpuRig) -> GpuRig:
    """Three GPUs, which are on the bus with their driver."""
    for slot in range(3):
        rig.has_card(FakeGpu(slot).pci, driver="nvidia")
    return rig.has(Fleet.of(3))


def absent(plugin: GpuPlugin) -> list[dict[str, str]]:
    return [
        sample.labels
        for family in plugin.metrics()
        for sample in family.samples
        if sample.name == "deviceplugin_gpu_absent"
    ]


def test_gpus_that_all_answer_are_identified(node: GpuRig) -> None:
    plugin = node.plugin()
    assert uuids(0, 1, 2) == devices(plugin).keys()
    assert ([], []) == (plugin.shortfalls, absent(plugin))


def test_a_gpu_that_was_lost_before_the_start_is_told_by_its_address(node: GpuRig) -> None:
    node.fake.change(1, state="lost")
    plugin = node.plugin()
    for _ in range(3):
        assert uuids(0, 2) == devices(plugin).keys()
    assert [f"GPU 1 at 0000:02:00.0 {LOST}"] == plugin.shortfalls
    assert [{"pci": "0000:02:00.0", "index": "1"}] == absent(plugin)
    node.fake.change(1, state="ok")
    node.now = 1e6
    assert uuids(0, 1, 2) == devices(plugin).keys()
    assert [] == absent(plugin)


def test_without_sysfs_the_index_is_told(rig: GpuRig) -> None:
    rig.has(Fleet.of(2)).fake.change(1, state="lost")
    plugin = rig.plugin()
    assert uuids(0) == devices(plugin).keys()
    assert [f"GPU 1 {LOST}"] == plugin.shortfalls
    assert [{"pci": "", "index": "1"}] == absent(plugin)


def test_a_gpu_that_nvml_does_not_list_is_told(node: GpuRig) -> None:
    node.fake.remove(2)
    plugin = node.plugin()
    for _ in range(3):
        assert uuids(0, 1) == devices(plugin).keys()
    assert [f"GPU at 0000:03:00.0 {UNLISTED}: {LOG}"] == plugin.shortfalls
    assert [{"pci": "0000:03:00.0", "index": ""}] == absent(plugin)
    assert 1 == node.fake.calls()["nvmlInitWithFlags"]


def test_which_one_of_two_cannot_be_read_is_not_made_up(node: GpuRig) -> None:
    node.fake.change(1, state="lost")
    node.fake.remove(2)
    plugin = node.plugin()
    assert uuids(0) == devices(plugin).keys()
    assert [f"GPU at 0000:0{number}:00.0 {LOST}" for number in (2, 3)] == plugin.shortfalls
    assert 2 == len(absent(plugin))


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ("", [f"GPU at 0000:3b:00.0 has no driver: {LOG}"]),
        ("vfio-pci", []),
        ("nvgrace-gpu-vfio-pci", []),
        ("nouveau", []),
    ],
)
def test_a_gpu_of_no_driver_is_told_and_one_of_another_is_not(
    node: GpuRig, driver: str, expected: Sequence[str]
) -> None:
    node.has_card(driver=driver)
    plugin = node.plugin()
    assert uuids(0, 1, 2) == devices(plugin).keys()
    assert list(expected) == plugin.shortfalls
    assert len(expected) == len(absent(plugin))


def test_a_gpu_that_is_lost_later_is_a_device_and_identified(node: GpuRig) -> None:
    plugin = node.plugin()
    plugin.discover()
    node.fake.change(1, state="lost")
    assert {uuid(1)} == unhealthy(devices(plugin)).keys()
    assert ([], []) == (plugin.shortfalls, absent(plugin))


def test_a_gpu_that_was_pulled_out_is_not_the_one_that_is_lost(node: GpuRig) -> None:
    plugin = node.plugin()
    plugin.discover()
    node.pull(FakeGpu(0).pci)
    node.fake.remove(0)
    node.fake.change(2, state="lost")
    found = devices(plugin)
    assert uuids(1, 2) == found.keys()
    assert {uuid(2)} == unhealthy(found).keys()


def test_a_gpu_without_an_address_could_be_any(node: GpuRig) -> None:
    node.fake.fail("nvmlDeviceGetPciInfo_v3", 3, gpu=1)
    plugin = node.plugin()
    assert uuids(0, 1, 2) == devices(plugin).keys()
    assert ([], []) == (plugin.shortfalls, absent(plugin))


def test_a_screen_of_a_workstation_is_not_reported(
    node: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    node.fake.change(2, name="NVIDIA DGX Display")
    plugin = node.plugin()
    assert uuids(0, 1) == devices(plugin).keys()
    assert ([], []) == (plugin.shortfalls, absent(plugin))


def test_an_error_of_a_screen_leaves_the_gpus_well(rig: GpuRig, kubelet: Kubelet) -> None:
    rig.has(Fleet.of(2)).fake.change(1, name="NVIDIA DGX Display")
    plugin = rig.plugin()
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, uuids(0))
        eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"], "a wait for events")
        rig.fake.xid(1, 79)
        eventually(plugin._driver.health.xids, "the error")
        assert plugin._driver.health.verdict(uuid(0)).health
        rig.fake.xid(0, 79)
        node.wait_for(GPU, set(), unhealthy=uuids(0))


def test_a_domain_of_five_digits_is_not_that_of_four(node: GpuRig) -> None:
    node.fake.change(0, pci="10000:02:00.0")
    found = devices(node.plugin(exclude=("02:00.0",)))
    assert uuids(0, 2) == found.keys()
    assert "10000:02:00.0" == found[uuid(0)].attributes["pci"]
    assert uuids(1, 2) == devices(node.plugin(exclude=("00010000:02:00.0",))).keys()
