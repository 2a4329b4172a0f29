"""The generic plugin from installation to removal."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from deviceplugin_testing.simulator import Pod
from homes.simulated_node import Node

RESOURCE = "squat.ai/port"
pytestmark = pytest.mark.generic

CONFIG = """
domain: squat.ai
devices:
  - name: port
    id: serial
    env: {{"PORT_{{index}}": "{{path}}"}}
    groups: [{{paths: [{{path: {dev}/port*, mountPath: /dev/}}]}}]
{more}
"""
REFUSED = "invalid configuration ignored"
MORE = "  - {name: other, id: serial, groups: [{paths: [{path: /dev/null}]}]}"


@pytest.fixture
def dev(node: Node) -> Path:
    path = node.root / "dev"
    path.mkdir()
    for name in ("port1", "port2"):
        (path / name).symlink_to("/dev/null")
    return path


@pytest.fixture
def file(node: Node, dev: Path) -> Path:
    path = node.root / "config.yaml"
    path.write_text(CONFIG.format(dev=dev, more=""))
    return path


@pytest.fixture
def plugin(node: Node, file: Path) -> subprocess.Popen[str]:
    process = node.start("generic-device-plugin", f"--config={file}", "--discovery-interval=1h")
    node.kubelet.wait_for(RESOURCE, {"port-port1", "port-port2"})
    node.kubelet.tick()
    return process


@pytest.mark.usefixtures("plugin")
def test_a_pod_gets_a_device_node_of_the_host(node: Node, dev: Path) -> None:
    pod = Pod.of("reader", main={RESOURCE: 2})
    assert node.kubelet.run(pod)
    options = node.kubelet.run_options(pod, "main")
    assert options is not None
    assert {"PORT_0": f"{dev}/port1", "PORT_1": f"{dev}/port2"} == dict(options.envs)
    too_many = node.kubelet.admit(Pod.of("late", main={RESOURCE: 1}))
    assert "requested number of devices unavailable" in too_many.message


@pytest.mark.usefixtures("plugin")
def test_a_device_that_is_unplugged_is_unhealthy_and_comes_back(node: Node, dev: Path) -> None:
    (dev / "port1").unlink()
    node.kubelet.wait_for(RESOURCE, {"port-port2"}, {"port-port1"})
    (dev / "port1").symlink_to("/dev/zero")
    node.kubelet.wait_for(RESOURCE, {"port-port1", "port-port2"})


@pytest.mark.usefixtures("plugin")
def test_devices_are_back_after_a_restart_of_the_kubelet(node: Node) -> None:
    node.kubelet.restart()
    node.kubelet.wait_for(RESOURCE, {"port-port1", "port-port2"})


@pytest.mark.parametrize("hangs_up", [False, True])
def test_a_changed_file_adds_a_resource_and_leaves_the_others_alone(
    node: Node, plugin: subprocess.Popen[str], file: Path, dev: Path, hangs_up: bool
) -> None:
    file.write_text(CONFIG.format(dev=dev, more=MORE))
    if hangs_up:
        plugin.send_signal(signal.SIGHUP)
    node.kubelet.wait_for("squat.ai/other", {"other-null"})
    assert 1 == node.kubelet.registration_count(RESOURCE)


@pytest.mark.parametrize("hangs_up", [False, True])
def test_an_emptied_file_takes_no_device_away(
    node: Node, plugin: subprocess.Popen[str], file: Path, hangs_up: bool
) -> None:
    file.write_text("# nothing\n")
    if hangs_up:
        plugin.send_signal(signal.SIGHUP)
    assert plugin.stderr is not None
    log = iter(plugin.stderr)
    while json.loads(refusal := next(log))["event"] != REFUSED:
        pass
    assert json.loads(refusal)["error"].startswith(f"{file}: no devices")
    node.kubelet.tick()
    assert 2 == node.kubelet.allocatable(RESOURCE)


def test_an_uninstalled_plugin_leaves_nothing_behind(
    node: Node, plugin: subprocess.Popen[str]
) -> None:
    events = node.uninstall(plugin)
    assert [] == list(node.kubelet.plugin_dir.glob("squat.ai*"))
    assert ["registered", "started", "stopping"] == sorted(
        event for event in events if not event.startswith("device ")
    )
