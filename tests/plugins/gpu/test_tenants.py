"""Whether a tenant can get GPUs that it was not allocated: what the doctor says of the runtime."""

import json
from pathlib import Path

import pytest

from deviceplugin.checks import Finding, Node, Verdict
from deviceplugin_gpu.doctor.cuda_pods import look

VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"
MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
PROGRAM = "/usr/bin/nvidia-container-runtime"
CLOSED = f"{VARIABLE} = false\n"
TENANTS = "GPUs of other tenants"


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DP_DEVICE_LIST_STRATEGY", "DEVICE_LIST_STRATEGY", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/driver/nvidia/version", "NVRM version: NVIDIA  580.95.05  Release\n")
    return tmp_path


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def containerd(root: Path, *, default: str = "nvidia", program: str = PROGRAM) -> None:
    table = 'plugins."io.containerd.cri.v1.runtime".containerd'
    write(
        root,
        "etc/containerd/config.toml",
        f'version = 3\n[{table}]\ndefault_runtime_name = "{default}"\n'
        f'[{table}.runtimes.nvidia.options]\nBinaryName = "{program}"\n'
        f'[{table}.runtimes.runc.options]\nBinaryName = "/usr/bin/runc"\n',
    )


def settings(root: Path, text: str) -> Path:
    return write(root, "etc/nvidia-container-runtime/config.toml", text)


def about(root: Path, text: str = TENANTS) -> Finding:
    (found,) = (one for one in look(Node.at_root(root)) if text in one.looked_at)
    return found


def silent(root: Path) -> bool:
    return not any(TENANTS in one.looked_at for one in look(Node.at_root(root)))


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
    root: Path, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DP_DEVICE_LIST_STRATEGY", "cdi-cri")  # which makes no difference
    containerd(root)
    if text is not None:
        settings(root, text)
    found = about(root)
    assert Verdict.WARNING == found.verdict
    assert "NVIDIA's runtime is the default" in found.found
    assert "every GPU of the node" in found.means
    assert f"set {VARIABLE} = false in /etc/nvidia-container-runtime/config.toml" in found.do
    assert "gpu-cdi" in found.do


def test_a_runtime_that_refuses_the_variable_is_right_and_so_are_the_strategies(
    root: Path,
) -> None:
    containerd(root)
    settings(root, CLOSED)
    assert Verdict.OK == about(root).verdict
    found = about(root, "CUDA pods with envvar")
    assert "ignores NVIDIA_VISIBLE_DEVICES of containers that are not privileged" in found.found
    assert "set " + MOUNTS in about(root, "CUDA pods with volume-mounts").do
    settings(root, f"{CLOSED}{MOUNTS} = true\n")
    assert "would run by NVIDIA's runtime" == about(root, "CUDA pods with volume-mounts").found


def test_a_runtime_that_is_only_a_class_is_named_and_is_no_warning(root: Path) -> None:
    containerd(root, default="runc")
    found = about(root)
    assert Verdict.OK == found.verdict
    assert found.found.endswith("if it has the runtimeClassName nvidia")
    settings(root, CLOSED)
    runs = [one.found for one in look(Node.at_root(root)) if one.looked_at == "CUDA pods"]
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
    root: Path, text: str, why: str
) -> None:
    containerd(root)
    path = settings(root, text)
    (found,) = (one for one in look(Node.at_root(root)) if one.looked_at == str(path))
    assert Verdict.UNKNOWN == found.verdict
    assert why in found.found
    path.unlink()
    path.mkdir()
    assert "Is a directory" in about(root, "config.toml").found


def test_settings_beside_the_program_count_before_those_of_the_node(root: Path) -> None:
    containerd(root, program="/usr/local/nvidia/toolkit/nvidia-container-runtime")
    settings(root, f"{VARIABLE} = true\n")
    beside = "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml"
    write(root, beside, CLOSED)
    assert Verdict.OK == about(root).verdict
    write(root, beside, "")
    assert f"in /{beside}," in about(root).do


def test_a_node_without_nvidias_runtime_or_without_gpus_is_silent(
    root: Path, tmp_path: Path
) -> None:
    write(root, "etc/containerd/config.toml", "version = 3\n")
    assert silent(root)
    empty = tmp_path / "empty"
    empty.mkdir()
    containerd(empty)
    assert silent(empty)


def test_dockers_default_counts_only_where_the_kubelet_uses_docker(root: Path) -> None:
    document = {"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": PROGRAM}}}
    containerd(root, default="runc")
    path = write(root, "etc/docker/daemon.json", json.dumps(document))
    assert Verdict.OK == about(root).verdict
    write(root, "run/cri-dockerd.sock", "")
    assert Verdict.WARNING == about(root).verdict
    path.write_text("[]")
    assert Verdict.OK == about(root).verdict
    path.write_text("{")
    assert any("daemon.json: " in one.found for one in look(Node.at_root(root)))


@pytest.mark.parametrize(
    ("variable", "capabilities", "warns"),
    [
        ("all", "0000000000000000", True),
        ("all", "000001ffffffffff", False),
        ("void", "0000000000000000", False),
    ],
)
def test_the_plugins_own_pod_shows_that_the_variable_works(
    root: Path, monkeypatch: pytest.MonkeyPatch, variable: str, capabilities: str, *, warns: bool
) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", variable)
    write(root, "proc/self/status", f"Name:\tpython3\nCapBnd:\t{capabilities}\n")
    write(root, "dev/nvidiactl", "")
    assert warns is not silent(root)
    if warns:
        assert Verdict.WARNING == about(root).verdict
        assert "this container got GPUs" in about(root).found
