"""What the deployment sets is in its file; each classic variable in the DaemonSet wins over it."""

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from manifests.kustomize import render
from patience import PATIENCE

ROOT = Path(__file__).parents[3]
COMMAND = Path(sys.executable).with_name("simulated-device-plugin")
VARIABLES = {
    "PLUGIN_NAME": ("plugin-name", "other"),
    "RESOURCE_NAME": ("resource", "example.com/other"),
    "NUMBER_DEVICES": ("number-devices", 8),
    "DEVICE_ID_PREFIX": ("device-id-prefix", "gpu"),
    "NODE_NAME": ("node-name", "node-2"),
    "ANNOTATION_PREFIX": ("annotation-prefix", "example.com/a"),
    "ENV_PREFIX": ("env-prefix", "OTHER"),
    "DEVICE_FILE_PREFIX": ("device-file-prefix", "sim"),
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


@pytest.mark.parametrize("variable", VARIABLES)
def test_each_classic_variable_can_be_set(container: dict[str, Any], variable: str) -> None:
    key, other = VARIABLES[variable]
    changed = deepcopy(container)
    changed["env"] = [one for one in changed["env"] if one["name"] != variable]
    changed["env"].append({"name": variable, "value": str(other)})
    assert other == config(changed)[key]
