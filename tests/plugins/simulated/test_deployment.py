"""What the deployment sets is in its file; each classic variable in the DaemonSet wins over it."""

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._config import loading, values
from deviceplugin._config.settings_class import helps
from deviceplugin_simulated import SimulatedSettings, control
from deviceplugin_simulated.life import Action
from deviceplugin_simulated.scenario import PROFILES, load
from manifests.kustomize import render
from patience import PATIENCE

ROOT = Path(__file__).parents[3]
COMMAND = Path(sys.executable).with_name("simulated-device-plugin")


VARIABLES = {
    "RESOURCE_NAME": ("resource", "example.com/other"),
    "NUMBER_DEVICES": ("number-devices", 8),
    "NODE_NAME": ("node-name", "node-2"),
    "ENV_PREFIX": ("env-prefix", "OTHER"),
}


@pytest.fixture
def container(tmp_path: Path) -> dict[str, Any]:
    """Return the plugin's container, on a node that is called node-1, with its file here."""
    manifests = render(ROOT / "deployments/simulated")
    (config,) = (one for one in manifests if one["kind"] == "ConfigMap")
    path = tmp_path / "config.yaml"
    path.write_text(config["data"]["config.yaml"])
    (daemon_set,) = (one for one in manifests if one["kind"] == "DaemonSet")
    found: dict[str, Any]
    (found,) = daemon_set["spec"]["template"]["spec"]["containers"]
    for one in found["env"]:
        if one.pop("valueFrom", {}) == {"fieldRef": {"fieldPath": "spec.nodeName"}}:
            one["value"] = "node-1"
        elif one["name"] == "DP_CONFIG":
            one["value"] = str(path)
    return found


def config(container: dict[str, Any]) -> dict[str, object]:
    environment = {one["name"]: one["value"] for one in container["env"]}
    done = subprocess.run(
        [COMMAND, "--print-config", *container.get("args", ())],
        env=environment,
        capture_output=True,
        check=True,
        timeout=PATIENCE,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_without_changes_two_devices_are_called_by_their_node(container: dict[str, Any]) -> None:
    found = config(container)
    assert ("example.com/simple-device", 2, "node-1", "SIMULATED") == (
        found["resource"],
        found["number-devices"],
        found["node-name"],
        found["env-prefix"],
    )


def test_each_classic_variable_can_be_set(container: dict[str, Any]) -> None:
    container["env"] = [one for one in container["env"] if one["name"] not in VARIABLES]
    container["env"] += [{"name": name, "value": str(one)} for name, (_, one) in VARIABLES.items()]
    found = config(container)
    assert dict(VARIABLES.values()).items() <= found.items()
    texts = {f"\n| `{name}` |" for name in ("PLUGIN_NAME", "NUMBER_DEVICES", "ENV_PREFIX")}
    assert {text for text in texts if text in PAGE} == texts


PAGE = (ROOT / "plugins/simulated/README.md").read_text()


def test_the_page_lists_the_settings_of_the_code() -> None:
    common = {field.name for field in fields(dp.Settings)}
    texts = helps(SimulatedSettings)
    expected = [
        f"| `{key}` | `{values.write(field.default)}` | {texts[key]} |"
        for field in fields(SimulatedSettings)
        if field.name not in common and (key := loading.key(field))
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
    assert ["gpu-0", "n1-nic-3"] == [scenario.targets.ids[0], scenario.targets.ids[-1]]


def test_the_page_names_the_limits_of_the_control_socket() -> None:
    told = PAGE.partition("## Live\n")[2].partition("\n## ")[0]
    assert (65_536, 4, 5.0) == (control.MAX_REQUEST, control.CLIENTS, control.LIMIT)
    assert [] == [text for text in ("64 KiB", "Four clients", "5 s in total") if text not in told]
