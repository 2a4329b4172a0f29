"""Jetsons and other integrated GPUs: a pod gets what NVIDIA's toolkit knows them by."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.checks import Node, Verdict
from deviceplugin_gpu import doctor
from deviceplugin_gpu.advertised import node_labels
from deviceplugin_gpu.advertised.units import advertise
from deviceplugin_gpu.container.nvidia_ctk import Toolkit
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_gpu.snapshot import TEGRA, WSL, Gpu, Snapshot
from gpu.driver_root import DriverRoot
from gpu.fake_nvml import FakeGpu, Fleet
from gpu.platforms import PLATFORMS, OnlyBelow
from gpu.rig import GPU, GpuRig, devices, generate, unhealthy, uuid
from served.both_protocols import by_both

JETSON, THOR = PLATFORMS["Jetson Orin"], PLATFORMS["Jetson Thor"]
ORIN, DISCRETE = FakeGpu(0, values=JETSON.gpu or {}), FakeGpu(1)
LOST = "driver libraries not found"
Make = Callable[..., GpuPlugin]


def by_strategy(rig: GpuRig, **given: Any) -> GpuPlugin:
    return rig.plugin(device_discovery_strategy="tegra", **given)


def by_its_signs(rig: GpuRig, **given: Any) -> GpuPlugin:
    (rig.roots.etc / "nv_tegra_release").touch()
    driver, toolkit = rig.driver(OnlyBelow(rig.path / "nothing")), Toolkit([rig.cdi_dir])
    return GpuPlugin(rig.settings(**given), driver=driver, roots=rig.roots, toolkit=toolkit)


def by_nvml(rig: GpuRig, **given: Any) -> GpuPlugin:
    JETSON.has_nvml(rig)
    return rig.plugin(**given)


def by_name(rig: GpuRig, **given: Any) -> GpuPlugin:
    THOR.has_nvml(rig)
    return rig.plugin(**given)


def by_capability(rig: GpuRig, **given: Any) -> GpuPlugin:
    rig.fake.fail("nvmlDeviceGetName", 999)
    return by_name(rig, **given)


IDS = {by_strategy: TEGRA, by_its_signs: TEGRA, by_nvml: ORIN.uuid}
IDS |= {by_name: uuid(0), by_capability: uuid(0)}
"""Ways in which a plugin finds an integrated GPU, with the id that the kubelet gets."""
everywhere = pytest.mark.parametrize("make", IDS)


def names(plugin: GpuPlugin) -> set[str]:
    """Return what a container with all devices asks the runtime for."""
    found = plugin.allocate([*plugin.discover()])
    mounted = {Path(mount.container_path).name for mount in found.mounts}
    return mounted or {*found.envs["NVIDIA_VISIBLE_DEVICES"].split(",")}


@pytest.mark.parametrize("by", ["uuid", "index"])
@pytest.mark.parametrize("strategy", ["envvar", "volume-mounts"])
@everywhere
def test_an_integrated_gpu_is_asked_for_as_0(
    rig: GpuRig, make: Make, strategy: str, by: str
) -> None:
    given = {"device_list_strategy": strategy, "device_id_strategy": by}
    plugin = make(rig, **given)
    assert ({IDS[make]}, {"0"}) == ({*devices(plugin)}, names(plugin))
    sharing = {"timeSlicing": {"resources": [{"name": GPU, "replicas": 3}]}}
    shared = make(rig, **given, sharing=sharing)
    assert {f"{IDS[make]}::{number}" for number in range(3)} == {*devices(shared)}
    assert {"0"} == names(shared)


@pytest.mark.slow
def test_a_claim_gets_the_same(rig: GpuRig, root: Path) -> None:
    plugin = by_nvml(rig)
    expected, found = by_both(root, lambda: plugin)
    assert expected == found
    assert [frozenset({ORIN.uuid})] == [ids for _, ids in found]
    assert ["0"] == [one["envs"]["NVIDIA_VISIBLE_DEVICES"] for one in found.values()]


def test_gpus_beside_an_integrated_one_keep_their_names(rig: GpuRig) -> None:
    rig.has(Fleet((ORIN, DISCRETE)))
    assert {"0", DISCRETE.uuid} == names(rig.plugin())
    assert {"0", "1"} == names(rig.plugin(device_id_strategy="index"))
    assert {"0"} == names(rig.plugin(exclude=("1",)))


OTHERS = """3.0 GRID K520; 3.5 Tesla K40m; 3.7 Tesla K80; 5.0 Tesla M10; 5.2 Tesla M60; 6.0 Tesla
    P100-PCIE-16GB; 6.1 Tesla P4; 7.0 Tesla V100-SXM2-32GB; 7.5 Tesla T4; 7.5 Quadro RTX 8000; 8.0
    NVIDIA A100-SXM4-80GB; 8.0 NVIDIA DRIVE-PG199-PROD; 8.0 NVIDIA CMP 170HX; 8.0 GRID A100D-80C;
    8.6 NVIDIA A10; 8.6 NVIDIA RTX A6000; 8.9 NVIDIA L40S; 8.9 NVIDIA RTX 6000 Ada Generation; 9.0
    NVIDIA GH200 480GB; 9.0 NVIDIA H100 80GB HBM3; 10.0 NVIDIA B200; 10.3 NVIDIA B300; 12.0 NVIDIA
    RTX PRO 6000 Blackwell Server Edition; 12.1 NVIDIA GB10; 13.0 NVIDIA Thorium; 0.0 """
"""Compute capability and name of discrete GPUs, of each architecture and board of one kind."""


def test_no_other_gpu_counts_as_integrated() -> None:
    assert not Gpu(0, WSL, "WSL").is_integrated
    for compute, _, name in (" ".join(one.split()).partition(" ") for one in OTHERS.split(";")):
        major, minor = map(int, compute.split("."))
        gpu = Gpu(0, uuid(0), name, compute=(major, minor), pci="0000:01:00.0")
        assert not gpu.is_integrated, name


# CDI.


@pytest.mark.parametrize("with_libraries", [True, False])
@pytest.mark.parametrize(
    ("there", "expected"),
    [(["0", "1", "all"], "0"), (["0", uuid(0), ORIN.uuid], "0"), (["all"], "all")],
)
@everywhere
def test_an_integrated_gpu_has_the_name_that_the_toolkit_gave_it(
    rig: GpuRig,
    compiled: Path,
    make: Make,
    there: list[str],
    expected: str,
    *,
    with_libraries: bool,
) -> None:
    """The toolkit's libcuda has the version 1.1, and the GPU of a Thor has two nodes."""
    if with_libraries:
        DriverRoot(rig.driver_root, compiled).install()
    (rig.driver_root / "usr/lib64/libcuda.so.1.1").touch()
    nodes = ["/dev/nvidia0", "/dev/nvidia2"]
    generate(rig.cdi_dir / "nvidia.json", *there, driver="1.1", nodes=nodes)
    rig.has_nodes("nvidiactl", "nvidia0")
    (device,) = make(rig, device_list_strategy="cdi-cri").discover()
    assert (True, (f"nvidia.com/gpu={expected}",)) == (bool(device.health), device.cdi_names)


@pytest.mark.parametrize("with_libraries", [True, False])
@everywhere
def test_without_the_toolkits_specification_no_pod_gets_it_by_cdi(
    rig: GpuRig,
    compiled: Path,
    caplog: pytest.LogCaptureFixture,
    make: Make,
    *,
    with_libraries: bool,
) -> None:
    if with_libraries:
        DriverRoot(rig.driver_root, compiled).install()
    rig.has_nodes("nvidiactl", "nvidia0")
    (why,) = unhealthy(devices(make(rig, device_list_strategy="cdi-cri"))).values()
    assert "nvidia-ctk cdi generate" in why
    assert [] == [*rig.cdi_dir.glob("*gpu.json")]
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
    expected = {ORIN.uuid: ("nvidia.com/gpu=0",), DISCRETE.uuid: (ours,)}
    assert expected == {name: device.cdi_names for name, device in found.items()}
    written = (rig.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json").read_text()
    assert (True, False) == (DISCRETE.uuid in written, ORIN.uuid in written)


def test_a_lost_gpu_beside_one_without_an_address_is_missed(rig: GpuRig) -> None:
    rig.has_card("0000:02:00.0", driver="nvidia")
    plugin = by_nvml(rig)
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
    expected = ["NVIDIA-Jetson-AGX-Orin-Developer-Kit", "Tegra", "1"]
    assert expected == [found[f"nvidia.com/gpu.{key}"] for key in ("machine", "product", "count")]


@pytest.mark.parametrize("release", ["", "NVIDIA UNIX Open Kernel Module for aarch64  540.4.0"])
def test_the_doctor_says_that_a_jetson_needs_the_toolkits_specification(
    tmp_path: Path, compiled: Path, release: str
) -> None:
    node = DriverRoot(tmp_path / "node", compiled)
    node.write("etc/nv_tegra_release", "# R36")
    node.write("proc/driver/nvidia/version", f"NVRM version: {release}")
    node.write("etc/containerd/config.toml", "version = 3\n")

    def told() -> tuple[Verdict, str]:
        found = {str(one.looked_at): one for one in doctor.look(Node.at_root(node.path))}
        assert Verdict.OK is found["NVIDIA GPUs"].verdict
        assert {"libcuda.so.1", "/dev/nvidia-uvm"}.isdisjoint(found), "it has neither"
        return (one := found["CUDA pods with cdi-annotations, cdi-cri"]).verdict, one.do

    advice = "run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml on the node."
    assert (Verdict.FAILURE, advice) == told()
    generate(node.path / "etc/cdi/nvidia.json", "0", "all", driver="1.1")
    assert (Verdict.OK, "") == told()
