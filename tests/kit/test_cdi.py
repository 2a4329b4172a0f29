"""CDI specification files: what is in them, and whose they are."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containers.cdi_rules import faults
from deviceplugin import DeviceNode, Mount
from deviceplugin.kit import cdi
from deviceplugin.kit.cdi import Directory, Edits, Hook, SpecError, Specification, parse
from deviceplugin.kit.cdi._files import LONGEST

VENDOR = "vendor.example.com"
KIND = f"{VENDOR}/gpu"
ONE = Edits(nodes=[DeviceNode("/dev/one")])
TWO = Edits(env={"TWO": "2"}, mounts=[Mount("/lib/two", "/lib/2", read_only=True)])
FILE = f"{VENDOR}-gpu.json"


def made(**given: Any) -> Specification:
    return Specification(**{"kind": KIND, "devices": {"a": ONE}, **given})


def content(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


def test_a_specification_says_what_containers_get() -> None:
    hook = Hook("createContainer", "/usr/bin/hook", ["hook", "run"], {"DEBUG": "no"})
    node = DeviceNode("/host/dev/one", "/dev/one", "r")
    everything = Edits({"A": "b=c"}, [node], [Mount("/lib")], [hook], [44])
    assert {
        "cdiVersion": "0.7.0",
        "kind": KIND,
        "devices": [
            {
                "name": "a",
                "containerEdits": {
                    "env": ["A=b=c"],
                    "deviceNodes": [
                        {"path": "/dev/one", "permissions": "r", "hostPath": "/host/dev/one"}
                    ],
                    "mounts": [
                        {
                            "hostPath": "/lib",
                            "containerPath": "/lib",
                            "options": ["rw", "nosuid", "nodev", "rbind", "rprivate"],
                        }
                    ],
                    "hooks": [
                        {
                            "hookName": "createContainer",
                            "path": "/usr/bin/hook",
                            "args": ["hook", "run"],
                            "env": ["DEBUG=no"],
                        }
                    ],
                    "additionalGids": [44],
                },
            }
        ],
        "containerEdits": {"env": ["TWO=2"]},
    } == made(devices={"a": everything}, edits=Edits(env={"TWO": "2"})).document()


@pytest.mark.parametrize(
    ("version", "edits", "more"),
    [
        ("0.3.0", {"deviceNodes": [{"path": "/dev/a"}]}, {}),
        ("0.3.0", {"mounts": [{"hostPath": "/a", "containerPath": "/a"}]}, {}),
        ("0.4.0", {"mounts": [{"hostPath": "a", "containerPath": "/a", "type": "tmpfs"}]}, {}),
        ("0.5.0", {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}, {}),
        ("0.6.0", {"env": ["A=b"]}, {"annotations": {"a": "b"}}),
        ("0.6.0", {"env": ["A=b"]}, {"kind": "example.com/gpu.shared"}),
        ("0.7.0", {"additionalGids": [1]}, {}),
        ("0.7.0", {"intelRdt": {"closID": "a"}}, {"kind": "example.com/gpu.shared"}),
        ("1.1.0", {"intelRdt": {"schemata": ["a"]}}, {}),
        ("1.1.0", {"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}, {}),
    ],
)
def test_the_version_is_the_oldest_that_has_what_is_used(
    version: str, edits: dict[str, Any], more: dict[str, Any]
) -> None:
    other = {"name": "other", "containerEdits": {"env": ["A=b"]}}
    devices = [other, {"name": "a", "containerEdits": edits}]
    assert version == cdi.least_version({"kind": KIND, "devices": devices, **more})
    whole = {"kind": KIND, "devices": [other], "containerEdits": edits, **more}
    assert version == cdi.least_version(whole)


def test_names_are_those_that_runtimes_take() -> None:
    kinds = ["a/b", "vendor.com/gpu", "v_1.x-y/GPU.shared", f"a/{'b' * 63}", f"{'a' * 253}/b"]
    wrong = ["", "a", "/a", "a/", "1/b", "a/1", "a-/b", "a/b/c", "ä/b", f"a/{'b' * 64}", "a/b\n"]
    assert kinds == [one for one in (*kinds, *wrong, f"{'a' * 254}/b") if cdi.is_kind(one)]
    names = ["0", "0:1", "GPU-a.b_c", "a"]
    wrong = ["", "-a", "a-", "a b", "a/b", "ä"]
    assert names == [one for one in (*names, *wrong) if cdi.is_device_name(one)]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"kind": "gpu"}, "kind 'gpu' is not of the form"),
        ({"devices": {}}, "has no devices"),
        ({"devices": {"a b": ONE}}, "'a b' is not a name of a device"),
        ({"devices": {"a": Edits()}}, "device a edits nothing"),
        ({"edits": Edits(env={"A=": "b"})}, "'A=' is not a variable"),
        ({"edits": Edits(nodes=[DeviceNode("/a", permissions="x")])}, "/a: permissions 'x'"),
        ({"devices": {"a": Edits(nodes=[DeviceNode("dev")])}}, "a: path 'dev' is not absolute"),
        ({"edits": Edits(mounts=[Mount("/lib", "lib")])}, "path 'lib' is not absolute"),
        ({"edits": Edits(hooks=[Hook("prestart", "hook")])}, "path 'hook' is not absolute"),
        ({"edits": Edits(mounts=[Mount("/srv/../etc")])}, "path '/srv/../etc' is not normalized"),
    ],
)
def test_what_a_runtime_would_refuse_is_an_error(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        made(**given).document()


PATHS = st.sampled_from(["/dev/a", "/b"])
EDITS = st.builds(
    Edits,
    st.dictionaries(st.sampled_from("AB"), st.text(max_size=2), max_size=2),
    st.lists(st.builds(DeviceNode, PATHS, PATHS), max_size=2),
    st.lists(st.builds(Mount, PATHS, PATHS, st.booleans()), max_size=2),
)


@settings(max_examples=50, deadline=None)
@given(EDITS, EDITS, EDITS, st.sampled_from(["0", "GPU-1"]))
def test_what_is_no_error_is_what_runtimes_take(
    one: Edits, other: Edits, common: Edits, name: str
) -> None:
    both = {"a": ONE + one, name: other}
    specification = made(devices={key: value for key, value in both.items() if value}, edits=common)
    assert [] == [*faults(specification.document())]


def test_edits_and_specifications_of_a_kind_together_are_both_without_repetitions() -> None:
    assert not Edits()
    assert ONE + TWO == ONE + TWO + ONE
    both = Edits(env={"A": "1", "B": "1"}) + Edits(env={"A": "2"})
    assert Edits(env={"A": "2", "B": "1"}) == both
    merged = made(edits=TWO) + made(devices={"a": TWO, "b": TWO})
    assert Specification(KIND, {"a": ONE + TWO, "b": TWO}, TWO) == merged
    with pytest.raises(ValueError, match="cannot be in one specification"):
        made() + made(kind=f"{VENDOR}/nic")


# The directory.


def test_what_is_published_can_be_named(tmp_path: Path) -> None:
    nic = made(kind=f"{VENDOR}/nic", devices={"0": ONE, "1": ONE})
    empty = made(kind=f"{VENDOR}/none", devices={})
    names = Directory(tmp_path / "run/cdi", VENDOR).publish([made(), nic, empty])
    assert {f"{KIND}=a", f"{VENDOR}/nic=0", f"{VENDOR}/nic=1"} == names
    assert [FILE, f"{VENDOR}-nic.json"] == content(tmp_path / "run/cdi")
    path = tmp_path / "run/cdi" / FILE
    assert made().document() == json.loads(path.read_text())
    assert 0o100644 == path.stat().st_mode


def test_what_says_the_same_is_not_written_again(tmp_path: Path) -> None:
    directory = Directory(tmp_path, VENDOR)
    assert [True, False] == [directory.write(made()) for _ in range(2)]
    before = (tmp_path / FILE).stat().st_ino
    directory.publish([made()])
    assert before == (tmp_path / FILE).stat().st_ino
    assert directory.write(made(edits=TWO))
    assert directory.write(made(devices={"0": ONE}), "special.yaml")
    assert "0.5.0" == json.loads((tmp_path / "special.yaml").read_text())["cdiVersion"]
    with pytest.raises(ValueError, match=r"not of vendor example\.com"):
        Directory(tmp_path, "example.com").write(made())


def test_only_files_of_ours_are_removed(tmp_path: Path) -> None:
    other = f"{VENDOR}-other-gpu.json"  # of the vendor vendor.example.com-other
    (tmp_path / other).write_text(json.dumps({"kind": f"{VENDOR}-other/gpu"}))
    yaml = f"{VENDOR}-other-nic.yaml"
    (tmp_path / yaml).write_text(f'devices: []\nkind: "{VENDOR}-other/nic"\n')
    others = [other, yaml, "nvidia.yaml", f"{VENDOR}", ".hidden"]
    stale = [f"{VENDOR}-nic.json", f"{VENDOR}-gpu.yaml", f".{FILE}.0123"]
    for name in {*others, *stale} - {other, yaml}:
        (tmp_path / name).touch()
    (tmp_path / stale[0]).write_text(json.dumps(made(kind=f"{VENDOR}/nic").document()))
    directory = Directory(tmp_path, VENDOR)
    directory.publish([made()])
    assert sorted([*others, FILE]) == content(tmp_path)
    assert frozenset() == directory.publish([])
    assert sorted(others) == content(tmp_path)
    assert frozenset() == Directory(tmp_path / "none", VENDOR).publish([])


def test_a_file_of_an_absurd_size_is_not_read_and_not_removed(tmp_path: Path) -> None:
    path = tmp_path / f"{VENDOR}-nic.json"
    with path.open("wb") as file:
        file.truncate(LONGEST + 1)
    directory = Directory(tmp_path, VENDOR)
    assert frozenset() == directory.publish([])
    assert [path.name] == content(tmp_path)
    with pytest.raises(SpecError, match=rf"^is not valid JSON: more than {LONGEST} bytes$"):
        parse(path)
