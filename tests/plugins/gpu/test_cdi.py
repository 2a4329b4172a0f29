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
from gpu.rig import GPU, GpuRig, devices, generate, unhealthy, uuid, uuids

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
MIG = Mig("MIG-4", 0, 1, 0)


def test_the_toolkits_names_are_found(tmp_path: Path) -> None:
    generate(tmp_path / "nvidia.json", "0", "GPU-2", "2:1", "MIG-5", "all")
    found = Toolkit([tmp_path / "none", tmp_path]).find()
    assert "nvidia.com/gpu=GPU-2" == found.match(Gpu(2, "GPU-2")).name
    assert "nvidia.com/gpu=MIG-5" == found.match(Gpu(0, "GPU-0"), Mig("MIG-5", 1, 1, 0)).name
    assert "nvidia.com/gpu=all" == found.match(Gpu(0, "all")).name


def test_where_the_toolkit_names_no_uuids_an_index_is_taken(tmp_path: Path) -> None:
    generate(tmp_path / "nvidia.json", "0", "2:1", "all")
    found = Toolkit([tmp_path]).find()
    assert "nvidia.com/gpu=0" == found.match(Gpu(0, "GPU-0")).name
    assert "nvidia.com/gpu=2:1" == found.match(Gpu(2, "GPU-2"), Mig("MIG-4", 1, 1, 0)).name
    assert Match() == found.match(Gpu(3, "GPU-3"))


def test_an_index_of_an_older_layout_gives_no_pod_another_partition(tmp_path: Path) -> None:
    generate(tmp_path / "nvidia.yaml", *GENERATED)
    found = Toolkit([tmp_path]).find()
    path = tmp_path / "nvidia.yaml"
    assert Match("", "it does not have MIG-4", path) == found.match(Gpu(0, "GPU-0"), MIG)
    assert Match("", "it does not have GPU-9", path) == found.match(Gpu(0, "GPU-9"))
    assert "it does not have GPU-7" == found.match(Gpu(7, "GPU-7")).stale


def test_an_index_whose_device_nodes_are_others_is_an_old_one(tmp_path: Path) -> None:
    nodes = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]
    generate(tmp_path / "nvidia.json", "0:0", nodes=[*nodes, "/dev/nvidiactl"])
    found = Toolkit([tmp_path]).find()
    same = found.match(Gpu(0, "GPU-0"), MIG, nodes=["/dev/nvidiactl", *nodes])
    assert "nvidia.com/gpu=0:0" == same.name
    other = found.match(
        Gpu(0, "GPU-0"), MIG, nodes=["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30"]
    )
    assert "" == other.name
    assert "its device 0:0 has /dev/nvidia-caps/nvidia-cap21," in other.stale
    assert "nvidia.com/gpu=0:0" == found.match(Gpu(0, "GPU-0"), MIG).name


def test_a_uuid_whose_device_node_is_another_gpus_by_now_is_an_old_one(tmp_path: Path) -> None:
    """A boot without the first GPU gives its node to the second, and the file in /etc stays."""
    generate(tmp_path / "nvidia.json", "GPU-1", nodes=["/dev/nvidiactl", "/dev/nvidia1"])
    found = Toolkit([tmp_path]).find()
    assert "nvidia.com/gpu=GPU-1" == found.match(Gpu(1, "GPU-1"), nodes=["/dev/nvidia1"]).name
    assert "nvidia.com/gpu=GPU-1" == found.match(Gpu(1, "GPU-1"), nodes=["/dev/nvidiactl"]).name
    moved = found.match(Gpu(0, "GPU-1"), nodes=["/dev/nvidia0"])
    stale = "its device GPU-1 has /dev/nvidia1, and GPU-1 has others now"
    assert Match("", stale, tmp_path / "nvidia.json") == moved


def test_capabilities_that_only_the_toolkit_sees_make_no_difference(tmp_path: Path) -> None:
    nodes = ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]
    generate(tmp_path / "nvidia.json", "MIG-4", nodes=nodes)
    found = Toolkit([tmp_path]).find()
    assert "nvidia.com/gpu=MIG-4" == found.match(Gpu(0, "GPU-0"), MIG, nodes=nodes[:1]).name
    assert "" == found.match(Gpu(0, "GPU-0"), MIG, nodes=["/dev/nvidia1"]).name


def test_a_specification_for_another_driver_is_out_of_date(tmp_path: Path) -> None:
    generate(tmp_path / "nvidia.json", "GPU-0", "GPU-1", driver="570.86.10")
    found = Toolkit([tmp_path]).find()
    assert "nvidia.com/gpu=GPU-0" == found.match(Gpu(0, "GPU-0"), driver="570.86.10").name
    assert "nvidia.com/gpu=GPU-0" == found.match(Gpu(0, "GPU-0"), driver="").name
    stale = found.match(Gpu(0, "GPU-0"), driver="580.95.05")
    reason = "it is for driver 570.86.10, and 580.95.05 runs"
    assert Match("", reason, tmp_path / "nvidia.json") == stale
    generate(tmp_path / "nvidia.json", "0", driver="570.86.10")
    by_index = Toolkit([tmp_path]).find().match(Gpu(0, "GPU-0"), driver="580.95.05")
    assert reason == by_index.stale


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
    ["{", "", "[]", "kind: nvidia.com/gpu", "a: b: c", "{kind: nvidia.com/gpu, devices: [a]}"],
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
            "index": "0",
            "model": "NVIDIA H100 80GB HBM3",
            "memory": "80Gi",
            "pci": "0000:01:00.0",
        },
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
