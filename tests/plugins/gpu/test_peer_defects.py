"""The defects of NVIDIA's plugin v0.20 that users lose nodes to, each as a test that ours passes.

Numbers are those of the list that they were collected in; what the peer does is in the docstrings.
"""

import itertools
import json
import urllib.request

import pytest

from deviceplugin_gpu.nvml import events
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from gpu.fake_nvml import FakeMig, Fleet
from gpu.rig import GPU, GpuRig, uuid, uuids
from patience import PATIENCE, eventually

SHARED = {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 3}]}}


def listening(rig: GpuRig) -> None:
    """Wait until events are being waited for."""
    waits = rig.fake.calls()["nvmlEventSetWait_v2"]
    eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"] > waits, "a wait for events")


# 1. One lost GPU makes every preferred allocation fail, and keeps the plugin from starting.


def test_1_pods_are_served_while_a_gpu_is_lost(rig: GpuRig, kubelet: Kubelet) -> None:
    with kubelet.running(rig.has(Fleet.of(4)).plugin()) as node:
        node.wait_for(GPU, uuids(0, 1, 2, 3))
        rig.fake.change(3, state="lost")
        node.wait_for(GPU, uuids(0, 1, 2), unhealthy=uuids(3))
        assert [uuid(0), uuid(1)] == node.prefer([uuid(0), uuid(1)], 2)
        outcome = node.kubelet.run(Pod.of("training", main={GPU: 3}))
        assert uuids(0, 1, 2) == outcome.devices["main"][GPU]


@pytest.mark.parametrize("state", ["lost", "unreachable"])
def test_1_the_plugin_starts_while_a_gpu_is_lost(rig: GpuRig, kubelet: Kubelet, state: str) -> None:
    rig.has(Fleet.of(3)).fake.change(1, state=state)
    with kubelet.running(rig.plugin(fail_on_init_error=True)) as node:
        node.wait_for(GPU, uuids(0, 2))
        rig.fake.change(1, state="ok")
        node.wait_for(GPU, uuids(0, 1, 2))


# 2. The search for near GPUs crashes the plugin, and prefers the wrong ones.


@pytest.mark.parametrize(("count", "size", "pair"), [(5, 3, (1, 3)), (16, 2, (13, 14))])
def test_2_the_linked_pair_is_found(
    rig: GpuRig, count: int, size: int, pair: tuple[int, int]
) -> None:
    """The peer pads partitions with nil, and overwrites its best one while it looks for another."""
    plugin = rig.has(Fleet.of(count, links={pair: 4})).plugin()
    chosen = {device.id for device in plugin.prefer(list(plugin.discover()), (), size)}
    assert size == len(chosen)
    assert uuids(*pair) <= chosen


# 3. It takes exponentially long.


def test_3_sixteen_gpus_are_searched_in_no_time_and_without_nvml(rig: GpuRig) -> None:
    rig.has(
        Fleet.of(
            16, links={pair: 1 + sum(pair) % 3 for pair in itertools.combinations(range(16), 2)}
        )
    )
    plugin = rig.plugin()
    known = list(plugin.discover())
    before = rig.fake.calls()
    for size in range(1, 17):
        answer = list(plugin.prefer(known, (), size))
        assert size == len({device.id for device in answer})
    plugin.allocate(known)
    assert {} == dict(rig.fake.calls() - before)


# 4. A failing wait for events becomes a storm of lines and lists.


def test_4_a_failing_wait_is_told_in_few_lines_and_no_lists(
    rig: GpuRig,
    kubelet: Kubelet,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "_FIRST_PAUSE", 0.1)
    monkeypatch.setattr(events, "_LONGEST_PAUSE", 0.3)
    with kubelet.running(rig.has(Fleet.of(4)).plugin()) as node:
        node.wait_for(GPU, uuids(0, 1, 2, 3))
        listening(rig)
        caplog.clear()
        lists, before = node.kubelet.lists_received(GPU), rig.fake.calls()
        rig.fake.fail("wait", 999)
        with pytest.raises(TimeoutError):
            node.kubelet.wait(lambda: False, timeout=1)
        assert len(caplog.records) <= 5
        assert node.kubelet.lists_received(GPU) - lists <= 2
        assert (rig.fake.calls() - before)["nvmlEventSetCreate"] <= 12
        assert node.allocate(uuid(0)).envs
        rig.fake.mend()
        listening(rig)
        assert uuids(0, 1, 2, 3) == node.kubelet.healthy(GPU)


# 5. An XID marks one replica, or one MIG device, of the GPU.


def test_5_an_xid_is_that_of_all_replicas(rig: GpuRig, kubelet: Kubelet) -> None:
    with kubelet.running(rig.has(Fleet.of(2)).plugin(sharing=SHARED)) as node:
        ids = [{f"{uuid(slot)}::{number}" for number in range(3)} for slot in (0, 1)]
        node.wait_for(GPU, ids[0] | ids[1])
        listening(rig)
        rig.fake.xid(1, 79)
        node.wait_for(GPU, ids[0], unhealthy=ids[1])


def test_5_an_xid_is_that_of_all_mig_devices(rig: GpuRig, kubelet: Kubelet) -> None:
    migs = tuple(FakeMig(number, "1g.5gb") for number in range(1, 4))
    rig.has(Fleet.of(2, migs=migs))
    name = "nvidia.com/mig-1g.5gb"
    with kubelet.running(rig.plugin(mig_strategy="mixed")) as node:
        ids = [{mig.uuid(slot) for mig in migs} for slot in (0, 1)]
        node.wait_for(name, ids[0] | ids[1])
        listening(rig)
        rig.fake.xid(1, 79, gi=1, ci=0)
        node.wait_for(name, ids[0], unhealthy=ids[1])


# 6. Unhealthy never becomes healthy; and a restart heals everything silently.


def test_6_neither_a_restart_nor_the_kubelets_nor_new_settings_heal(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    with kubelet.running(rig.has(Fleet.of(2)).plugin()) as node:
        node.wait_for(GPU, uuids(0, 1))
        listening(rig)
        rig.fake.xid(1, 79)
        node.wait_for(GPU, uuids(0), unhealthy=uuids(1))
        node.restart_kubelet()
        node.wait_for(GPU, uuids(0), unhealthy=uuids(1))
    with kubelet.running(rig.plugin(device_id_strategy="index")) as node:
        node.wait_for(GPU, uuids(0), unhealthy=uuids(1))


# 7. Without a driver at the start, the plugin waits for ever: see test_no_hardware.py.


# 8. No metrics, no probes, no inventory.


def test_8_there_are_metrics_probes_and_an_inventory_with_reasons(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    address = f"127.0.0.1:{free_port()}"

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    with kubelet.running(rig.has(Fleet.of(2)).plugin(), http_address=address) as node:
        node.wait_for(GPU, uuids(0, 1))
        rig.fake.change(1, state="lost")
        node.wait_for(GPU, uuids(0), unhealthy=uuids(1))
        assert 'deviceplugin_devices{health="unhealthy",resource="nvidia.com/gpu"} 1.0' in get(
            "/metrics"
        )
        lost = f'deviceplugin_gpu_unhealthy{{cause="unreadable",uuid="{uuid(1)}"}} 1.0'
        eventually(lambda: lost in get("/metrics"), "metrics of the GPU")
        assert "ok" in get("/healthz")
        assert "ok" in get("/readyz")
        (resource,) = json.loads(get("/devices"))["resources"]
        reasons = [device.get("reason", "") for device in resource["devices"]]
        assert "GPU is lost" in reasons[1]


# 9. Names, sharing of some GPUs and exclusion are switched off, or do not exist.


def test_9_some_gpus_are_left_out_some_shared_and_some_have_a_name(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    rig.has(Fleet.of(4))
    rig.fake.change(3, name="NVIDIA H100 80GB HBM3")
    plugin = rig.plugin(
        exclude=("0000:01:00.0",),
        resources={"gpus": [{"pattern": "*H100*", "name": "h100"}]},
        sharing={
            "timeSlicing": {
                "resources": [{"name": "gpu", "replicas": 2, "rename": "slice", "devices": [1]}]
            }
        },
    )
    with kubelet.running(plugin) as node:
        node.wait_for("nvidia.com/slice", {f"{uuid(1)}::0", f"{uuid(1)}::1"})
        node.wait_for(GPU, uuids(2))
        node.wait_for("nvidia.com/h100", uuids(3))


def test_1_a_gpu_that_reports_its_own_loss_casts_no_suspicion_on_others(
    rig: GpuRig, kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    with kubelet.running(rig.has(Fleet.of(4)).plugin()) as node:
        node.wait_for(GPU, uuids(0, 1, 2, 3))
        listening(rig)
        rig.fake.change(2, state="lost")
        rig.fake.xid(2, 79)
        node.wait_for(GPU, uuids(0, 1, 3), unhealthy=uuids(2))
        eventually(lambda: "XID error" in caplog.messages, "the event")
    told = [vars(record)["gpu"] for record in caplog.records if record.message == "XID error"]
    assert [uuid(2)] == told
    ill = [record for record in caplog.records if record.message == "GPU is unhealthy"]
    assert {uuid(2)} == {vars(record)["gpu"] for record in ill}
