"""What containers are told of their devices."""

from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.device_list_strategy import Strategies
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.container import device_nodes
from deviceplugin_gpu.container.allocation import allocation
from deviceplugin_gpu.container.device_nodes import Nodes
from deviceplugin_gpu.host import Roots
from deviceplugin_gpu.snapshot import Gpu, Mig

GPU = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
MOUNTED = "/var/run/nvidia-container-devices"
CDI = {"GPU-a": "x.io/gpu=a", "GPU-b": "x.io/gpu=b"}
PAIR = [Unit(GPU, Gpu(10, "GPU-a", minor=10)), Unit(GPU, Gpu(2, "GPU-b", minor=2))]


def told(*names: str, units: list[Unit] = PAIR, **given: Any) -> dp.Allocation:
    strategies = Strategies.parse(list(names) or "envvar")
    settings = GpuSettings(device_list_strategy=strategies, **given)
    return allocation(units, settings, cdi_names=CDI, cdi_others=["x.io/extra=all"])


def test_a_variable_names_devices_in_the_order_of_gpus() -> None:
    assert dp.Allocation(envs={VISIBLE: "GPU-b,GPU-a"}) == told("envvar")
    assert {VISIBLE: "2,10"} == told("envvar", device_id_strategy="index").envs


def test_mounts_name_devices() -> None:
    expected = dp.Allocation(
        envs={VISIBLE: MOUNTED},
        mounts=[
            dp.Mount("/dev/null", f"{MOUNTED}/GPU-b"),
            dp.Mount("/dev/null", f"{MOUNTED}/GPU-a"),
        ],
    )
    assert expected == told("volume-mounts")
    assert expected == told("envvar", "volume-mounts")


def test_the_runtime_is_told_of_cdi_devices_by_name() -> None:
    names = ["x.io/gpu=b", "x.io/gpu=a", "x.io/extra=all"]
    assert dp.Allocation(cdi_names=names) == told("cdi-cri")


def test_the_runtime_is_told_of_cdi_devices_by_an_annotation() -> None:
    found = told("cdi-annotations", cdi_annotation_prefix="cdi.example.com/")
    ((key, value),) = found.annotations.items()
    assert key.startswith("cdi.example.com/nvidia-device-plugin_")
    assert len(key.partition("/")[2]) <= 63
    assert "x.io/gpu=b,x.io/gpu=a,x.io/extra=all" == value
    assert dp.Allocation(annotations={key: value}) == found


def test_annotations_of_other_devices_have_other_keys() -> None:
    one, other = (told("cdi-annotations", units=[unit]).annotations for unit in PAIR)
    assert one.keys() != other.keys()


def test_several_strategies_tell_everything() -> None:
    found = told("envvar", "cdi-annotations", "cdi-cri")
    assert {VISIBLE: "GPU-b,GPU-a"} == found.envs
    assert 1 == len(found.annotations)
    assert 3 == len(found.cdi_names)


def test_replicas_of_one_gpu_are_told_of_once() -> None:
    units = [Unit(GPU, Gpu(0, "GPU-a"), replica=number, replicas=3) for number in (2, 0)]
    assert {VISIBLE: "GPU-a"} == told(units=units).envs
    assert {VISIBLE: "0"} == told(units=units, device_id_strategy="index").envs


def test_a_mig_device_has_an_index_of_two_parts() -> None:
    unit = Unit("nvidia.com/mig-1g.5gb", Gpu(3, "GPU-a"), Mig("MIG-a", 1, 7, 0))
    assert {VISIBLE: "MIG-a"} == told(units=[unit]).envs
    assert {VISIBLE: "3:1"} == told(units=[unit], device_id_strategy="index").envs


def test_imex_channels_are_told_of_in_each_way() -> None:
    given: dict[str, Any] = {"imex_channel_ids": (0,)}
    assert "0" == told("envvar", **given).envs["NVIDIA_IMEX_CHANNELS"]
    mounts = [mount.container_path for mount in told("volume-mounts", **given).mounts]
    assert f"{MOUNTED}/imex/0" in mounts


def test_the_runtime_is_asked_for_more_libraries() -> None:
    given: dict[str, Any] = {"gdrcopy_enabled": True, "gds_enabled": True, "mofed_enabled": True}
    expected = {f"NVIDIA_{mode}": "enabled" for mode in ("GDRCOPY", "GDS", "MOFED")}
    assert expected == told("cdi-cri", **given).envs


# Device nodes.


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    roots = Roots(dev=tmp_path / "dev", proc=tmp_path / "proc")
    roots.dev.mkdir()
    for name in ("nvidia-uvm", "nvidiactl"):
        (roots.dev / name).touch()
    folder = roots.proc / "driver/nvidia-caps"
    folder.mkdir(parents=True)
    lines = ["config 1", "gpu0/gi7/access 121", "gpu0/gi7/ci0/access 122", "gpu1/gi7/access 200"]
    (folder / "mig-minors").write_text("\n".join(lines))
    return device_nodes.find(roots)


def paths(unit: Unit, nodes: Nodes, root: str = "/") -> list[tuple[str, str]]:

    return [(node.host_path, node.container_path) for node in nodes.of(unit, Path(root))]


def test_a_gpu_needs_the_control_nodes_that_exist_and_its_own(nodes: Nodes) -> None:
    expected = [
        ("/run/nvidia/dev/nvidiactl", "/dev/nvidiactl"),
        ("/run/nvidia/dev/nvidia-uvm", "/dev/nvidia-uvm"),
        ("/run/nvidia/dev/nvidia3", "/dev/nvidia3"),
    ]
    assert expected == paths(Unit(GPU, Gpu(0, "GPU-a", minor=3)), nodes, "/run/nvidia")


def test_a_mig_device_needs_its_capabilities(nodes: Nodes) -> None:
    unit = Unit(GPU, Gpu(4, "GPU-a", minor=0), Mig("MIG-a", 0, gpu_instance=7, compute_instance=0))
    expected = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap121", "/dev/nvidia-caps/nvidia-cap122"]
    assert expected == [path for _, path in paths(unit, nodes)][2:]


def test_a_mig_device_without_known_capabilities_has_none() -> None:
    unit = Unit(GPU, Gpu(4, "GPU-a", minor=0), Mig("MIG-a", 0, gpu_instance=7, compute_instance=0))
    assert [("/dev/nvidia0", "/dev/nvidia0")] == paths(unit, Nodes((), {}))


def test_the_gpu_of_wsl_has_the_node_of_directx() -> None:
    assert [("/dev/dxg", "/dev/dxg")] == paths(Unit(GPU, Gpu(0, "all")), Nodes((), {}))


def test_device_nodes_are_given_once_and_not_with_cdi_alone() -> None:
    nodes = {
        unit.id: [dp.DeviceNode("/dev/nvidiactl"), dp.DeviceNode(f"/dev/{unit.uuid}")]
        for unit in PAIR
    }
    found = allocation(PAIR, GpuSettings(), nodes=nodes)
    expected = ["/dev/nvidiactl", "/dev/GPU-b", "/dev/GPU-a"]
    assert expected == [node.host_path for node in found.nodes]
    cdi = GpuSettings(device_list_strategy=Strategies(("cdi-cri",)))
    assert () == allocation(PAIR, cdi, nodes=nodes).nodes
