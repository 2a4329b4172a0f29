"""Jetsons and other integrated GPUs: a pod gets what NVIDIA's toolkit knows them by."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.checks import Node, Verdict
from deviceplugin_gpu import doctor, host
from deviceplugin_gpu.advertised import node_labels
from deviceplugin_gpu.advertised.units import advertise
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_gpu.snapshot import TEGRA, Gpu, Snapshot
from gpu.driver_root import DriverRoot
from gpu.fake_nvml import FakeGpu, Fleet
from gpu.platforms import ORIN, THOR, OnlyBelow, orin
from gpu.rig import GPU, GpuRig, devices, generate, unhealthy, uuid
from served.both_protocols import by_both

LIBCUDA = "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1"
DISCRETE = FakeGpu(1)
LOST = "driver libraries not found"


def by_strategy(rig: GpuRig, **given: Any) -> GpuPlugin:
    return rig.plugin(device_discovery_strategy="tegra", **given)


def by_its_signs(rig: GpuRig, **given: Any) -> GpuPlugin:
    (rig.roots.etc / "nv_tegra_release").touch()
    library = OnlyBelow(rig.path / "nothing")
    driver = Driver(library, rig.roots.sys, rig.state_file)
    return GpuPlugin(rig.settings(**given), driver=driver, roots=rig.roots)


def by_nvml(rig: GpuRig, **given: Any) -> GpuPlugin:
    orin(rig)
    return rig.plugin(**given)


def by_the_name_of_thor(rig: GpuRig, **given: Any) -> GpuPlugin:
    return rig.has(Fleet((THOR,))).plugin(**given)


def by_the_capability_of_thor(rig: GpuRig, **given: Any) -> GpuPlugin:
    rig.has(Fleet((THOR,))).fake.fail("nvmlDeviceGetName", 999)
    return rig.plugin(**given)


Make = Callable[..., GpuPlugin]
SYSTEMS = {
    by_strategy: TEGRA,
    by_its_signs: TEGRA,
    by_nvml: ORIN.uuid,
    by_the_name_of_thor: THOR.uuid,
    by_the_capability_of_thor: THOR.uuid,
}
"""Ways in which a plugin finds an integrated GPU, with the id that the kubelet gets."""


def names(plugin: GpuPlugin) -> set[str]:
    """Return what a container with all devices asks the runtime for."""
    found = plugin.allocate([*plugin.discover()])
    mounted = {Path(mount.container_path).name for mount in found.mounts}
    return mounted or {*found.envs["NVIDIA_VISIBLE_DEVICES"].split(",")}


@pytest.mark.parametrize("by", ["uuid", "index"])
@pytest.mark.parametrize("strategy", ["envvar", "volume-mounts"])
@pytest.mark.parametrize(("make", "device"), SYSTEMS.items())
def test_an_integrated_gpu_is_asked_for_as_0(
    rig: GpuRig, make: Make, device: str, strategy: str, by: str
) -> None:
    plugin = make(rig, device_list_strategy=strategy, device_id_strategy=by)
    assert ({device}, {"0"}) == ({*devices(plugin)}, names(plugin))
    sharing = {"timeSlicing": {"resources": [{"name": GPU, "replicas": 3}]}}
    shared = make(rig, device_list_strategy=strategy, device_id_strategy=by, sharing=sharing)
    assert {f"{device}::{number}" for number in range(3)} == {*devices(shared)}
    assert {"0"} == names(shared)


@pytest.mark.parametrize(("make", "device"), [(by_strategy, TEGRA), (by_nvml, ORIN.uuid)])
def test_a_claim_gets_the_same(
    rig: GpuRig, tmp_path_factory: pytest.TempPathFactory, make: Make, device: str
) -> None:
    plugin = make(rig)
    expected, found = by_both(tmp_path_factory.mktemp("d"), lambda: plugin)
    assert expected == found
    ((_, ids),) = found
    assert {device} == ids
    assert ["0"] == [one["envs"]["NVIDIA_VISIBLE_DEVICES"] for one in found.values()]


def test_gpus_beside_an_integrated_one_keep_their_names(rig: GpuRig) -> None:
    rig.has(Fleet((ORIN, DISCRETE)))
    assert {"0", DISCRETE.uuid} == names(rig.plugin())
    assert {"0", "1"} == names(rig.plugin(device_id_strategy="index"))
    assert {"0"} == names(rig.plugin(exclude=("1",)))


@pytest.mark.parametrize(
    "gpu",
    [
        Gpu(0, uuid(0), "NVIDIA GB10", compute=(12, 1), pci="000f:01:00.0"),
        Gpu(0, uuid(0), "NVIDIA GH200 480GB", compute=(9, 0)),
        Gpu(0, uuid(0), "NVIDIA B300", compute=(10, 3), pci="0000:01:00.0"),
        Gpu(0, uuid(0)),
        Gpu(0, "all", "WSL"),
    ],
)
def test_no_other_gpu_counts_as_integrated(gpu: Gpu) -> None:
    assert not gpu.is_integrated


# CDI.


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (["0", "all"], "0"),
        (["0", "1", "all"], "0"),
        ([THOR.uuid, "all"], THOR.uuid),
        (["all"], "all"),
    ],
)
@pytest.mark.parametrize("driver", ["1.1", "540.4.0"])
def test_an_integrated_gpu_has_the_name_that_the_toolkit_gave_it(
    rig: GpuRig, driver_root: DriverRoot, there: list[str], expected: str, driver: str
) -> None:
    """The toolkit's libcuda has the version 1.1, and Thor's GPU has two nodes like a GPU's."""
    driver_root.write(LIBCUDA[1:], "")
    generate(
        rig.cdi_dir / "nvidia.json", *there, driver=driver, nodes=["/dev/nvidia0", "/dev/nvidia2"]
    )
    rig.has(Fleet((THOR,))).has_nodes("nvidiactl", "nvidia0")
    plugin = rig.plugin(device_list_strategy="cdi-cri")
    (device,) = plugin.discover()
    assert (True, (f"nvidia.com/gpu={expected}",)) == (bool(device.health), device.cdi_names)


@pytest.mark.parametrize("with_libraries", [True, False])
@pytest.mark.parametrize(("make", "device"), SYSTEMS.items())
def test_without_the_toolkits_specification_no_pod_gets_it_by_cdi(
    rig: GpuRig,
    compiled: Path,
    caplog: pytest.LogCaptureFixture,
    make: Make,
    device: str,
    *,
    with_libraries: bool,
) -> None:
    if with_libraries:
        DriverRoot(rig.driver_root, compiled).install()
    rig.has_nodes("nvidiactl", "nvidia0")
    plugin = make(rig, device_list_strategy="cdi-cri")
    (why,) = unhealthy(devices(plugin)).values()
    assert "nvidia-ctk cdi generate" in why
    assert device not in "".join(path.read_text() for path in rig.cdi_dir.glob("*gpu.json"))
    assert [why] == [vars(one)["problem"] for one in caplog.records if one.message == LOST]
    both = make(rig, device_list_strategy="cdi-cri,envvar")
    (one,) = both.discover()
    assert (True, (), {"0"}) == (bool(one.health), one.cdi_names, names(both))
    assert f"{why}; only containers of NVIDIA's runtime" in vars(caplog.records[-1])["problem"]


@pytest.mark.usefixtures("driver_root")
def test_a_discrete_gpu_beside_it_is_in_our_specification_alone(rig: GpuRig) -> None:
    generate(rig.cdi_dir / "nvidia.json", "0")
    rig.has(Fleet((ORIN, DISCRETE))).has_nodes("nvidiactl", "nvidia1")
    found = devices(rig.plugin(device_list_strategy="cdi-cri"))
    ours = f"k8s.device-plugin.nvidia.com/gpu={DISCRETE.uuid}"
    assert {
        ORIN.uuid: ("nvidia.com/gpu=0",),
        DISCRETE.uuid: (ours,),
    } == {name: device.cdi_names for name, device in found.items()}
    written = json.loads((rig.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json").read_text())
    assert [DISCRETE.uuid] == [one["name"] for one in written["devices"]]


def test_a_lost_gpu_beside_one_without_an_address_is_missed(rig: GpuRig) -> None:
    orin(rig)
    rig.has_card("0000:02:00.0", driver="nvidia")
    plugin = rig.plugin()
    plugin.discover()
    (told,) = plugin.shortfalls
    assert told.startswith("GPU at 0000:02:00.0 is not known to NVML")


# Labels and the doctor.


def test_the_machine_of_a_jetson_is_in_its_device_tree(rig: GpuRig) -> None:
    model = rig.roots.sys / "firmware/devicetree/base/model"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"NVIDIA Jetson AGX Orin Developer Kit\0")
    snapshot, settings = Snapshot((Gpu(0, TEGRA, name="Tegra"),)), rig.settings()
    units = advertise(snapshot, settings).units
    found = node_labels.labels(snapshot, units, settings, rig.roots.sys)
    assert "NVIDIA-Jetson-AGX-Orin-Developer-Kit" == found["nvidia.com/gpu.machine"]
    assert ("Tegra", "1") == (found["nvidia.com/gpu.product"], found["nvidia.com/gpu.count"])


@pytest.mark.parametrize("family", ["Tegra\n", "tegra194", "Snapdragon\n"])
def test_a_tegra_system_is_known_by_the_family_of_its_chip(rig: GpuRig, family: str) -> None:
    path = rig.roots.sys / "devices/soc0/family"
    path.parent.mkdir(parents=True)
    path.write_text(family)
    assert ("egra" in family) == host.is_tegra(rig.roots)


def told(root: DriverRoot) -> dict[str, tuple[Verdict, str]]:
    found = doctor.look(Node.at_root(root.path))
    return {str(one.looked_at): (one.verdict, f"{one.found} {one.do}") for one in found}


@pytest.mark.parametrize("release", ["", "NVIDIA UNIX Open Kernel Module for aarch64  540.4.0"])
def test_the_doctor_says_that_a_jetson_needs_the_toolkits_specification(
    tmp_path: Path, compiled: Path, release: str
) -> None:
    node = DriverRoot(tmp_path / "node", compiled)
    node.write("etc/nv_tegra_release", "# R36")
    node.write("proc/driver/nvidia/version", f"NVRM version: {release}")
    node.write("etc/containerd/config.toml", "version = 3\n")
    before = told(node)
    assert Verdict.OK is before["NVIDIA GPUs"][0]
    assert "CUDA" not in {
        name.split(" ")[0] for name, (verdict, _) in before.items() if verdict is Verdict.OK
    }
    verdict, text = before["CUDA pods with cdi-annotations, cdi-cri"]
    assert (Verdict.FAILURE, True) == (
        verdict,
        "gpu-cdi" not in text and "nvidia-ctk cdi generate" in text,
    )
    generate(node.path / "etc/cdi/nvidia.json", "0", "all", driver="1.1")
    after = told(node)
    assert (Verdict.OK, True) == (
        after["CUDA pods with cdi-annotations, cdi-cri"][0],
        {"libcuda.so.1", "/dev/nvidia-uvm"}.isdisjoint(after),
    )
