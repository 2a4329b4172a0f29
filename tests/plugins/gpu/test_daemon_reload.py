"""Which containers lose their GPUs at systemctl daemon-reload, by what a node shows of them."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.checks import Finding, Node, Verdict
from deviceplugin_gpu.configuration.setting_kinds import Strategies
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.doctor.container_runtime import Requests
from deviceplugin_gpu.doctor.daemon_reload import _LEGACY, look_at_reload
from hardware.healthy_node import write

HOOK = {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}
CDI_HOOK = {"createContainer": [{"path": "/usr/bin/nvidia-cdi-hook"}]}
GPU = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
UVM = {"path": "/dev/nvidia-uvm", "type": "c", "major": 511, "minor": 0}
TASKS = "run/containerd/io.containerd.runtime.v2.task/k8s.io"
DENIED = [{"allow": False, "access": "rwm"}]
ALLOWED = "[Scope]\nDevicePolicy=strict\nDeviceAllow=\nDeviceAllow=/dev/char/1:3 rwm\n"
RUNC = "runc version 1.1.{}\ncommit: x\n"
TOOLKIT = "NVIDIA Container Runtime version 1.{}.0\ncommit: y\nspec: 1.2\n\n"


def container(
    node: Node,
    number: int = 0,
    *,
    hooks: Mapping[str, Any] = HOOK,
    visible: str = "GPU-1",
    path: str = "",
    group: str = "kubepods.slice:cri-containerd:c{}",
    **linux: Sequence[Mapping[str, Any]] | None,
) -> None:
    """Make what containerd keeps of a container that runs; ``linux`` has devices and rules."""
    names = {"sandbox-namespace": "ml", "sandbox-name": f"train-{number}", "container-name": "main"}
    env = ["A=b", "NVIDIA_VISIBLE_DEVICES=all", f"NVIDIA_VISIBLE_DEVICES={visible}"]
    spec = {
        "process": {"env": env},
        "hooks": hooks,
        "annotations": {f"io.kubernetes.cri.{key}": value for key, value in names.items()},
        "linux": {
            "cgroupsPath": group.format(number),
            "devices": linux.get("devices", ()),
            "resources": {"devices": linux.get("rules", DENIED)},
        },
    }
    write(node.at(path or f"{TASKS}/c{number}/config.json"), json.dumps(spec))


def unit(node: Node, *rules: str, number: int = 0, text: str = ALLOWED) -> None:
    allowed = "".join(f"DeviceAllow={rule} rw\n" for rule in rules)
    name = f"run/systemd/transient/cri-containerd-c{number}.scope"
    write(node.at(name), "# This is a transient unit file.\n")
    write(node.at(f"{name}.d/50-DeviceAllow.conf"), text + allowed)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node.at_root(tmp_path)
    write(made.at("usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so"))
    write(made.at("sys/fs/cgroup/cgroup.controllers"))
    return made


def requests(node: Node, **changes: Any) -> Requests:
    given = {"mode": "legacy", "program": "/usr/bin/nvidia-container-runtime", "systemd": True}
    return Requests(node.at("config.toml"), **{**given, **changes})


def found(node: Node, settings: GpuSettings | None = None, **changes: Any) -> list[Finding]:
    return [*look_at_reload(node, requests(node, **changes), settings or GpuSettings())]


def lost(node: Node, **changes: Any) -> list[str]:
    """Return what the doctor says of containers that run."""
    return [one.found for one in found(node, **changes) if ": would lose GPUs: " in one.found]


PRIVILEGED = [{"allow": True, "access": "rwm"}]
OF_CGROUPFS = "/kubepods/pod1/c{}"
CRIO = "run/containers/storage/overlay-containers/c0/userdata/config.json"


@pytest.mark.parametrize(
    ("made", "allowed", "is_lost"),
    [
        ({}, None, True),  # systemd's unit is not seen
        ({}, (), True),
        (
            {"path": "run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/c0/config.json"},
            (),
            True,
        ),
        ({"path": CRIO, "group": "kubepods.slice:cri-containerd:c{}"}, (), True),
        ({"visible": "/var/run/nvidia-container-devices"}, (), True),
        ({"devices": None}, (), True),
        ({}, ("/dev/char/195:255",), False),
        ({}, ("char-nvidia-frontend",), False),
        ({}, ("char-195",), False),
        ({"visible": "void"}, (), False),
        ({"visible": ""}, (), False),
        ({"hooks": CDI_HOOK}, (), False),
        ({"hooks": {}}, (), False),
        ({"hooks": None}, None, False),
        ({"group": OF_CGROUPFS}, None, False),
        ({"rules": PRIVILEGED}, (), False),
        ({"devices": [GPU, UVM]}, None, False),
        ({"devices": [GPU, UVM]}, ("/dev/char/195:0", "/dev/char/511:0"), False),
        ({"devices": [GPU, UVM]}, ("/dev/nvidia0", "char-nvidia-uvm"), False),
        ({"devices": [GPU, UVM]}, ("char-*",), False),
        ({"devices": [GPU, UVM]}, ("/dev/char/195:0",), True),
        ({"devices": [GPU], "hooks": CDI_HOOK}, (), True),
    ],
)
def test_a_container_loses_what_systemd_does_not_know_of(
    node: Node, made: Mapping[str, Any], allowed: Sequence[str] | None, *, is_lost: bool
) -> None:
    container(node, **made)
    if allowed is not None:
        unit(node, *allowed)
    assert is_lost == bool(lost(node))


def test_a_unit_that_allows_all_devices_or_resets_its_list_is_read_so(node: Node) -> None:
    container(node, devices=[GPU])
    unit(node, text="[Scope]\nDevicePolicy=auto\nDeviceAllow=\n")
    assert [] == lost(node)
    unit(node, text=f"{ALLOWED}DeviceAllow=/dev/char/195:0 rw\nDeviceAllow=\n")
    (said,) = lost(node)
    assert "their OCI specification has device nodes that systemd's units do not allow" in said
    container(node, 1)
    (said,) = lost(node)
    assert said.startswith("ml/train-0/main: "), "the unit of the other one has gone with it"


def test_the_containers_are_named_with_the_reason_and_the_versions(node: Node) -> None:
    for number in range(12):
        container(node, number)
    (finding,) = found(node)
    assert Verdict.WARNING == finding.verdict
    assert finding.found.startswith("ml/train-0/main, ml/train-1/main, ")
    assert f" and 2 more: would lose GPUs: {_LEGACY} (" in finding.found
    assert "systemd 252, runc of unknown version" in finding.found
    assert "cgroup v2" in finding.found
    assert "Failed to initialize NVML: Unknown Error" in finding.means
    assert "pass-device-specs: true" in finding.do


def test_a_container_that_may_not_use_the_variable_has_nothing_to_lose(node: Node) -> None:
    container(node, visible="all")
    assert [] == lost(node, by_variable=False)
    container(node, visible="/var/run/nvidia-container-devices")
    assert lost(node, by_variable=False)


def test_containers_are_named_where_the_runtime_is_unknown(node: Node) -> None:
    container(node)
    (finding,) = look_at_reload(node, None, GpuSettings())
    assert _LEGACY in finding.found


@pytest.mark.parametrize(
    "text",
    ['["nvidia"]', '{"nvidia": 1, "linux": 3}', '"nvidia"', "[" * 90_000 + '"nvidia"',
     '{"nvidia": 1, "linux": {"cgroupsPath": "a:b:../../etc"}}',
     '{"nvidia": 1, "linux": {"cgroupsPath": "a:b:c\\u0000"}}',
     f'{{"nvidia": 1, "linux": {{"cgroupsPath": "a:b:{"c" * 300}"}}}}',
     '{"nvidia": 1, "linux": {"cgroupsPath": "a:b:c", "devices": [{}]}}',
     '{"linux": {"cgroupsPath": "a:b:c", "devices": [{"path": "/dev/nvidia0", "major": 1e999}]}}',
     '{"linux": {"cgroupsPath": "a:b:c", "devices": [{"path": "/dev/nvidia0", "minor": 1e9}]}}'],
)  # fmt: skip
def test_what_is_not_a_specification_is_passed_over(node: Node, text: str) -> None:
    write(node.at(f"{TASKS}/x/config.json"), text)
    container(node)
    unit(node)
    (said,) = lost(node)
    assert said.startswith("ml/train-0/main: would")


def test_names_are_shown_without_what_controls_a_terminal(node: Node) -> None:
    container(node, group="s:p:c{}")
    file = node.at(f"{TASKS}/c0/config.json")
    file.write_text(file.read_text().replace("train-0", "train\\u001b[2J"))
    assert "ml/train[2J/main" in lost(node)[0]
    file.write_text(file.read_text().replace("annotations", "other"))
    assert lost(node)[0].startswith("c0: "), "the directory's name is its id"


CDI = GpuSettings(device_list_strategy=Strategies(("envvar", "cdi-cri")))
SPECS = GpuSettings(pass_device_specs=True)


@pytest.mark.parametrize(
    ("settings", "changes", "verdict"),
    [
        (GpuSettings(), {}, Verdict.WARNING),
        (GpuSettings(), {"systemd": None}, Verdict.UNKNOWN),
        (GpuSettings(), {"systemd": False}, Verdict.OK),
        (GpuSettings(), {"mode": "auto"}, Verdict.UNKNOWN),
        (GpuSettings(), {"mode": "cdi"}, Verdict.OK),
        (GpuSettings(), {"mode": "csv"}, Verdict.OK),
        (GpuSettings(), {"program": "/opt/nvidia-container-runtime.cdi"}, Verdict.OK),
        (CDI, {"program": "/opt/nvidia-container-runtime.legacy"}, Verdict.OK),
        (GpuSettings(), {"mode": "auto", "program": "/opt/r.legacy"}, Verdict.WARNING),
        (SPECS, {}, Verdict.OK),
        (CDI, {}, Verdict.OK),
    ],
)
def test_a_configuration_that_would_make_such_containers_is_a_warning(
    node: Node, settings: GpuSettings, changes: Mapping[str, Any], verdict: Verdict
) -> None:
    first, seen = found(node, settings, **changes)
    assert (verdict, "systemctl daemon-reload") == (first.verdict, first.looked_at)
    assert "none can be seen from here" == seen.found
    container(node, devices=[GPU])
    (first,) = found(node, settings, **changes)
    assert verdict == first.verdict


def test_a_jetson_has_its_devices_in_the_specification(node: Node) -> None:
    write(node.at("etc/nv_tegra_release"))
    assert Verdict.OK == found(node, mode="auto")[0].verdict


def test_through_dra_systemd_knows_the_devices(node: Node) -> None:
    settings = replace(node.settings, protocol="dra")
    container(node, devices=[GPU])
    (first,) = found(replace(node, settings=settings))
    assert Verdict.OK == first.verdict


def test_an_old_systemd_needs_links_to_devices(node: Node) -> None:
    node.at("usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so").unlink()
    write(node.at("lib/systemd/libsystemd-shared-239.so"))
    container(node, devices=[GPU])
    unit(node, "/dev/char/195:0")
    assert lost(node)
    write(node.at("dev/char/195:0"))
    assert [] == lost(node)
    node.at("dev/char/195:0").unlink()
    node.at(f"{TASKS}/c0/config.json").unlink()
    first, _ = found(node, CDI)
    assert Verdict.WARNING == first.verdict
    assert "systemd 239 needs links in /dev/char" in first.found
    write(node.at("dev/char/195:0"))
    assert Verdict.OK == found(node, CDI)[0].verdict
    node.at("sys/fs/cgroup/cgroup.controllers").unlink()
    node.at("sys/fs/cgroup/devices").mkdir()
    assert "systemd 239, runc of unknown version" in found(node)[0].found
    assert "cgroup v1" in found(node)[0].found


def program(tmp_path: Path, script: str) -> str:
    path = tmp_path / "nvidia-container-runtime"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("runc", "toolkit", "settings", "says"),
    [
        (12, 17, GpuSettings(), "runc 1.1.12, NVIDIA's toolkit 1.17.0"),
        (12, 18, GpuSettings(), "pods keep their GPUs: systemd knows their devices"),
        (5, 18, GpuSettings(), "runc 1.1.5 drops devices without a link in /dev/char"),
        (2, 18, SPECS, "pods keep their GPUs"),
        (7, 17, SPECS, "pods keep their GPUs"),
    ],
)
def test_versions_are_those_of_the_programs(
    tmp_path: Path, runc: int, toolkit: int, settings: GpuSettings, says: str
) -> None:
    text = TOOLKIT.format(toolkit) + RUNC.format(runc)
    made = program(tmp_path, f"cat <<'E'\n{text}\nE")
    first, *_ = found(Node.at_root(Path("/")), settings, mode="auto", program=made)
    assert says in first.found


@pytest.mark.parametrize("script", ["exec sleep 60", "exit 3", "exec yes"])
def test_a_program_that_hangs_or_says_nothing_has_no_version(tmp_path: Path, script: str) -> None:
    node = replace(Node.at_root(Path("/")), timeout=0.2)
    first, *_ = found(node, mode="auto", program=program(tmp_path, script))
    assert Verdict.UNKNOWN == first.verdict
    assert "NVIDIA's toolkit of unknown version" in first.found


def test_a_program_needs_neither_a_disk_nor_a_real_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    made = program(tmp_path, f"echo {TOOLKIT.format(17).splitlines()[0]}")
    for name, says in ((made, "toolkit 1.17.0"), ("/a\0", "toolkit of unknown")):
        (first, *_) = found(Node.at_root(Path("/")), program=name)
        assert says in first.found


def test_settings_of_the_runtime_that_cannot_be_read_leave_its_mode_open(tmp_path: Path) -> None:
    made = program(tmp_path, f"echo {TOOLKIT.format(18).splitlines()[0]}")
    first, *_ = found(Node.at_root(Path("/")), mode="auto", program=made, fault="is a directory")
    assert Verdict.UNKNOWN == first.verdict
    assert "would lose their GPUs if NVIDIA's runtime has mode legacy" in first.found


def test_no_program_of_another_root_is_run(node: Node, tmp_path: Path) -> None:
    made = program(tmp_path, f"touch {tmp_path}/ran")
    assert found(node, mode="auto", program=made)
    assert not (tmp_path / "ran").exists()
