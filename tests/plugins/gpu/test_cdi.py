"""CDI specifications: those that the plugin writes, and those that it finds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from containers.cdi_rules import faults
from deviceplugin.kit.cdi import Directory
from deviceplugin_gpu.container.cdi import VENDOR, _publish, extras, specifications
from deviceplugin_gpu.container.nvidia_ctk import Generated, Match, Toolkit
from deviceplugin_gpu.discovery.driver import Driver
from deviceplugin_gpu.nvml.library import Library
from deviceplugin_gpu.snapshot import Gpu, Mig
from gpu.fake_nvml import FakeGpu, Fleet
from gpu.rig import GPU, GpuRig, devices, generate, uuid, uuids

FILE = f"{VENDOR}-gpu.json"


def nodes(*names: str, root: str = "") -> list[dp.DeviceNode]:
    return [dp.DeviceNode(f"{root}/dev/{name}", f"/dev/{name}") for name in names]


CONTROL = nodes("nvidiactl", "nvidia-uvm")


def documents(*given: Any, **alone: Any) -> dict[str, Any]:
    """Return specifications as JSON has them, by class."""
    made = specifications(*given, **alone)
    return {one.kind.partition("/")[2]: one.document() for one in made}


GPUS = {"gpu": {"GPU-1": [*CONTROL, *nodes("nvidia0")], "GPU-2": [*CONTROL, *nodes("nvidia1")]}}


def test_a_specification_has_what_containers_need(tmp_path: Path) -> None:
    names = _publish(Directory(tmp_path, VENDOR), specifications(GPUS, CONTROL))
    assert {f"{VENDOR}/gpu=GPU-1", f"{VENDOR}/gpu=GPU-2"} == names

    def node(path: str) -> dict[str, str]:
        return {"path": path, "permissions": "rw"}

    assert {
        "cdiVersion": "0.3.0",
        "kind": "k8s.device-plugin.nvidia.com/gpu",
        "devices": [
            {"name": "GPU-1", "containerEdits": {"deviceNodes": [node("/dev/nvidia0")]}},
            {"name": "GPU-2", "containerEdits": {"deviceNodes": [node("/dev/nvidia1")]}},
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [node("/dev/nvidiactl"), node("/dev/nvidia-uvm")],
        },
    } == json.loads((tmp_path / FILE).read_text())
    assert "0o644" == oct((tmp_path / FILE).stat().st_mode & 0o777)


def test_a_driver_in_another_place_is_where_the_nodes_come_from() -> None:
    control = nodes("nvidiactl", root="/driver")
    own = [*control, *nodes("nvidia0", "nvidia-caps/nvidia-cap3", root="/driver")]
    made = documents({"gpu": {"MIG-1": own}}, control, alone=False)["gpu"]
    written = made["devices"][0]["containerEdits"]["deviceNodes"]
    assert [
        ("/dev/nvidia0", "/driver/dev/nvidia0"),
        ("/dev/nvidia-caps/nvidia-cap3", "/driver/dev/nvidia-caps/nvidia-cap3"),
    ] == [(node["path"], node["hostPath"]) for node in written]
    assert ["deviceNodes"] == [*made["containerEdits"]]


def test_what_has_no_nodes_is_left_out() -> None:
    made = documents(
        {"gpu": {"GPU-1": CONTROL, "GPU-2": nodes("nvidia1")}, "gds": {"all": []}}, CONTROL
    )
    assert ["gpu"] == [*made]
    assert ["GPU-2"] == [device["name"] for device in made["gpu"]["devices"]]
    assert {} == documents({"gpu": {"GPU-1": CONTROL}}, CONTROL)
    assert "containerEdits" not in documents(GPUS, (), alone=False)["gpu"]


def test_other_classes_have_the_nodes_that_exist(tmp_path: Path) -> None:
    for name in ("gdrdrv", "nvidia-fs0", "nvidia-fs1", "infiniband/uverbs0"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    channel = dp.DeviceNode("/dev/nvidia-caps-imex-channels/channel0")
    found = extras(tmp_path, Path("/"), ["gdrcopy", "gds", "mofed"], {0: channel})
    made = documents(found, CONTROL)
    assert {
        "gdrcopy": {"all": ["/dev/gdrdrv"]},
        "gds": {"all": ["/dev/nvidia-fs0", "/dev/nvidia-fs1"]},
        "mofed": {"all": ["/dev/infiniband/uverbs0"]},
        "imex-channel": {"0": ["/dev/nvidia-caps-imex-channels/channel0"]},
    } == {
        of: {
            device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
            for device in document["devices"]
        }
        for of, document in made.items()
    }
    assert [] == [fault for document in made.values() for fault in faults(document)]


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cdi").touch()
    directory = Directory(tmp_path / "cdi", VENDOR)
    with pytest.raises(dp.DiscoveryError, match=r"cdi-dir .*/cdi: .* mount it from the host"):
        _publish(directory, specifications(GPUS, CONTROL))


# NVIDIA's toolkit.

GENERATED = ("GPU-2", "0", "0:0", "MIG-5")
INDICES = ("0", "2:1", "all")
GPU_0, GPU_1 = Gpu(0, "GPU-0"), Gpu(1, "GPU-1")
MIG_4 = (GPU_0, Mig("MIG-4", 0, 1, 0))
CAPS = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]
ALL_CAPS = ", ".join(sorted(CAPS))
OTHERS = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30"]
PART, ONE = {"nodes": CAPS}, {"nodes": ["/dev/nvidiactl", "/dev/nvidia1"]}
OF_570, OF_580 = {"driver": "570.86.10"}, {"driver": "580.95.05"}
OLD = "it is for driver 570.86.10, and 580.95.05 runs"
HAS_OTHERS = "its device {} has {}, and {} has others now"


@pytest.mark.parametrize(
    ("names", "generated", "asked", "now", "expected"),
    [
        (GENERATED, {}, (Gpu(2, "GPU-2"),), {}, "GPU-2"),
        (GENERATED, {}, (GPU_0, Mig("MIG-5", 1, 1, 0)), {}, "MIG-5"),
        (INDICES, {}, (Gpu(0, "all"),), {}, "all"),
        # Where it names no UUIDs, an index is taken, but none of an older layout.
        (INDICES, {}, (GPU_0,), {}, "0"),
        (INDICES, {}, (Gpu(2, "GPU-2"), Mig("MIG-4", 1, 1, 0)), {}, "2:1"),
        (INDICES, {}, (Gpu(3, "GPU-3"),), {}, ""),
        (GENERATED, {}, MIG_4, {}, "it does not have MIG-4"),
        (GENERATED, {}, (Gpu(0, "GPU-9"),), {}, "it does not have GPU-9"),
        (GENERATED, {}, (Gpu(7, "GPU-7"),), {}, "it does not have GPU-7"),
        # What has device nodes that are others' by now is old; a boot can change a GPU's node.
        (["0:0"], PART, MIG_4, {}, "0:0"),
        (["0:0"], PART, MIG_4, {"nodes": ["/dev/nvidiactl", *CAPS]}, "0:0"),
        (["0:0"], PART, MIG_4, {"nodes": OTHERS}, HAS_OTHERS.format("0:0", ALL_CAPS, "MIG-4")),
        (["MIG-4"], PART, MIG_4, ONE, HAS_OTHERS.format("MIG-4", ALL_CAPS, "MIG-4")),
        (["GPU-1"], ONE, (GPU_1,), {"nodes": ["/dev/nvidia1"]}, "GPU-1"),
        (["GPU-1"], ONE, (GPU_1,), {"nodes": ["/dev/nvidiactl"]}, "GPU-1"),
        (["GPU-1"], ONE, (GPU_1,), PART, HAS_OTHERS.format("GPU-1", "/dev/nvidia1", "GPU-1")),
        # Capabilities that only the toolkit sees make no difference.
        (["MIG-4"], PART, MIG_4, {"nodes": CAPS[:1]}, "MIG-4"),
        # It was made for another driver.
        (["GPU-0"], OF_570, (GPU_0,), OF_570, "GPU-0"),
        (["GPU-0"], OF_570, (GPU_0,), {"driver": ""}, "GPU-0"),
        (["GPU-0"], OF_570, (GPU_0,), OF_580, OLD),
        (["0"], OF_570, (GPU_0,), OF_580, OLD),
    ],
)
def test_a_device_has_the_name_that_the_toolkit_gave_it_unless_that_is_out_of_date(
    tmp_path: Path, names: Any, generated: Any, asked: Any, now: Any, expected: str
) -> None:
    path = tmp_path / "nvidia.json"
    generate(path, *names, **generated)
    found = Toolkit([tmp_path / "none", tmp_path]).find().match(*asked, **now)
    if " " in expected:
        assert Match("", expected, path) == found
    else:
        assert (f"nvidia.com/gpu={expected}" if expected else "", "") == (found.name, found.stale)


def test_of_two_directories_the_one_that_runtimes_prefer_is_looked_at(tmp_path: Path) -> None:
    etc, run = tmp_path / "etc", tmp_path / "run"
    generate(etc / "nvidia.json", "GPU-0", driver="580.95.05")
    generate(run / "nvidia.json", "GPU-0", driver="570.86.10")
    gpu = Gpu(0, "GPU-0")
    assert "" == Toolkit([etc, run]).find().match(gpu, driver="580.95.05").name
    assert "nvidia.com/gpu=GPU-0" == Toolkit([run, etc]).find().match(gpu, driver="580.95.05").name


def test_a_name_that_is_twice_in_a_directory_is_none(tmp_path: Path) -> None:
    generate(tmp_path / "nvidia.json", "GPU-0", "GPU-1")
    generate(tmp_path / "nvidia-gpu.json", "GPU-0")
    found = Toolkit([tmp_path]).find()
    assert "" == found.match(Gpu(0, "GPU-0")).name
    assert "nvidia.com/gpu=GPU-1" == found.match(Gpu(1, "GPU-1")).name


def test_all_generated_files_are_read_and_those_of_other_kinds_are_not(tmp_path: Path) -> None:
    document = {"kind": "nvidia.com/gpu", "devices": [{"name": "all"}]}
    (tmp_path / "nvidia-gpu.json").write_text(json.dumps(document))
    (tmp_path / "nvidia-gds.json").write_text(json.dumps({**document, "kind": "nvidia.com/gds"}))
    (tmp_path / "amd.json").write_text(json.dumps(document | {"devices": [{"name": "x"}]}))
    toolkit = Toolkit([tmp_path])
    assert {"all"} == {*toolkit.find().by_name}
    (tmp_path / "nvidia-gpu.json").write_text(json.dumps(document | {"devices": []}))
    assert Generated() == toolkit.find()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "kind: nvidia.com/gpu", "{kind: nvidia.com/gpu, devices: [a]}"],
)
def test_a_generated_file_that_makes_no_sense_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (tmp_path / "nvidia.yaml").write_text(text)
    toolkit = Toolkit([tmp_path])
    assert [Generated()] * 3 == [toolkit.find() for _ in range(3)]
    assert 1 == len(caplog.records)
    generate(tmp_path / "nvidia.yaml", *GENERATED)
    assert 4 == len(toolkit.find().by_name)


def test_a_generated_file_that_cannot_be_read_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "nvidia.yaml").mkdir()
    generate(tmp_path / "nvidia2.yaml", *GENERATED)
    (tmp_path / "nvidia3.yaml").symlink_to("nvidia3.yaml")
    toolkit = Toolkit([tmp_path])
    assert [4, 4] == [len(toolkit.find().by_name) for _ in range(2)]
    assert 1 == len(caplog.records)


def test_a_device_says_what_it_is_and_where(rig: GpuRig) -> None:
    rig.has(Fleet.of(1, name="NVIDIA H100 80GB HBM3", memory=81920)).place({0: 1})
    expected = dp.Device(
        uuid(0),
        resource=GPU,
        topology=dp.Topology([1]),
        attributes={
            "index": 0,
            "model": "NVIDIA H100 80GB HBM3",
            "memory": "80Gi",
            "pci": "0000:01:00.0",
            "architecture": "Ampere",
            "cudaComputeCapability": dp.Version("8.0"),
            "driverVersion": dp.Version("580.95.05"),
            "cudaDriverVersion": dp.Version("13.0"),
            "type": "gpu",
            "uuid": uuid(0),
            "minor": 0,
            "productName": "NVIDIA H100 80GB HBM3",
            "brand": "Nvidia",
            "addressingMode": "None",
            "nvlinkPeers": 0,
        },
        capacity={"memory": 80 << 30, "cores": 6912},
        hardware=[uuid(0)],
    )
    assert [expected] == list(rig.plugin().discover())


def test_one_line_is_logged_for_each_gpu_once(
    rig: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    plugin = rig.has(Fleet.of(3)).plugin()
    for _ in range(5):
        plugin.discover()
    found = [vars(record)["uuid"] for record in caplog.records if record.message == "GPU found"]
    assert [uuid(0), uuid(1), uuid(2)] == found
    assert 1 == rig.fake.calls()["nvmlInitWithFlags"]


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
