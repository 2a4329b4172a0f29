"""The plugin's page says what the code says."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin._config import setting_names, values
from deviceplugin._config.help_texts import helps
from deviceplugin_simulated import SimulatedSettings, commands, control_socket
from deviceplugin_simulated.life import Action
from deviceplugin_simulated.profiles import PROFILES
from deviceplugin_simulated.scenario import load

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "plugins/simulated/README.md").read_text()


def test_the_page_lists_the_settings_of_the_code() -> None:
    common = {field.name for field in fields(dp.Settings)}
    texts = helps(SimulatedSettings)
    expected = [
        f"| `{key}` | `{values.write(field.default)}` | {texts[key]} |"
        for field in fields(SimulatedSettings)
        if field.name not in common and (key := setting_names.key(field))
    ]
    table = PAGE.partition("## Settings\n")[2].partition("\n## ")[0]
    assert expected == re.findall(r"^\| `.*$", table, re.MULTILINE)


def test_the_page_lists_every_profile_and_every_fault() -> None:
    assert [] == [name for name in PROFILES if f"\n| `{name}` |" not in PAGE]
    faults = PAGE.partition("## Faults\n")[2].partition("\n## ")[0]
    assert [] == [action for action in Action if f"`{action}`" not in faults]


def test_the_file_on_the_page_is_accepted(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "devices.yaml"
    path.write_text(block)
    scenario = load(SimulatedSettings(devices=path, node_name="n1"))
    assert ["gpu-0", "n1-nic-3"] == [scenario.ids[0], scenario.ids[-1]]


@pytest.mark.parametrize("variable", ["PLUGIN_NAME", "NUMBER_DEVICES", "ENV_PREFIX"])
def test_the_page_names_the_classic_variables(variable: str) -> None:
    assert f"\n| `{variable}` |" in PAGE


def test_the_page_names_the_limits_of_the_control_socket() -> None:
    told = PAGE.partition("## Live\n")[2].partition("\n## ")[0]
    assert (65_536, 4, 5.0) == (commands.MAX_REQUEST, control_socket.CLIENTS, control_socket.LIMIT)
    assert [] == [text for text in ("64 KiB", "Four clients", "5 s in total") if text not in told]
