"""CDI specifications: those that the plugin writes, and those that it finds."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from containers.cdi_rules import faults
from deviceplugin_gpu.container.cdi_specs import VENDOR, Directory, documents, extras
from deviceplugin_gpu.container.nvidia_ctk import Generated, Toolkit
from deviceplugin_gpu.host import atomic_files
from deviceplugin_gpu.snapshot import Gpu, Mig

FILE = f"{VENDOR}-gpu.json"


def nodes(*names: str, root: str = "") -> list[dp.DeviceNode]:
    return [dp.DeviceNode(f"{root}/dev/{name}", f"/dev/{name}") for name in names]


CONTROL = nodes("nvidiactl", "nvidia-uvm")
GPUS = {"gpu": {"GPU-1": [*CONTROL, *nodes("nvidia0")], "GPU-2": [*CONTROL, *nodes("nvidia1")]}}


def test_a_specification_has_what_containers_need(tmp_path: Path) -> None:
    names = Directory(tmp_path).publish(documents(GPUS, CONTROL))
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


def test_the_version_is_the_oldest_that_has_what_is_used() -> None:
    def version(name: str, root: str = "", of: str = "gpu") -> str:
        made = documents({of: {name: nodes("nvidia0", root=root)}}, ())[of]
        assert [] == [*faults(made)]
        return str(made["cdiVersion"])

    assert "0.3.0" == version("GPU-1")
    assert "0.5.0" == version("0")
    assert "0.5.0" == version("0:1")
    assert "0.5.0" == version("GPU-1", root="/run/nvidia/driver")
    assert "0.6.0" == version("0", of="gpu.shared")


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


names = st.sampled_from(["GPU-0a", "MIG-0b", "GPU-1", "0", "12", "0:1"])
some_nodes = st.lists(
    st.sampled_from(["nvidiactl", "nvidia0", "nvidia1", "nvidia-caps/nvidia-cap1"]), unique=True
)
some_devices = st.dictionaries(names, some_nodes, max_size=3)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["gpu", "gds", "a.b"]), some_devices, max_size=2),
    some_nodes,
    st.sampled_from(["", "/driver"]),
    st.booleans(),
)
def test_every_specification_is_one_that_runtimes_take(
    classes: dict[str, dict[str, list[str]]], control: list[str], root: str, alone: bool
) -> None:
    wanted = {
        of: {name: nodes(*some, root=root) for name, some in devices.items()}
        for of, devices in classes.items()
    }
    for made in documents(wanted, nodes(*control, root=root), alone=alone).values():
        assert [] == [*faults(made)]


def test_other_classes_have_the_nodes_that_exist(tmp_path: Path) -> None:
    for name in ("gdrdrv", "nvidia-fs0", "nvidia-fs1", "infiniband/uverbs0"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "nvidia-caps-imex-channels").mkdir()
    (tmp_path / "nvidia-caps-imex-channels/channel0").touch()
    found = extras(tmp_path, Path("/"), ["gdrcopy", "gds", "mofed"], [0, 1])
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


# The directory.


def content(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


def test_the_directory_is_made_and_what_did_not_change_is_not_written(tmp_path: Path) -> None:
    directory = Directory(tmp_path / "run" / "cdi")
    directory.publish(documents(GPUS, CONTROL))
    path = tmp_path / "run" / "cdi" / FILE
    before = path.stat().st_ino
    directory.publish(documents(GPUS, CONTROL))
    assert before == path.stat().st_ino
    directory.publish(documents(GPUS, ()))
    assert before != path.stat().st_ino
    path.unlink()
    directory.publish(documents(GPUS, ()))
    assert [FILE] == content(path.parent), "written again after a reboot; no drafts are left"


def test_only_files_of_ours_are_removed(tmp_path: Path) -> None:
    others = ["nvidia.yaml", "k8s.device-plugin.nvidia.common-gpu.json", ".hidden", "x.json"]
    stale = [f"{VENDOR}-imex-channel.json", f"{VENDOR}-gpu.yaml", f".{VENDOR}-gpu.json.0123"]
    for name in [*others, *stale]:
        (tmp_path / name).touch()
    directory = Directory(tmp_path)
    directory.publish(documents(GPUS, CONTROL))
    assert sorted([*others, FILE]) == content(tmp_path)
    assert frozenset() == directory.publish({})
    assert sorted(others) == content(tmp_path)


def test_permissions_are_set_right(tmp_path: Path) -> None:
    Directory(tmp_path).publish(documents(GPUS, CONTROL))
    (tmp_path / FILE).chmod(0o600)
    Directory(tmp_path).publish(documents(GPUS, CONTROL))
    assert 0o644 == (tmp_path / FILE).stat().st_mode & 0o777


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cdi").touch()
    with pytest.raises(dp.DiscoveryError, match=r"cdi-dir .*/cdi: .* mount it from the host"):
        Directory(tmp_path / "cdi").publish(documents(GPUS, CONTROL))
    assert frozenset() == Directory(tmp_path / "none").publish({})


def test_a_draft_that_cannot_take_its_place_is_removed(tmp_path: Path) -> None:
    (tmp_path / FILE / "in the way").mkdir(parents=True)
    with pytest.raises(dp.DiscoveryError):
        Directory(tmp_path).publish(documents(GPUS, CONTROL))
    assert [FILE] == content(tmp_path)


def test_a_file_tells_whether_it_changed(tmp_path: Path) -> None:
    assert [True, False, True] == [
        atomic_files.write(tmp_path / "a", text) for text in ("ä", "ä", "b")
    ]


# NVIDIA's toolkit.

GENERATED = """
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {}
- name: GPU-2
  containerEdits: {}
- name: "2:1"
  containerEdits: {}
- name: MIG-5
  containerEdits: {}
"""


def test_the_toolkits_names_are_found(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(GENERATED)
    found = Toolkit([tmp_path / "none", tmp_path]).find()
    assert "nvidia.com/gpu=0" == found.name(Gpu(0, "GPU-0"))
    assert "nvidia.com/gpu=GPU-2" == found.name(Gpu(2, "GPU-2"))
    assert None is found.name(Gpu(3, "GPU-3"))
    assert "nvidia.com/gpu=2:1" == found.name(Gpu(2, "GPU-2"), Mig("MIG-4", 1, 1, 0))
    assert "nvidia.com/gpu=MIG-5" == found.name(Gpu(0, "GPU-0"), Mig("MIG-5", 1, 1, 0))
    assert None is found.name(Gpu(0, "GPU-0"), Mig("MIG-6", 0, 1, 0))


def test_all_generated_files_are_read_and_those_of_other_kinds_are_not(tmp_path: Path) -> None:
    document = {"kind": "nvidia.com/gpu", "devices": [{"name": "all"}]}
    (tmp_path / "nvidia-gpu.json").write_text(json.dumps(document))
    (tmp_path / "nvidia-gds.json").write_text(json.dumps({**document, "kind": "nvidia.com/gds"}))
    (tmp_path / "amd.json").write_text(json.dumps(document | {"devices": [{"name": "x"}]}))
    toolkit = Toolkit([tmp_path])
    assert Generated(frozenset({"all"})) == toolkit.find()
    (tmp_path / "nvidia-gpu.json").write_text(json.dumps(document | {"devices": []}))
    assert Generated() == toolkit.find()


@pytest.mark.parametrize("text", ["{", "", "[]", "kind: nvidia.com/gpu", "a: b: c"])
def test_a_generated_file_that_makes_no_sense_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (tmp_path / "nvidia.yaml").write_text(text)
    toolkit = Toolkit([tmp_path])
    assert [Generated()] * 3 == [toolkit.find() for _ in range(3)]
    assert 1 == len(caplog.records)
    (tmp_path / "nvidia.yaml").write_text(GENERATED)
    assert 4 == len(toolkit.find().names)


@pytest.mark.parametrize("name", ["nvidia.json", "nvidia.yaml"])
def test_a_generated_file_that_is_too_deep_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (tmp_path / name).write_text("[" * 5000)
    (tmp_path / "nvidia2.yaml").write_text(GENERATED)
    assert 4 == len(Toolkit([tmp_path]).find().names)
    assert 1 == len(caplog.records)


def test_a_generated_file_that_cannot_be_read_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "nvidia.yaml").mkdir()
    (tmp_path / "nvidia2.yaml").write_text(GENERATED)
    toolkit = Toolkit([tmp_path])
    assert [4, 4] == [len(toolkit.find().names) for _ in range(2)]
    assert 1 == len(caplog.records)
