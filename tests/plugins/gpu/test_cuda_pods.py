"""What the doctor says of GPUs: of CUDA pods, tenants and the library, on nodes of all kinds."""

import itertools
import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.checks import Finding, Node, Verdict
from deviceplugin_gpu import doctor
from deviceplugin_gpu.doctor.container_runtime import NodeKind, table
from deviceplugin_gpu.doctor.cuda_pods import look
from deviceplugin_gpu.nvml.library import SONAME, UPGRADED
from gpu.driver_root import VERSION, DriverRoot
from gpu.rig import generate

PROGRAM = "/usr/bin/nvidia-container-runtime"
NVIDIA = """
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "{default}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "{program}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
NEWEST = 'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd]\n'
VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"
MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
SETTINGS = "etc/nvidia-container-runtime/config.toml"
CLOSED = f"{VARIABLE} = false\n"
TENANTS = "GPUs of other tenants"
UUID = "GPU-00000000-0000-4000-8000-000000000000"
VERDICTS = {True: {Verdict.OK}, None: {Verdict.UNKNOWN}, False: {Verdict.WARNING, Verdict.FAILURE}}


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DP_DEVICE_LIST_STRATEGY", "DEVICE_LIST_STRATEGY", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def root(tmp_path: Path, compiled: Path) -> DriverRoot:
    """A node whose driver runs, with no file of it yet."""
    made = DriverRoot(tmp_path / "node", compiled)
    text = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {VERSION}  Release Build\n"
    made.write("proc/driver/nvidia/version", text)
    made.write("proc/driver/nvidia/gpus/0000:3b:00.0/information", f"GPU UUID: \t {UUID}\n")
    made.write("dev/nvidia-uvm", "")
    return made


def findings(root: DriverRoot) -> list[Finding]:
    return list(look(Node.at_root(root.path)))


def about(root: DriverRoot, text: str) -> Finding:
    (found,) = (one for one in findings(root) if text in one.looked_at)
    return found


def nvidia(default: str = "nvidia", program: str = PROGRAM) -> str:
    return NVIDIA.format(default=default, program=program)


def containerd(root: DriverRoot, text: str) -> None:
    root.write("etc/containerd/config.toml", text)


def generated(root: DriverRoot, *names: str, driver: str = VERSION, node: str = "") -> None:
    nodes = [node] if node else []
    generate(root.path / "etc/cdi/nvidia.json", *names, driver=driver, nodes=nodes)


CELLS = [*itertools.product([True, False, None], [True, False], [True, False])]


@pytest.mark.parametrize(("is_nvidia", "toolkit", "libraries"), CELLS)
def test_each_strategy_is_told_of_as_the_table_has_it(
    root: DriverRoot, *, is_nvidia: bool | None, toolkit: bool, libraries: bool
) -> None:
    if is_nvidia is not None:
        text = nvidia("nvidia" if is_nvidia else "runc")
        containerd(root, text.replace("version = 2", "version = 3"))
    if toolkit:
        generated(root, UUID)
    if libraries:
        root.install()
    kind = NodeKind(is_nvidia, None if is_nvidia is None else True, toolkit, libraries)
    told = [one for one in findings(root) if one.looked_at.startswith("CUDA pods with ")]
    for strategy, expected in table(kind).items():
        (found,) = (one for one in told if strategy in one.looked_at)
        assert found.verdict in VERDICTS[expected.runs]
        assert expected.why in found.found
        assert expected.runs or found.do


@pytest.mark.parametrize("name", ["n" * 300, r"n\u0000"])
def test_a_program_that_cannot_be_is_one_without_settings(root: DriverRoot, name: str) -> None:
    containerd(root, nvidia(program=f"/{name}/nvidia"))
    assert "is not false" in about(root, TENANTS).found


def test_that_no_strategy_would_do_is_a_failure(root: DriverRoot, tmp_path: Path) -> None:
    containerd(root, NEWEST)
    found = [one for one in findings(root) if one.looked_at.startswith("CUDA pods")]
    assert [Verdict.FAILURE] * 2 == [one.verdict for one in found]
    assert "nothing provides the driver's libraries" in found[1].found
    assert "deployments/components/gpu-cdi" in found[1].do
    assert [] == [one for one in findings(root) if TENANTS in one.looked_at], "it has none"
    assert [] == [*look(Node.at_root(tmp_path))], "no driver runs"


def test_the_strategy_that_the_plugin_has_must_do(
    root: DriverRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    containerd(root, NEWEST)
    root.install()
    assert Verdict.WARNING == about(root, "envvar").verdict
    monkeypatch.setenv("DP_DEVICE_LIST_STRATEGY", "envvar")
    assert Verdict.FAILURE == about(root, "envvar").verdict
    assert Verdict.OK == about(root, "cdi-cri").verdict
    monkeypatch.setenv("DP_DEVICE_LIST_STRATEGY", "cdi-cri")
    assert Verdict.OK == about(root, "envvar").verdict
    assert "are not asked for" in about(root, "envvar").found


CRIO = '[crio.runtime]\ndefault_runtime = "nvidia"\n[crio.runtime.runtimes.nvidia]\n'
OF_1 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
OF_2 = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\n'


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("containerd/config.toml", NEWEST, "none of NVIDIA's; CDI is on ("),
        (
            "containerd/config.toml",
            nvidia("runc"),
            "NVIDIA's as nvidia; CDI is on only from containerd 2 (",
        ),
        ("containerd/config.toml", f"{OF_1}enable_cdi = true\n", "none of NVIDIA's; CDI is on ("),
        ("containerd/config.toml", f"{OF_1}enable_cdi = false\n", "none of NVIDIA's; CDI is off ("),
        ("containerd/config.toml", f"{OF_2}enable_cdi = false\n", "none of NVIDIA's; CDI is off ("),
        (
            "crio/crio.conf.d/99-nvidia.conf",
            f'{CRIO}runtime_path = "/usr/bin/nvidia-container-runtime"\n',
            "NVIDIA's as nvidia, which is the default; CDI is on (",
        ),
        ("../var/lib/rancher/k3s/agent/etc/containerd/config.toml", NEWEST, "CDI is on ("),
    ],
)
def test_what_a_runtime_can_do_is_read_from_its_configuration(
    root: DriverRoot, path: str, text: str, says: str
) -> None:
    root.write(f"etc/{path}", text)
    assert says in about(root, "container runtime").found


def test_a_drop_in_counts_where_the_runtime_imports_it(root: DriverRoot) -> None:
    containerd(root, nvidia("runc"))
    (named,) = (one for one in findings(root) if one.looked_at == "CUDA pods")
    assert "with runtimeClassName nvidia would run by envvar and volume-mounts" == named.found
    assert "the container runtime is not NVIDIA's" in about(root, "envvar").found
    drop_in = root.write("etc/containerd/conf.d/99-nvidia.toml", nvidia())
    assert "is there, and nothing imports it" == about(root, str(drop_in)).found
    assert ", which is the default" not in about(root, "container runtime").found
    containerd(root, f'imports = ["/etc/containerd/conf.d/*.toml"]\n{nvidia("runc")}')
    assert ", which is the default" in about(root, "container runtime").found


def test_that_a_file_cannot_be_read_does_not_mean_that_nothing_reads_the_variable(
    root: DriverRoot,
) -> None:
    containerd(root, f'imports = ["gone.toml"]\n{NEWEST}')
    found = about(root, "envvar")
    assert Verdict.UNKNOWN == found.verdict
    assert "it runs if the container runtime is NVIDIA's" == found.found


def test_the_plugins_own_file_says_which_strategy_it_has(root: DriverRoot, tmp_path: Path) -> None:
    containerd(root, NEWEST)
    root.install()
    file = tmp_path / "config.yaml"
    file.write_text("device-list-strategy: [cdi-cri]\n")
    node = replace(Node.at_root(root.path), config=file, plugins=frozenset({"gpu"}))
    (found,) = (one for one in look(node) if "envvar" in one.looked_at)
    assert "would not run, and are not asked for" in found.found
    file.write_text("device-list-strategy: [csi]\n")
    (found,) = (one for one in look(node) if one.looked_at == str(file))
    assert Verdict.FAILURE == found.verdict
    assert "'csi' is not one of" in found.found
    others = look(replace(node, plugins=frozenset()))
    assert [] == [one for one in others if one.looked_at == str(file)], "it is another plugin's"


def test_a_runtime_without_cdi_is_said_to_be_so(root: DriverRoot) -> None:
    containerd(root, f"{OF_1}enable_cdi = false\n")
    root.install()
    assert "has CDI disabled" in about(root, "cdi-cri").found
    assert "enable_cdi = true" in about(root, "cdi-cri").do


def test_a_configuration_that_is_broken_is_named(root: DriverRoot) -> None:
    containerd(root, "version = [")
    assert any("config.toml: " in one.found for one in findings(root))
    containerd(root, "plugins = 3\ncrio = []\n")
    assert not about(root, "container runtime").means


def test_a_specification_that_is_out_of_date_is_named(root: DriverRoot) -> None:
    generated(root, UUID, driver="570.1")
    found = about(root, "nvidia.json")
    assert f"it is for driver 570.1, and {VERSION} runs" in found.found
    assert "nvidia-ctk cdi generate" in found.do
    generated(root, "GPU-of-before", "0")
    assert f"it does not have {UUID}" in about(root, "nvidia.json").found
    generated(root, UUID, "0")
    assert Verdict.OK == about(root, "nvidia.json").verdict


def test_a_specification_with_the_node_of_another_gpu_is_named(root: DriverRoot) -> None:
    generated(root, UUID, node="/dev/nvidia1")
    assert Verdict.OK == about(root, "nvidia.json").verdict, "the driver does not tell the node"
    information = f"GPU UUID: \t {UUID}\nDevice Minor: \t {{}}\n"
    path = "proc/driver/nvidia/gpus/0000:3b:00.0/information"
    root.write(path, information.format(1))
    assert Verdict.OK == about(root, "nvidia.json").verdict
    root.write(path, information.format(0))
    assert f"its device {UUID} has /dev/nvidia1" in about(root, "nvidia.json").found


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("driver-root/usr/lib64", "/driver-root"),
        ("run/nvidia/driver/usr/lib64", "/run/nvidia/driver"),
        ("usr/lib64", "with the component gpu-cdi"),
    ],
)
def test_where_the_drivers_libraries_are_is_told(root: DriverRoot, folder: str, says: str) -> None:
    root.install(libraries=folder)
    assert says in about(root, "libcuda.so.1").found


def test_device_nodes_that_cuda_lacks_or_pods_cannot_open_are_named(root: DriverRoot) -> None:
    if os.geteuid() != 0:
        pytest.skip("device nodes need root")
    (root.path / "dev/nvidia-uvm").unlink()
    found = about(root, "/dev/nvidia-uvm")
    assert "nvidia-modprobe -u" in found.do
    os.mknod(root.path / "dev/nvidia0", stat.S_IFCHR | 0o660, os.makedev(1, 3))
    (root.path / "dev/nvidia0").chmod(0o660)
    assert "has mode 0660" == about(root, "dev/nvidia0").found
    (root.path / "dev/nvidia0").chmod(0o666)
    assert [] == [one for one in findings(root) if "dev/nvidia0" in one.looked_at]


def test_libraries_that_were_upgraded_under_the_driver_are_named(root: DriverRoot) -> None:
    generated(root, UUID)
    root.install("580.105.08")
    found = about(root, "libcuda.so.1")
    assert Verdict.WARNING == found.verdict
    assert "only that of 580.105.08" in found.found
    assert f"{UPGRADED}." == found.do
    why = f"it mounts /usr/lib64/libcuda.so.{VERSION}, which is gone"
    assert why in about(root, "nvidia.json").found
    assert "nothing provides the driver's libraries" in about(root, "cdi-cri").found


@pytest.mark.parametrize("has_libraries", [True, False])
def test_whether_windows_brings_the_driver_is_said(
    tmp_path: Path, compiled: Path, *, has_libraries: bool
) -> None:
    root = DriverRoot(tmp_path / "wsl", compiled)
    root.write("dev/dxg", "")
    containerd(root, NEWEST)
    if has_libraries:
        root.install("1.1", "usr/lib/wsl/lib")
        root.write("usr/lib/wsl/drivers/nv_dispi.inf_amd64_1f/libcuda.so.1.1", "")
    expected = Verdict.OK if has_libraries else Verdict.WARNING
    assert expected == about(root, "libcuda.so.1").verdict
    assert [] == [one for one in findings(root) if "nvidia-uvm" in one.looked_at]
    runs = about(root, "cdi-cri")
    assert has_libraries == (Verdict.OK == runs.verdict)
    found = [*doctor.look(Node.at_root(root.path))]
    assert "/dev/dxg exists: Windows has the driver" == found[0].found


# Whether a tenant can get GPUs that it was not allocated.


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "# " + CLOSED,
        f"{VARIABLE} = true\n",
        f'{VARIABLE} = true\n[nvidia-container-runtime]\nmode = "cdi"\n',
        f"{MOUNTS} = true\n",
        f"[nvidia-container-runtime]\n{CLOSED}",  # it has no effect in a table
    ],
)
def test_a_default_runtime_that_takes_the_variable_of_anybody_is_a_warning(
    root: DriverRoot, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DP_DEVICE_LIST_STRATEGY", "cdi-cri")  # which makes no difference
    containerd(root, nvidia())
    if text is not None:
        root.write(SETTINGS, text)
    found = about(root, TENANTS)
    assert Verdict.WARNING == found.verdict
    assert "NVIDIA's runtime is the default" in found.found
    assert "every GPU of the node" in found.means
    assert f"set {VARIABLE} = false in /etc/nvidia-container-runtime/config.toml" in found.do
    assert "gpu-cdi" in found.do


def test_a_runtime_that_refuses_the_variable_is_right_and_so_are_the_strategies(
    root: DriverRoot,
) -> None:
    containerd(root, nvidia())
    root.write(SETTINGS, CLOSED)
    assert Verdict.OK == about(root, TENANTS).verdict
    found = about(root, "CUDA pods with envvar")
    assert "ignores NVIDIA_VISIBLE_DEVICES of containers that are not privileged" in found.found
    assert "set " + MOUNTS in about(root, "CUDA pods with volume-mounts").do
    root.write(SETTINGS, f"{CLOSED}{MOUNTS} = true\n")
    assert "would run by NVIDIA's runtime" == about(root, "CUDA pods with volume-mounts").found


def test_a_runtime_that_is_only_a_class_is_named_and_is_no_warning(root: DriverRoot) -> None:
    containerd(root, nvidia("runc"))
    found = about(root, TENANTS)
    assert Verdict.OK == found.verdict
    assert found.found.endswith("if it has the runtimeClassName nvidia")
    root.write(SETTINGS, CLOSED)
    runs = [one.found for one in findings(root) if one.looked_at == "CUDA pods"]
    assert ["with runtimeClassName nvidia would run by none"] == runs


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{VARIABLE} = ", "cannot be read: Invalid value"),
        (f'{VARIABLE} = "false"\n', "= 'false' is neither true nor false"),
        (f"{CLOSED}{MOUNTS} = 1\n", f"{MOUNTS} = 1 is neither true nor false"),
        (f"[{VARIABLE}]\n", "is neither true nor false"),
    ],
)
def test_settings_that_cannot_be_read_are_unknown_with_the_reason(
    root: DriverRoot, text: str, why: str
) -> None:
    containerd(root, nvidia())
    path = root.write(SETTINGS, text)
    (found,) = (one for one in findings(root) if one.looked_at == str(path))
    assert Verdict.UNKNOWN == found.verdict
    assert why in found.found
    path.unlink()
    path.mkdir()
    assert "Is a directory" in about(root, "config.toml").found


def test_settings_beside_the_program_count_before_those_of_the_node(root: DriverRoot) -> None:
    containerd(root, nvidia(program="/usr/local/nvidia/toolkit/nvidia-container-runtime"))
    root.write(SETTINGS, f"{VARIABLE} = true\n")
    beside = "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"
    root.write(beside, CLOSED)
    assert Verdict.OK == about(root, TENANTS).verdict
    root.write(beside, "")
    assert f"in /{beside}," in about(root, TENANTS).do


def test_dockers_default_counts_only_where_the_kubelet_uses_docker(root: DriverRoot) -> None:
    document = {"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": PROGRAM}}}
    containerd(root, nvidia("runc"))
    path = root.write("etc/docker/daemon.json", json.dumps(document))
    assert Verdict.OK == about(root, TENANTS).verdict
    root.write("run/cri-dockerd.sock", "")
    assert Verdict.WARNING == about(root, TENANTS).verdict
    path.write_text("[]")
    assert Verdict.OK == about(root, TENANTS).verdict
    path.write_text("{")
    assert any("daemon.json: " in one.found for one in findings(root))


@pytest.mark.parametrize(
    ("variable", "capabilities", "warns"),
    [
        ("all", "0000000000000000", True),
        ("all", "000001ffffffffff", False),
        ("void", "0000000000000000", False),
    ],
)
def test_the_plugins_own_pod_shows_that_the_variable_works(
    root: DriverRoot,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    capabilities: str,
    *,
    warns: bool,
) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", variable)
    root.write("proc/self/status", f"Name:\tpython3\nCapBnd:\t{capabilities}\n")
    root.write("dev/nvidiactl", "")
    told = [one for one in findings(root) if TENANTS in one.looked_at]
    assert [Verdict.WARNING] * warns == [one.verdict for one in told]
    assert all("this container got GPUs" in one.found for one in told)


# The library that the plugin itself needs, on the machine itself.

MISSING = """
import sys
from pathlib import Path
from deviceplugin.checks import Node
from deviceplugin_gpu.doctor import _missing_library
library, some = map(Path, sys.argv[1:])
print(_missing_library(Node.at_root(Path("/"))))
library.write_text("not a library")
print(_missing_library(Node.at_root(Path("/"))))
library.unlink()
library.symlink_to(some)
print(_missing_library(Node.at_root(Path("/"))))
"""


def test_the_library_is_looked_for_as_the_linker_does(tmp_path: Path) -> None:
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    some = next(path for path in sorted(mapped) if path.startswith("/") and "libc.so" in path)
    missing, broken, found = subprocess.run(
        [sys.executable, "-c", MISSING, tmp_path / SONAME, some],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if not missing:
        pytest.skip(f"this machine has {SONAME}")
    assert "usr/lib64" in missing
    assert "below /driver-root, then where the dynamic linker does" in missing
    assert f"{SONAME}: file too short" in broken
    assert "" == found, "only the linker finds it"
