"""Every flag and label of feature discovery is on the page, and pages are as the code is.

Flags of NVIDIA's plugin are in test_settings.py.
"""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import yaml

import deviceplugin as dp
from deviceplugin._config import loading
from deviceplugin._config.settings import dump
from deviceplugin._config.settings_class import helps
from deviceplugin_gpu.configuration.node_choice import LABEL
from deviceplugin_gpu.configuration.settings import GpuSettings
from patience import PATIENCE

FOLDER = Path(__file__).parents[3] / "plugins/gpu"
PAGE = (FOLDER / "docs/coming-from-nvidia.md").read_text()

# As of v0.20.0: `gpu-feature-discovery --help`.
GFD = (
    *("mig-strategy", "fail-on-init-error", "oneshot", "no-timestamp", "sleep-interval"),
    *("output-file", "output", "machine-type-file", "config-file", "use-node-feature-api"),
    *("device-discovery-strategy", "driver-root-ctr-path", "container-driver-root"),
    *("namespace", "node-name", "pod-name", "kubeconfig", "kube-api-qps", "kube-api-burst"),
)
LABELS = (
    *("cuda.driver", "cuda.driver-version", "cuda.runtime", "cuda.runtime-version"),
    *("gpu.count", "gpu.product", "gpu.memory", "gpu.replicas", "gpu.sharing-strategy"),
    *("gpu.family", "gpu.compute.major", "gpu.compute.minor", "gpu.machine", "gpu.mode"),
    *("gpu.clique", "gpu.multiprocessors", "gpu.slices.gi", "gpu.slices.ci", "gpu.engines"),
    *("mig.capable", "mig.strategy", "mps.capable", "vgpu.present", "vgpu.host-driver-version"),
    *("vgpu.host-driver-branch", "gfd.timestamp"),
)


def test_each_flag_of_feature_discovery_is_on_the_page() -> None:
    table = PAGE.partition("| Flag of GFD |")[2].partition("\n\n")[0]
    assert [] == [flag for flag in GFD if f"`--{flag}`" not in table]


def test_each_label_of_feature_discovery_is_on_the_page_and_in_the_code() -> None:
    table = PAGE.partition("| Label of GFD |")[2].partition("\n\n")[0]
    source = (FOLDER / "src/deviceplugin_gpu/advertised/node_labels.py").read_text()
    for label in LABELS:
        assert re.search(rf"`{re.escape(label)}(\.\*)?`", table)
        assert label.removeprefix("gpu.") in source


def test_each_metric_on_the_page_is_one_of_ours() -> None:
    ours = set(re.findall(r"`(deviceplugin_gpu_\w+)`", PAGE))
    known = (FOLDER / "docs/metrics.md").read_text()
    assert len(ours) > 5
    assert [] == [name for name in sorted(ours) if f"`{name}`" not in known]


README = (FOLDER / "README.md").read_text()
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
            "FAKE_NVML_FLEET": str(FOLDER / "fake-nvml/fleets/mig-mixed.fleet"),
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
    labels = tmp_path / "labels"
    flags = {"node-name": "train-1", "node-labels-file": str(labels)}
    for label, expected in (
        (f"{LABEL}=shared", f"nodes[2] (shared), by label {LABEL}=shared"),
        ("", "nodes[0], by node train-1"),
    ):
        labels.write_text(label)
        found = loading.load(GpuSettings, flags=dict(flags), file=path, environ={})
        assert expected == found.node_choice
