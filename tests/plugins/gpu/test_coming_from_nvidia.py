"""Every flag, variable and label of NVIDIA's plugin is on the page, and is taken as it says."""

import json
import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
import yaml

import deviceplugin as dp
from deviceplugin._config import loading
from deviceplugin._config.settings import dump
from deviceplugin._config.settings_class import helps
from deviceplugin_gpu import main
from deviceplugin_gpu.configuration.node_choice import LABEL, NodeFacts
from deviceplugin_gpu.configuration.settings import GpuSettings, of_node, without_effect
from patience import PATIENCE

FOLDER = Path(__file__).parents[3] / "plugins/gpu"
PAGE = (FOLDER / "docs/coming-from-nvidia.md").read_text()

# As of v0.20.0: `nvidia-device-plugin --help`, gpu-feature-discovery's, and what they read besides.
FLAGS = {
    "mig-strategy": ("MIG_STRATEGY", "mixed"),
    "fail-on-init-error": ("FAIL_ON_INIT_ERROR", "false"),
    "driver-root": ("NVIDIA_DRIVER_ROOT", "/d"),
    "nvidia-driver-root": ("NVIDIA_DRIVER_ROOT", "/d"),
    "dev-root": ("NVIDIA_DEV_ROOT", "/d"),
    "nvidia-dev-root": ("NVIDIA_DEV_ROOT", "/d"),
    "driver-root-ctr-path": ("DRIVER_ROOT_CTR_PATH", "/d"),
    "container-driver-root": ("CONTAINER_DRIVER_ROOT", "/d"),
    "pass-device-specs": ("PASS_DEVICE_SPECS", "true"),
    "device-list-strategy": ("DEVICE_LIST_STRATEGY", "volume-mounts"),
    "device-id-strategy": ("DEVICE_ID_STRATEGY", "index"),
    "shared-devices-allocation-policy": ("SHARED_DEVICES_ALLOCATION_POLICY", "packed"),
    "device-discovery-strategy": ("DEVICE_DISCOVERY_STRATEGY", "nvml"),
    "gdrcopy-enabled": ("GDRCOPY_ENABLED", "true"),
    "gds-enabled": ("GDS_ENABLED", "true"),
    "mofed-enabled": ("MOFED_ENABLED", "true"),
    "cdi-annotation-prefix": ("CDI_ANNOTATION_PREFIX", "a.io/"),
    "nvidia-cdi-hook-path": ("NVIDIA_CDI_HOOK_PATH", "/h"),
    "nvidia-ctk-path": ("NVIDIA_CTK_PATH", "/h"),
    "cdi-feature-flags": ("CDI_FEATURE_FLAGS", "a"),
    "cdi-disable-hooks": ("CDI_DISABLE_HOOKS", "all"),
    "mps-root": ("MPS_ROOT", "/m"),
    "imex-channel-ids": ("IMEX_CHANNEL_IDS", "0"),
    "imex-required": ("IMEX_REQUIRED", "true"),
    "kubelet-socket": ("KUBELET_SOCKET", "/k/kubelet.sock"),
    "config-file": ("CONFIG_FILE", ""),
}
VARIABLES = ("DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS")
WITHOUT_EFFECT = {"nvidia-cdi-hook-path", "cdi-feature-flags", "cdi-disable-hooks"}
GFD = (
    *("mig-strategy", "fail-on-init-error", "oneshot", "no-timestamp", "sleep-interval"),
    *("output-file", "output", "machine-type-file", "config-file", "use-node-feature-api"),
    *("device-discovery-strategy", "driver-root-ctr-path", "container-driver-root"),
)
LABELS = (
    *("cuda.driver", "cuda.driver-version", "cuda.runtime", "cuda.runtime-version"),
    *("gpu.count", "gpu.product", "gpu.memory", "gpu.replicas", "gpu.sharing-strategy"),
    *("gpu.family", "gpu.compute.major", "gpu.compute.minor", "gpu.machine", "gpu.mode"),
    *("gpu.clique", "gpu.multiprocessors", "gpu.slices.gi", "gpu.slices.ci", "gpu.engines"),
    *("mig.capable", "mig.strategy", "mps.capable", "vgpu.present", "vgpu.host-driver-version"),
    *("vgpu.host-driver-branch", "gfd.timestamp"),
)


def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str, **env: str
) -> dict[str, object]:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        main([*words, "--print-config"])
    out, err = capsys.readouterr()
    assert (0, "") == (end.value.code, err)
    found: dict[str, object] = json.loads(out)
    return found


def row(flag: str) -> str:
    """Return the line of the page's table that a flag has."""
    table = PAGE.partition("## Flags and variables")[2].partition("\n## ")[0]
    (line,) = [line for line in table.splitlines() if re.search(rf"^\|.*`--{flag}`", line)]
    return line


@pytest.mark.parametrize("flag", FLAGS)
def test_each_flag_of_the_plugin_is_taken_and_on_the_page(
    flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    variable, value = FLAGS[flag]
    default = printed(capsys, monkeypatch)
    by_flag = printed(capsys, monkeypatch, f"--{flag}={value}")
    assert by_flag == printed(capsys, monkeypatch, f"-{flag}", value)
    assert by_flag == printed(capsys, monkeypatch, **{variable: value})
    assert (by_flag == default) == (flag == "config-file")
    assert f"`{variable}`" in row(flag)


def test_what_is_said_to_be_without_effect_is_told_to_be() -> None:
    given = GpuSettings(
        nvidia_cdi_hook_path=Path("/h"), cdi_feature_flags=("a",), cdi_disable_hooks=("a",)
    )
    assert WITHOUT_EFFECT == {name for name, _ in without_effect(given)}
    assert WITHOUT_EFFECT == {
        flag for flag in FLAGS if "without effect" in row(flag) and flag != "nvidia-ctk-path"
    }


def test_no_flag_is_on_the_page_that_there_is_not() -> None:
    table = PAGE.partition("## Flags and variables")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert FLAGS.keys() == set(re.findall(r"`--([a-z-]+)`", "\n".join(rows)))
    assert all(f"| `{name}` |" in table for name in VARIABLES)


@pytest.mark.parametrize("flag", GFD)
def test_each_flag_of_feature_discovery_is_on_the_page(flag: str) -> None:
    assert f"`--{flag}`" in PAGE.partition("| Flag of GFD |")[2].partition("\n\n")[0]


@pytest.mark.parametrize("label", LABELS)
def test_each_label_of_feature_discovery_is_on_the_page_and_in_the_code(label: str) -> None:
    table = PAGE.partition("| Label of GFD |")[2].partition("\n\n")[0]
    assert re.search(rf"`{re.escape(label)}(\.\*)?`", table)
    source = (FOLDER / "src/deviceplugin_gpu/advertised/node_labels.py").read_text()
    last = (
        label
        if label.split(".", maxsplit=1)[0] in {"cuda", "mig", "mps", "vgpu", "gfd"}
        else label[3:]
    )
    assert last in source


def test_each_metric_on_the_page_is_one_of_ours() -> None:
    ours = set(re.findall(r"`(deviceplugin_gpu_\w+)`", PAGE))
    known = (FOLDER / "docs/metrics.md").read_text()
    assert len(ours) > 5
    assert [] == [name for name in sorted(ours) if f"`{name}`" not in known]


def test_links_of_the_page_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!http|#)([^)#]+)", PAGE)
    assert [] == [link for link in links if not (FOLDER / "docs" / link).exists()]


ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / "plugins/gpu"
README = (PLUGIN / "README.md").read_text()
COMMAND = Path(sys.executable).with_name("gpu-device-plugin")


def test_the_page_lists_the_settings_of_the_code() -> None:
    common = {field.name for field in fields(dp.Settings)}
    texts = helps(GpuSettings)
    defaults = dump(GpuSettings())
    expected = []
    for field in fields(GpuSettings):
        if field.name not in common:
            key = loading.key(field)
            expected.append(f"| `{key}` | `{defaults[key]}` | {texts[key]} |")
    table = README.partition("## Settings\n")[2].partition("\n## ")[0]
    assert expected == re.findall(r"^\| `.*$", table, re.MULTILINE)


def test_the_table_on_the_page_is_what_the_command_prints(nvml_library: Path) -> None:
    shown = README.partition("$ gpu-device-plugin --once --mig-strategy mixed\n")[2]
    done = subprocess.run(
        [COMMAND, "--once", "--mig-strategy", "mixed", "--log-level=error"],
        env={
            "LD_LIBRARY_PATH": str(nvml_library.parent),
            "FAKE_NVML_FLEET": str(PLUGIN / "fake-nvml/fleets/mig-mixed.fleet"),
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert shown.partition("```")[0] == done.stdout


def test_the_file_on_the_page_is_accepted(tmp_path: Path) -> None:
    nodes, block = re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    path = tmp_path / "config.yaml"
    path.write_text(block)
    found = GpuSettings.of_file(path)
    assert tuple(yaml.safe_load(block)["exclude"]) == found.exclude
    assert 4 == found.sharing.shares[0].replicas
    assert (("*H100*", "nvidia.com/h100"),) == found.resources.gpus
    path.write_text(nodes)
    for facts, expected in (
        (NodeFacts("train-1", {LABEL: "shared"}), f"nodes[2] (shared), by label {LABEL}=shared"),
        (NodeFacts("train-1"), "nodes[0], by node train-1"),
    ):
        assert expected == of_node(partial(replace, facts)).of_file(path).node_choice.text


def test_the_pages_that_are_referred_to_exist() -> None:
    links = re.findall(r"\]\((?!http|#)([^)#]+)", README)
    assert [] == [link for link in links if not (PLUGIN / link).exists()]
