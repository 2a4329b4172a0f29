"""Where users of GPU plugins lose nodes, or ask for more than they have.

A driver that comes late or goes is in test_no_hardware.py. Names, order and odd MIG devices are in
test_resources.py.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from deviceplugin_gpu.discovery.gpu_discovery import explain
from deviceplugin_gpu.nvml import events
from deviceplugin_gpu.nvml.api import LibraryMissingError, NvmlError
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import Pod
from gpu.fake_library import SOURCES
from gpu.fake_nvml import FakeMig, Fleet
from gpu.rig import GPU, GpuRig, devices, uuid, uuids
from patience import PATIENCE, eventually

EIGHT = tuple(range(8))
FLEETS = sorted((SOURCES / "fleets").glob("*.fleet"))


def listening(rig: GpuRig) -> None:
    """Wait until events are being waited for."""
    waits = rig.fake.calls()["nvmlEventSetWait_v2"]
    eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"] > waits, "a wait for events")


def test_eight_gpus_are_lost_and_come_back_and_nobody_else_notices(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    rig.has(Fleet.of(8, switch=12))
    everything = uuids(*EIGHT)
    with kubelet.running(rig.plugin()) as node:
        node.wait_for(GPU, everything)
        for slot in (0, 4, 7):
            rig.fake.change(slot, state="lost")
            node.wait_for(GPU, everything - uuids(slot), unhealthy=uuids(slot))
            others = [uuid(other) for other in EIGHT if other != slot]
            assert 2 == len(node.prefer(others, 2))
            assert {"NVIDIA_VISIBLE_DEVICES": ",".join(others)} == node.allocate(*others).envs
            rig.fake.change(slot, state="ok")
            node.wait_for(GPU, everything)
        assert 1 == node.kubelet.registration_count(GPU)
        assert () == tuple(node.kubelet.crashes)


def test_requests_are_answered_from_memory_even_while_nvml_hangs(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    plugin = rig.has(Fleet.of(4, switch=6)).plugin()
    with kubelet.running(plugin, discovery_deadline=timedelta(seconds=1)) as node:
        node.wait_for(GPU, uuids(0, 1, 2, 3))
        rig.fake.delay("nvmlDeviceGetCount_v2", milliseconds=600_000)
        try:
            assert {"NVIDIA_VISIBLE_DEVICES": uuid(2)} == node.allocate(uuid(2)).envs
            assert 2 == len(node.prefer([uuid(slot) for slot in range(4)], 2))
            # Nobody can say that they are well.
            node.wait_for(GPU, (), unhealthy=uuids(0, 1, 2, 3), timeout=PATIENCE)
        finally:
            rig.fake.mend()
        node.wait_for(GPU, uuids(0, 1, 2, 3), timeout=PATIENCE)


@pytest.mark.parametrize("fleet", FLEETS, ids=lambda path: path.stem)
def test_every_layout_has_valid_answers_at_once_and_always_the_same(
    rig: GpuRig, fleet: Path
) -> None:
    rig.fake.write(fleet.read_text())
    plugin = rig.plugin(mig_strategy="mixed")
    for resource in {device.resource for device in plugin.discover()}:
        known = [device for device in plugin.discover() if device.resource == resource]
        for size in range(1, len(known) + 1):
            answer = list(plugin.prefer(known, known[-1:], size))
            assert size == len({device.id for device in answer})
            assert known[-1] in answer
        once = [list(plugin.prefer(known, (), 2)) for _ in range(3)]
        assert [once[0]] * 3 == once


def test_a_gpu_whose_errors_can_be_listened_to_again_is_healthy_again(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    rig.has(Fleet.of(2)).fake.fail("nvmlDeviceRegisterEvents", 999, gpu=1)
    with kubelet.running(rig.plugin()) as node:
        node.wait_for(GPU, uuids(0), unhealthy=uuids(1))
        rig.fake.mend()
        node.wait_for(GPU, uuids(0, 1))


def test_another_mig_layout_is_noticed_and_no_id_is_dropped_under_a_pod(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    old, new = FakeMig(1, "3g.20gb"), FakeMig(7, "1g.5gb")
    rig.has(Fleet.of(1, migs=(old,)))
    names = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb"
    with kubelet.running(
        rig.plugin(mig_strategy="mixed"), vanished_grace=timedelta(milliseconds=50)
    ) as node:
        node.wait_for(names[0], {old.uuid(0)})
        pod = Pod.of("holder", main={names[0]: 1})
        assert node.kubelet.run(pod)
        rig.fake.change(0, migs=(new,))
        node.wait_for(names[1], {new.uuid(0)})
        node.wait_for(names[0], (), unhealthy={old.uuid(0)})
        node.kubelet.terminate(pod)
        node.kubelet.wait(lambda: node.kubelet.registered == {names[1]}, what="its end")


MODULES = "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 0 - Live 0x0\nxfs 1\n"


@pytest.mark.parametrize(
    ("has_card", "modules", "nodes", "code", "advice"),
    [
        (False, "", [], None, "this node seems to have no GPU: set fail-on-init-error to false"),
        (True, "", [], None, "install the NVIDIA driver on the node"),
        (False, MODULES, ["nvidia0", "nvidiactl"], None, "run the plugin with runtimeClassName"),
        (False, MODULES, ["nvidiactl"], 18, "the driver was upgraded and the old one is still"),
        (False, MODULES, [], 9, "create the device files"),
        (False, MODULES, ["nvidiactl"], 999, "dmesg | grep NVRM"),
    ],
)
def test_there_is_advice_for_each_failure(
    rig: GpuRig, modules: str, nodes: list[str], code: int | None, advice: str, *, has_card: bool
) -> None:
    (rig.roots.proc / "modules").write_text(modules)
    rig.has_nodes(*nodes)
    if has_card:
        rig.has_card()
    library = Library(rig.path / "nowhere")
    list(library._places())
    error = NvmlError("nvmlInit", code, "no") if code else LibraryMissingError(library)
    *found, last = explain(rig.roots, library, error)
    assert last.startswith("to do: ")
    assert advice in last
    shown = ", ".join(nodes) or f"no {rig.roots.dev}/nvidia*"
    assert f"device files: {shown}" in found
    cards = "0000:3b:00.0" if has_card else "none"
    assert f"NVIDIA GPUs on the PCI bus: {cards}" in found
    loaded = "nvidia, nvidia_uvm" if modules else "none that begins with nvidia"
    assert f"kernel modules: {loaded}" in found
    assert any(f"not in {rig.path}/nowhere/{{usr/lib64," in line for line in found)


def test_no_gpus_are_explained_once(rig: GpuRig, caplog: pytest.LogCaptureFixture) -> None:
    plugin = rig.plugin()
    for _ in range(3):
        assert {} == devices(plugin)
    findings = [
        vars(record)["finding"] for record in caplog.records if record.msg == "no usable GPU"
    ]
    assert 1 == len([line for line in findings if line.startswith("to do: ")])
    assert any(f"{rig.library}: loaded" in line for line in findings)


def test_a_failing_wait_is_told_in_few_lines_and_no_lists(
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


def test_neither_a_restart_nor_the_kubelets_nor_new_settings_heal(
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


def test_a_gpu_that_reports_its_own_loss_casts_no_suspicion_on_others(
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
