"""What a look finds, on the fake driver."""

from dataclasses import replace

import pytest

import deviceplugin as dp
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_testing.fixture import Kubelet
from gpu.fake_nvml import FakeGpu, FakeMig, Fleet
from gpu.rig import GPU, GpuRig, devices, unhealthy, uuid, uuids


def test_a_gpu_is_a_device_that_a_container_is_told_of(rig: GpuRig, kubelet: Kubelet) -> None:
    rig.has(Fleet.of(2, name="NVIDIA H100 80GB HBM3", memory=81920))
    with kubelet.running(rig.plugin()) as node:
        node.wait_for(GPU, uuids(0, 1))
        expected = {"NVIDIA_VISIBLE_DEVICES": f"{uuid(0)},{uuid(1)}"}
        assert expected == node.allocate(uuid(1), uuid(0)).envs


def test_a_device_says_what_it_is_and_where(rig: GpuRig) -> None:
    rig.has(Fleet.of(1, name="NVIDIA H100 80GB HBM3", memory=81920)).place({0: 1})
    expected = dp.Device(
        uuid(0),
        resource=GPU,
        topology=dp.Topology([1]),
        attributes={
            "index": "0",
            "model": "NVIDIA H100 80GB HBM3",
            "memory": "80Gi",
            "pci": "0000:01:00.0",
        },
        hardware=[uuid(0)],
    )
    assert [expected] == list(rig.plugin().discover())


def test_a_gpu_that_is_there_for_a_screen_is_none(rig: GpuRig) -> None:
    rig.has(Fleet((FakeGpu(0), FakeGpu(1, values={"name": "NVIDIA DGX Display"}))))
    assert [uuid(0)] == list(devices(rig.plugin()))


def test_one_line_is_logged_for_each_gpu_once(
    rig: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    plugin = rig.has(Fleet.of(3)).plugin()
    plugin.discover()
    plugin.discover()
    found = [vars(record)["uuid"] for record in caplog.records if record.message == "GPU found"]
    assert [uuid(0), uuid(1), uuid(2)] == found


def test_a_gpu_that_is_lost_stays_listed_with_the_reason(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(3)).plugin()
    plugin.discover()
    rig.fake.change(1, state="lost")
    found = devices(plugin)
    assert uuids(0, 1, 2) == found.keys()
    reasons = unhealthy(found)
    assert {uuid(1)} == reasons.keys()
    assert "GPU is lost (NVML error 15)" in reasons[uuid(1)]
    rig.fake.change(1, state="ok")
    assert {} == unhealthy(devices(plugin))


def test_a_mig_device_of_a_lost_gpu_stays_listed(rig: GpuRig) -> None:
    mig = FakeMig(1, "1g.5gb")
    rig.has(Fleet.of(2, migs=(mig,)))
    plugin = rig.plugin(mig_strategy="mixed")
    plugin.discover()
    rig.fake.change(0, state="lost")
    assert {mig.uuid(0)} == unhealthy(devices(plugin)).keys()
    assert {mig.uuid(0), mig.uuid(1)} == devices(plugin).keys()


def test_links_are_asked_for_once_as_long_as_the_gpus_stay(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(4, switch=6)).plugin()
    plugin.discover()
    before = rig.fake.calls()
    plugin.discover()
    new = rig.fake.calls() - before
    assert 0 == new["nvmlDeviceGetNvLinkState"]
    assert 0 == new["nvmlDeviceGetTopologyCommonAncestor"]
    assert 4 == new["nvmlDeviceGetUUID"]


def test_a_gpu_that_is_added_or_removed_is_noticed(rig: GpuRig) -> None:
    rig.has(replace(Fleet.of(2), driver={"hotplug": "init"})).bind(0, 1)
    plugin = rig.plugin()
    assert uuids(0, 1) == devices(plugin).keys()
    rig.fake.add(FakeGpu(5))
    assert uuids(0, 1) == devices(plugin).keys()
    rig.bind(0, 1, 5)
    assert uuids(0, 1, 5) == devices(plugin).keys()
    rig.fake.remove(1)
    rig.bind(0, 5)
    assert uuids(0, 5) == devices(plugin).keys()


def test_nvml_is_not_initialized_again_without_a_reason(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(2)).plugin()
    for _ in range(5):
        plugin.discover()
    assert 1 == rig.fake.calls()["nvmlInitWithFlags"]


def test_nvml_is_initialized_again_less_and_less_often_while_a_gpu_is_lost(rig: GpuRig) -> None:
    rig.has(Fleet.of(2))
    now = [0.0]
    driver = Driver(Library(rig.driver_root), rig.roots.sys, None, lambda: now[0])
    driver.poll()
    rig.fake.change(1, state="lost")
    counts = []
    for now[0] in range(1, 16):
        driver.poll()
        counts.append(rig.fake.calls()["nvmlInitWithFlags"] - 1)
    driver.close()
    # Rests of at most 1, 2, 4 and 8 s, of which chance takes up to a half.
    fewest = [0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4]
    most = [0, 1, 2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5]
    assert [True] * 15 == [
        low <= count <= high for low, count, high in zip(fewest, counts, most, strict=True)
    ]


def test_a_driver_that_goes_and_comes_back_is_found_again(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(2)).plugin()
    plugin.discover()
    rig.fake.drop_driver()
    for _ in range(2):
        with pytest.raises(dp.DiscoveryError, match=r"nvmlInit: .*NVML error 9"):
            plugin.discover()
    rig.fake.mend()
    assert {} == unhealthy(devices(plugin))
    assert uuids(0, 1) == devices(plugin).keys()
