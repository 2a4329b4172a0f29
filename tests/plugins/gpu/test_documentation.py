"""The plugin's page says what the code says, and shows what the command prints."""

import re
import subprocess
import sys
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import yaml

import deviceplugin as dp
from deviceplugin._config import setting_names
from deviceplugin._config.help_texts import helps
from deviceplugin._config.settings import dump
from deviceplugin_gpu.configuration.node_choice import LABEL
from deviceplugin_gpu.configuration.settings import GpuSettings, of_node
from deviceplugin_gpu.host.node_facts import NodeFacts
from patience import PATIENCE

ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / "plugins/gpu"
PAGE = (PLUGIN / "README.md").read_text()
COMMAND = Path(sys.executable).with_name("gpu-device-plugin")


def test_the_page_lists_the_settings_of_the_code() -> None:
    common = {field.name for field in fields(dp.Settings)}
    texts = helps(GpuSettings)
    defaults = dump(GpuSettings())
    expected = []
    for field in fields(GpuSettings):
        if field.name not in common:
            key = setting_names.key(field)
            expected.append(f"| `{key}` | `{defaults[key]}` | {texts[key]} |")
    table = PAGE.partition("## Settings\n")[2].partition("\n## ")[0]
    assert expected == re.findall(r"^\| `.*$", table, re.MULTILINE)


def test_the_table_on_the_page_is_what_the_command_prints(nvml_library: Path) -> None:
    shown = PAGE.partition("$ gpu-device-plugin --once --mig-strategy mixed\n")[2]
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
    nodes, block = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
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
    links = re.findall(r"\]\((?!http|#)([^)#]+)", PAGE)
    assert [] == [link for link in links if not (PLUGIN / link).exists()]
