"""A plugin whose directories of the host are mounts, as in a pod, while the host replaces them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from containers.unshare import POSSIBLE

pytestmark = [
    pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare"),
    pytest.mark.slow,  # each plays in a process of its own
]

NODE = """
import json, shutil, subprocess, sys
from pathlib import Path
from cluster.dra_objects import RESOURCE
from drivers.dual_node import IDS, DualNode
from patience import eventually

root, protocol, name, how = Path(sys.argv[1]), *sys.argv[2:]
host, inside = root / "h", root / "c"
host.mkdir()
with DualNode(host) as node:
    for one in ("device-plugins", "plugins_registry", "pod-resources", "plugins", "cdi", "other"):
        (host / one).mkdir(exist_ok=True)
        (inside / one).mkdir(parents=True)
        subprocess.run(["mount", "--bind", host / one, inside / one], check=True)
    for one in (root / "pods/u1/etc-hosts", inside / "hosts"):  # a pod has it
        one.parent.mkdir(parents=True, exist_ok=True)
        one.touch()
    subprocess.run(["mount", "--bind", root / "pods/u1/etc-hosts", inside / "hosts"], check=True)
    node.start(
        protocol=protocol,
        plugin_dir=inside / "device-plugins",
        registry_dir=inside / "plugins_registry",
        pod_resources_socket=inside / "pod-resources/kubelet.sock",
        driver_dir=inside / "plugins",
        cdi_dir=inside / "cdi",
        on_unhealthy="no-execute",
    )
    free = node.by_dra if protocol == "dra" else node.by_plugin
    eventually(lambda: free() == set(IDS), "the devices")
    eventually(lambda: not node.host.ready(), "readiness")
    before = node.host.alive()
    if how == "deleted":
        # The plugin may put a socket into it meanwhile.
        while (host / name).exists():
            shutil.rmtree(host / name, ignore_errors=True)
    else:
        (host / name).rename(host / "old")
    if how == "linked":
        (host / name).symlink_to(host / "old")
        assert not node.host.alive()
        registrations = node.host._metrics.registrations.labels(RESOURCE)
        driver = node.host._directories
        registered = {
            "device-plugin": lambda: registrations.value,
            "dra": lambda: driver._registrations,  # nothing needs the resource
        }[protocol]
        known = registered()
        node.kubelet.restart()
        eventually(lambda: registered() > known, "the new kubelet")
        eventually(lambda: not node.host.ready(), "readiness")
        print(json.dumps(node.host.alive()))
        sys.exit()
    (host / name).mkdir()
    if name in {"device-plugins", "plugins_registry"}:
        node.kubelet.restart()
    said = eventually(node.host.alive, "a restart to be wanted")
    not_ready = node.host.ready()
    if name == "cdi":
        eventually(lambda: free() == set(), "no device to be offered")
    devices = node.host.inventory()["resources"][0]["devices"]
    reasons = sorted({one["reason"] for one in devices})
    print(json.dumps([before, said.replace(f"{inside}/", ""), said in not_ready, reasons]))
"""


def outcome(root: Path, protocol: str, name: str, how: str) -> Any:
    """Return what the plugin says before and after, and the reasons of its devices."""
    command = ["unshare", "--mount", sys.executable, "-c", NODE, str(root), protocol, name, how]
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("protocol", "name", "how"),
    [
        ("device-plugin", "device-plugins", "deleted"),
        ("device-plugin", "other", "renamed"),
        ("dra", "plugins_registry", "renamed"),
    ],
)
def test_a_directory_that_the_host_replaces_needs_a_new_container(
    root: Path, protocol: str, name: str, how: str
) -> None:
    before, said, not_ready, _ = outcome(root, protocol, name, how)
    assert ("", True) == (before, not_ready)
    assert said.startswith(f"{name} has been {how} under its mount")


@pytest.mark.parametrize(
    ("protocol", "name"), [("device-plugin", "device-plugins"), ("dra", "plugins_registry")]
)
def test_a_directory_that_was_moved_and_is_still_used_needs_nothing(
    root: Path, protocol: str, name: str
) -> None:
    assert "" == outcome(root, protocol, name, "linked")


@pytest.mark.parametrize(
    ("protocol", "how", "is_offered"),
    [("device-plugin", "deleted", False), ("dra", "renamed", True)],
    ids=["no pod gets what no runtime can find", "no pod loses a device"],
)
def test_without_the_directory_of_cdi(
    root: Path, protocol: str, how: str, is_offered: bool
) -> None:
    _, said, _, reasons = outcome(root, protocol, "cdi", how)
    assert said.startswith(f"cdi has been {how} under its mount")
    found = [one.replace(f"{root}/c/", "") for one in reasons]
    assert ["" if is_offered else said] == found
