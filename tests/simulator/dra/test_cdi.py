"""How the container runtime reads CDI specifications, and what a container gets of them."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import ContainerCreateError, KubeletConfig, Pod, RunOptions
from deviceplugin_testing.simulator._containers.runtime import Specifications, UnresolvableError
from kubelets.equipped import Kubelet, allocated

ENV = {"env": ["A=1"]}
Edits = Mapping[str, Any]


def document(*devices: tuple[str, Edits], version: str = "0.3.0", **more: Any) -> dict[str, Any]:
    listed = [{"name": name, "containerEdits": edits} for name, edits in devices]
    return {"cdiVersion": version, "kind": "x.io/c", "devices": listed, **more}


def write(directory: Path, content: object, name: str = "x.json") -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(content if isinstance(content, str) else json.dumps(content))


def problem(directory: Path, content: object, newest: str = "1.0.0") -> str:
    """Return why a runtime ignores the file."""
    write(directory, content)
    found = Specifications.read([directory], newest)
    assert bool(found.problems) is not bool(found.devices)
    return "".join(found.problems.values())


def test_the_edits_of_a_specification_count_once_and_before_its_devices(tmp_path: Path) -> None:
    common, one, two = {"env": ["C=0"]}, {"env": ["A=1"]}, {"env": ["B=2"]}
    write(tmp_path, document(("one", one), ("two", two), containerEdits=common))
    found = Specifications.read([tmp_path], "1.0.0")
    assert [common, two, one] == found.edits(["x.io/c=two", "x.io/c=one"])


def test_a_device_that_is_nowhere_cannot_be_resolved(tmp_path: Path) -> None:
    write(tmp_path, document(("one", ENV)))
    found = Specifications.read([tmp_path, tmp_path / "missing"], "1.0.0")
    with pytest.raises(UnresolvableError, match=r"^unresolvable CDI devices x\.io/c=two, y$"):
        found.edits(["x.io/c=one", "x.io/c=two", "y"])


def test_the_last_directory_wins_and_a_conflict_in_one_hides_the_device(tmp_path: Path) -> None:
    static, transient = tmp_path / "etc", tmp_path / "run"
    write(static, document(("a", ENV), ("b", ENV)))
    write(transient, document(("a", {"env": ["A=2"]})))
    found = Specifications.read([static, transient], "1.0.0")
    assert [{"env": ["A=2"]}] == [each for each in found.edits(["x.io/c=a"]) if each]
    write(transient, document(("a", ENV), ("c", ENV)), "again.json")
    found = Specifications.read([transient], "1.0.0")
    assert {"x.io/c=c"} == found.devices.keys()


def test_files_in_yaml_are_read_too_and_those_of_other_names_are_not(tmp_path: Path) -> None:
    first = yaml.safe_dump(document(("a", ENV)))
    write(tmp_path, f"{first}---\n{yaml.safe_dump(document(('b', ENV)))}", "x.yaml")
    write(tmp_path, document(("c", ENV)), "x.tmp")
    write(tmp_path, "", "empty.yaml")
    write(tmp_path, "{", "broken.yaml")
    found = Specifications.read([tmp_path], "1.0.0")
    assert {"x.io/c=a"} == found.devices.keys()  # of several documents, the first one counts
    assert {"broken.yaml", "empty.yaml"} == {path.name for path in found.problems}


def test_without_pyyaml_that_is_the_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deviceplugin._config.documents.yaml_nodes", None)
    write(tmp_path, yaml.safe_dump(document(("a", ENV))), "x.yaml")
    (why,) = Specifications.read([tmp_path], "1.0.0").problems.values()
    assert "YAML needs PyYAML: pip install pyyaml" == why


def mounting(**mount: Any) -> dict[str, Any]:
    return document(("a", {"mounts": [mount]}))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "is not an object with keys"),
        ({"kind": "x.io/c"}, "cdiVersion"),
        (document(("a", ENV), extra=1), "unknown field 'extra'"),
        (document(("a", ENV), version="9.0.0"), "invalid version '9.0.0'"),
        (document(("a", ENV), version="1.1.0"), "this runtime knows 1.0.0 at most"),
        (document(("a", ENV)) | {"kind": "x.io"}, "invalid kind 'x.io'"),
        (document(), "no devices"),
        (document(("a", {"env": []})), "invalid device a, empty device edits"),
        (document(("-a", ENV)), "invalid device name '-a'"),
        (document(("a", ENV), ("a", ENV)), "multiple devices of the same name"),
        (document(("1", ENV)), "the spec version must be at least v0.5.0"),
        (document(("a", {"env": ["A"]})), "device a: invalid environment variable 'A'"),
        (document(("a", {"odd": 1})), "device a: unknown field 'odd'"),
        (document(("a", {"deviceNodes": [{"hostPath": "/dev/a"}]})), "path is empty"),
        (document(("a", {"deviceNodes": [{"path": "/a", "permissions": "x"}]})), "permissions 'x'"),
        (mounting(hostPath="/a"), "containerPath is empty"),
        (mounting(hostPath="/a", containerPath="/b", odd=1), "mounts: unknown field 'odd'"),
        (document(("a", {"hooks": [{"hookName": "odd", "path": "/a"}]})), "invalid hook name"),
        (document(("a", ENV), containerEdits={"odd": 1}), "unknown field 'odd'"),
        (
            document() | {"devices": [{"name": "a", "containerEdits": ENV, "odd": 1}]},
            "device a: unknown field 'odd'",
        ),
    ],
)
def test_a_file_with_a_fault_is_ignored(tmp_path: Path, content: object, why: str) -> None:
    assert why in problem(tmp_path, content)


def test_a_reason_is_short_whatever_is_in_the_file(tmp_path: Path) -> None:
    long = problem(tmp_path, document(("a", ENV)) | {"kind": "k" * 100_000})
    assert (True, True) == (long.startswith("invalid kind 'kkk"), len(long) < 500)


def test_a_file_that_is_right_is_not(tmp_path: Path) -> None:
    edits = {
        "env": ["A=", "B=1=2"],
        "deviceNodes": [{"path": "/dev/a", "permissions": "none"}],
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
        "hooks": [{"hookName": "createContainer", "path": "/bin/true"}],
        "additionalGids": [7],
    }
    assert "" == problem(tmp_path, document(("a", edits), version="0.7.0"))
    assert "0.5.0 at most" in problem(tmp_path, document(("a", edits), version="0.7.0"), "0.5.0")


def test_a_version_of_cdi_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'2\.0' is not a version of CDI: use one of 0\.3\.0, "):
        KubeletConfig(cdi_version="2.0")


# What a container gets.


@pytest.fixture
def config(tmp_path: Path) -> KubeletConfig:
    directories = (tmp_path / "etc", tmp_path / "run")
    return KubeletConfig(watch_interval=None, sync_interval=None, cdi_dirs=directories)


def test_names_of_plugins_are_resolved_if_directories_are_given(kubelet: Kubelet) -> None:
    hook = {"hookName": "prestart", "path": "/bin/true"}
    edits = {
        "env": ["A=cdi", "B=2"],
        "deviceNodes": [
            {"path": "/dev/a", "hostPath": "/dev/x"},
            {"path": "/dev/b", "permissions": "none"},
        ],
        "mounts": [
            {"hostPath": "/m", "containerPath": "/m", "options": ["ro"]},
            {"hostPath": "/n", "containerPath": "/n"},
        ],
        "hooks": [hook],
        "additionalGids": [7, 7],
    }
    write(kubelet.cdi_dirs[1], document(("one", edits), version="0.7.0"))
    kubelet.plugin().on_allocate = lambda _ids: allocated(
        envs={"A": "plugin", "C": "3"},
        devices=[pb.DeviceSpec(container_path="/dev/a", host_path="/dev/a")],
        mounts=[pb.Mount(container_path="/m", host_path="/old")],
        cdi_devices=[pb.CDIDevice(name="x.io/c=one")],
    )
    got = kubelet.run(Pod.of("p", main={"x.io/dev": 1})).options["main"]
    assert got == RunOptions(
        envs={"A": "cdi", "B": "2", "C": "3"},
        devices=(
            pb.DeviceSpec(container_path="/dev/a", host_path="/dev/x", permissions="rwm"),
            pb.DeviceSpec(container_path="/dev/b", host_path="/dev/b"),
        ),
        mounts=(
            pb.Mount(container_path="/m", host_path="/m", read_only=True),
            pb.Mount(container_path="/n", host_path="/n"),
        ),
        hooks=(hook,),
        gids=(7,),
        annotations={},
        cdi_devices=("x.io/c=one",),
    )


def test_a_container_whose_devices_are_lost_cannot_be_created(kubelet: Kubelet) -> None:
    write(kubelet.cdi_dirs[1], document(("one", {})))
    names = [pb.CDIDevice(name="x.io/c=one")]
    kubelet.plugin().on_allocate = lambda _ids: allocated(cdi_devices=names)
    pod = Pod.of("p", main={"x.io/dev": 1})
    expected = (
        r"^CDI device injection failed: unresolvable CDI devices x\.io/c=one "
        r"\(x\.json: invalid device one, empty device edits\)$"
    )
    with pytest.raises(ContainerCreateError, match=expected) as raised:
        kubelet.run(pod)
    assert "CreateContainerError" == raised.value.reason
    write(kubelet.cdi_dirs[1], document(("one", ENV)))
    assert kubelet.start_container(pod, "main")
