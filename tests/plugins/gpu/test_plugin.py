"""The plugin before a simulated kubelet, with the fake driver behind it."""

import json
import socket
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import grpc
import pytest

import deviceplugin as dp
from deviceplugin_gpu.discovery.gpu_discovery import without_nvml
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_testing.fixture import Kubelet
from gpu.fake_nvml import FakeMig, Fleet
from gpu.mps import listening
from gpu.rig import GPU, GpuRig, devices, generate, unhealthy, uuid, uuids
from patience import PATIENCE, eventually


def slicing(**given: object) -> dict[str, object]:
    return {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 2}], **given}}


# Requests.


def test_more_than_one_replica_can_be_refused(rig: GpuRig, kubelet: Kubelet) -> None:
    plugin = rig.has(Fleet.of(2)).plugin(sharing=slicing(failRequestsGreaterThanOne=True))
    replicas = [f"{uuid(slot)}::{number}" for slot in (0, 1) for number in (0, 1)]
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, set(replicas))
        assert {"NVIDIA_VISIBLE_DEVICES": uuid(0)} == node.allocate(replicas[0]).envs
        with pytest.raises(grpc.RpcError) as refused:
            node.allocate(*replicas[1:3])
    expected = (
        'invalid allocation request for "nvidia.com/gpu": 2 devices requested, but more than 1 of '
        "a shared resource gives no more computing power: request 1 (failRequestsGreaterThanOne)"
    )
    assert expected == refused.value.details()


def test_replicas_can_be_asked_to_be_of_distinct_gpus(rig: GpuRig, kubelet: Kubelet) -> None:
    plugin = rig.has(Fleet.of(2)).plugin(
        sharing=slicing(), distinct_gpus=True, shared_devices_allocation_policy="packed"
    )
    replicas = [f"{uuid(slot)}::{number}" for slot in (0, 1) for number in (0, 1)]
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, set(replicas))
        assert [replicas[0], replicas[2]] == sorted(node.prefer(replicas, 2))
        assert f"{uuid(0)},{uuid(1)}" in node.allocate(replicas[0], replicas[3]).envs.values()
        with pytest.raises(grpc.RpcError, match="2 devices requested are of 1 different GPUs"):
            node.allocate(*replicas[:2])


# MPS.

MPS = {"mps": {"resources": [{"name": "gpu", "replicas": 4}]}}


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
def test_mps_is_served_once_its_daemon_answers(rig: GpuRig, kubelet: Kubelet, kind: int) -> None:
    rig.has(Fleet.of(1, memory=40960))
    plugin = rig.plugin(sharing=MPS, mps_root=rig.path / "host")
    replicas = {f"{uuid(0)}::{number}" for number in range(4)}
    with closing(listening(rig.roots.mps, GPU, kind)), kubelet.running(plugin) as node:
        node.wait_for(GPU, replicas)
        found = node.allocate(f"{uuid(0)}::2")
        with pytest.raises(grpc.RpcError, match="failRequestsGreaterThanOne"):
            node.allocate(*replicas)
    expected = dp.Allocation(
        envs={
            "NVIDIA_VISIBLE_DEVICES": uuid(0),
            "CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu/pipe",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10240M",
        },
        mounts=[
            dp.Mount(f"{rig.path}/host/nvidia.com/gpu/pipe", "/mps/nvidia.com/gpu/pipe"),
            dp.Mount(f"{rig.path}/host/shm", "/dev/shm"),
        ],
    )
    assert expected == found


def test_devices_are_unhealthy_while_the_mps_daemon_is_away(rig: GpuRig, kubelet: Kubelet) -> None:
    plugin = rig.has(Fleet.of(1)).plugin(sharing=MPS, mps_root=rig.path / "host")
    replicas = {f"{uuid(0)}::{number}" for number in range(4)}
    with kubelet.running(plugin) as node:
        with closing(listening(rig.roots.mps)):
            node.wait_for(GPU, replicas)
        node.wait_for(GPU, (), unhealthy=replicas)


# Systems without NVML.


@pytest.mark.parametrize("sign", ["etc/nv_tegra_release", "sys/devices/soc0/family"])
def test_a_tegra_system_is_known_by_its_signs_where_nvml_is_missing(rig: GpuRig, sign: str) -> None:
    assert without_nvml(rig.roots, "auto", missing=True) is None
    (rig.path / sign).parent.mkdir(parents=True, exist_ok=True)
    (rig.path / sign).write_text("Snapdragon\n")
    assert sign.startswith("etc") == bool(without_nvml(rig.roots, "auto", missing=True))
    (rig.path / sign).write_text("tegra194\n")
    found = without_nvml(rig.roots, "auto", missing=True)
    assert found is not None
    assert ["tegra"] == [gpu.uuid for gpu in found.gpus]
    assert without_nvml(rig.roots, "auto", missing=False) is None
    assert without_nvml(rig.roots, "nvml", missing=True) is None


def test_the_windows_subsystem_has_one_gpu(rig: GpuRig) -> None:
    rig.has_nodes("dxg")
    plugin = rig.plugin(pass_device_specs=True)
    found = plugin.allocate(list(plugin.discover()))
    expected = [dp.DeviceNode("/dev/dxg", "/dev/dxg")]
    assert dp.Allocation(envs={"NVIDIA_VISIBLE_DEVICES": "all"}, nodes=expected) == found


# New settings.


def test_a_plugin_with_new_settings_answers_before_its_first_look(rig: GpuRig) -> None:
    driver = rig.has(Fleet.of(2)).driver()
    old = GpuPlugin(rig.settings(), driver=driver, roots=rig.roots)
    known = list(old.discover())
    before = rig.fake.calls()
    new = GpuPlugin(rig.settings(device_id_strategy="index"), driver=driver, roots=rig.roots)
    assert {"NVIDIA_VISIBLE_DEVICES": "0,1"} == new.allocate(known).envs
    assert {} == dict(rig.fake.calls() - before)
    other = GpuPlugin(rig.settings(exclude=("1",)), driver=driver, roots=rig.roots)
    with pytest.raises(dp.AllocationError, match="the settings were changed"):
        other.allocate(known)


# CDI.

OURS = "k8s.device-plugin.nvidia.com/gpu"


@pytest.mark.usefixtures("driver_root")
def test_cdi_devices_are_specified_before_they_are_advertised(
    rig: GpuRig, kubelet: Kubelet
) -> None:
    rig.has(Fleet.of(2)).has_nodes("nvidiactl", "nvidia-caps-imex-channels/channel0")
    plugin = rig.plugin(device_list_strategy="cdi-cri,cdi-annotations", imex_channel_ids=(0,))
    file = rig.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json"
    with kubelet.running(plugin) as node:
        node.wait_for(GPU, uuids(0, 1))
        first = json.loads(file.read_text())
        found = node.allocate(uuid(1))
        file.unlink()  # as a reboot does
        eventually(file.exists, "the specification again")
    names = [f"{OURS}={uuid(1)}", "k8s.device-plugin.nvidia.com/imex-channel=0"]
    assert names == list(found.cdi_names)
    assert [",".join(names)] == list(found.annotations.values())
    assert {} == found.envs
    assert uuids(0, 1) == {device["name"] for device in first["devices"]}


@pytest.mark.usefixtures("driver_root")
def test_a_specification_of_an_older_mig_layout_is_not_used_and_told_of_once(
    rig: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.has(Fleet.of(1, migs=(FakeMig(1), FakeMig(2)))).has_nodes("nvidiactl", "nvidia0")
    names = [FakeMig(1).uuid(0), FakeMig(2).uuid(0), "0:0", "0:1", "0", uuid(0)]
    generate(rig.cdi_dir / "nvidia.yaml", *names)
    plugin = rig.plugin(device_list_strategy="cdi-cri", mig_strategy="single")
    assert {f"nvidia.com/gpu={name}" for name in names[:2]} == {
        name for device in plugin.discover() for name in device.cdi_names
    }
    rig.fake.change(0, migs=(FakeMig(7), FakeMig(8)))
    fresh = [devices(plugin) for _ in range(3)][-1]
    made = {FakeMig(7).uuid(0), FakeMig(8).uuid(0)}
    assert made == fresh.keys()
    assert {f"{OURS}={name}" for name in made} == {
        name for device in fresh.values() for name in device.cdi_names
    }
    (told,) = (one for one in caplog.records if "stale CDI" in one.message)
    assert f"it does not have {FakeMig(7).uuid(0)}" == vars(told)["reason"]
    rig.fake.change(0, migs=(FakeMig(1), FakeMig(2)))
    list(plugin.discover())
    rig.fake.change(0, migs=(FakeMig(7),))
    list(plugin.discover())
    assert 2 == sum("stale CDI" in one.message for one in caplog.records)


@pytest.mark.usefixtures("driver_root")
def test_a_specification_from_before_an_upgrade_of_the_driver_is_not_used(rig: GpuRig) -> None:
    rig.has(Fleet.of(1)).has_nodes("nvidiactl", "nvidia0")
    generate(rig.cdi_dir / "nvidia.yaml", uuid(0), driver="570.2.3")
    (device,) = rig.plugin(device_list_strategy="cdi-cri").discover()
    assert (f"{OURS}={uuid(0)}",) == device.cdi_names


@pytest.mark.usefixtures("driver_root")
def test_a_cdi_name_stays_that_of_its_gpu_when_another_one_is_gone(rig: GpuRig) -> None:
    """A kubelet gives a container that starts again the names of before, without asking."""
    rig.has(Fleet.of(2)).has_nodes("nvidiactl", "nvidia0", "nvidia1")
    plugin = rig.plugin(device_list_strategy="cdi-cri", device_id_strategy="index")
    (name,) = plugin.allocate([devices(plugin)[uuid(1)]]).cdi_names
    rig.fake.remove(0)
    assert {uuid(1)} == devices(plugin).keys()
    made = json.loads((rig.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json").read_text())
    paths = {
        f"{OURS}={one['name']}": one["containerEdits"]["deviceNodes"] for one in made["devices"]
    }
    assert ["/dev/nvidia1"] == [node["path"] for node in paths[name]]


@pytest.mark.usefixtures("driver_root")
def test_mig_devices_of_drivers_before_r470_have_cdi_names(rig: GpuRig) -> None:
    old = f"MIG-{uuid(0)}/7/0"
    rig.has(Fleet.of(1, migs=(FakeMig(7, values={"uuid": old}),)))
    rig.has_nodes("nvidiactl", "nvidia0")
    plugin = rig.plugin(device_list_strategy="cdi-cri", mig_strategy="single")
    assert {} == unhealthy(devices(plugin))
    assert [f"{OURS}=MIG-{uuid(0)}:7:0"] == [*plugin.allocate(list(plugin.discover())).cdi_names]


@pytest.mark.usefixtures("driver_root")
def test_a_gpu_that_no_specification_has_is_unhealthy(rig: GpuRig) -> None:
    rig.has(Fleet.of(3)).has_nodes("nvidiactl", "nvidia0", "nvidia1")
    rig.fake.change(1, uuid="GPU 1, or so")
    rig.fake.fail("nvmlDeviceGetMinorNumber", 3, gpu=2)
    reasons = unhealthy(devices(rig.plugin(device_list_strategy="cdi-cri")))
    assert {"GPU 1, or so", uuid(2)} == reasons.keys()
    assert all("no CDI specification has it" in reason for reason in reasons.values())


@pytest.mark.parametrize("strategy", ["cdi-cri", "envvar"])
def test_imex_channels_can_be_required(rig: GpuRig, strategy: str) -> None:
    plugin = rig.has(Fleet.of(1)).plugin(
        device_list_strategy=strategy, imex_channel_ids=(0,), imex_required=True
    )
    with pytest.raises(dp.DiscoveryError, match=r"imex-required: no .*/channel0"):
        plugin.discover()
    rig.has_nodes("nvidia-caps-imex-channels/channel0")
    assert uuids(0) == devices(plugin).keys()


@pytest.mark.parametrize(
    ("seen", "host"), [("dev", "/dev"), ("driver-root/dev", "/run/nvidia/driver/dev")]
)
def test_an_imex_channel_comes_with_its_node_as_long_as_that_is_there(
    rig: GpuRig, seen: str, host: str
) -> None:
    """A container that is given a node which is not there does not start."""
    rig.has(Fleet.of(1)).has_nodes("nvidiactl", "nvidia0")
    strategies = "envvar,cdi-cri"
    plugin = rig.plugin(
        imex_channel_ids=(0,),
        driver_root=Path("/run/nvidia/driver"),
        device_list_strategy=strategies,
        pass_device_specs=True,
    )

    def given() -> tuple[str, list[str], bool]:
        found = plugin.allocate(list(plugin.discover()))
        nodes = [node.host_path for node in found.nodes if "imex" in node.container_path]
        named = "k8s.device-plugin.nvidia.com/imex-channel=0" in found.cdi_names
        return found.envs.get("NVIDIA_IMEX_CHANNELS", ""), nodes, named

    assert ("", [], False) == given()
    (told,) = plugin.shortfalls
    assert "IMEX channel 0 has no device node" in told
    channel = rig.path / seen / "nvidia-caps-imex-channels/channel0"
    channel.parent.mkdir(parents=True)
    channel.touch()
    path = f"{host}/nvidia-caps-imex-channels/channel0"
    assert ("0", [path], True) == given()
    file = rig.cdi_dir / "k8s.device-plugin.nvidia.com-imex-channel.json"
    (device,) = json.loads(file.read_text())["devices"]
    (node,) = device["containerEdits"]["deviceNodes"]
    assert path == node.get("hostPath", node["path"])
    channel.unlink()
    assert ("", [], False) == given()


def test_requests_are_answered_while_what_there_is_changes(rig: GpuRig) -> None:
    """Requests of devices of a look before, at any moment of the next ones."""
    rig.has(Fleet.of(3, migs=(FakeMig(1),)))
    strategies = "envvar,cdi-cri"
    plugin = rig.plugin(
        mig_strategy="mixed", device_list_strategy=strategies, pass_device_specs=True
    )
    rig.has_nodes("nvidiactl", "nvidia0", "nvidia1", "nvidia2")
    held = list(plugin.discover())
    done, answers, problems = Event(), Counter[str](), list[Exception]()

    def ask() -> None:
        while not done.wait(0.001):
            try:
                first = plugin.allocate(held[:1]).envs["NVIDIA_VISIBLE_DEVICES"]
                assert 2 == len(list(plugin.prefer(held, [], 2)))
                assert [] != list(plugin.metrics())
                answers[first] += 1
            except Exception as error:
                problems.append(error)
                return

    threads = [Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(8):
        rig.fake.change(1, migs=(FakeMig(1),) if turn % 2 else (FakeMig(1), FakeMig(2, "2g.10gb")))
        rig.fake.change(2, state="lost" if turn % 3 else "ok")
        held = list(plugin.discover())
    done.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert [] == problems
    assert {FakeMig(1).uuid(0)} == answers.keys()
