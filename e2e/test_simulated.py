"""Instances of the simulated plugin beside and after each other."""

import signal
import subprocess
from pathlib import Path

import pytest

from deviceplugin_testing.simulator import Pod
from homes.simulated_node import BIN, Node
from patience import PATIENCE

RESOURCE = "example.com/gpu"
GPUS = [f"gpu-{index}" for index in range(8)]
pytestmark = pytest.mark.simulated


def control(node: Node) -> Path:
    return node.root / "ctl.sock"


def ctl(node: Node, *words: str) -> str:
    command = [str(BIN / "simulated-device-plugin"), "ctl", f"--control-socket={control(node)}"]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=True).stdout


def start(node: Node, *flags: str) -> subprocess.Popen[str]:
    process = node.start("simulated-device-plugin", "--profile=8-gpus", *flags)
    node.kubelet.wait_for(RESOURCE, GPUS)
    node.kubelet.tick()
    return process


@pytest.fixture
def plugin(node: Node) -> subprocess.Popen[str]:
    process = start(node, f"--control-socket={control(node)}")
    node.kubelet.wait(control(node).is_socket)
    return process


def test_two_instances_with_the_same_name_never_have_each_others_devices(node: Node) -> None:
    """They are two DaemonSets, each of which forgot to set PLUGIN_NAME."""
    kubelet = node.kubelet
    ids = {}
    for name in ("one", "other"):
        flags = (f"--resource=example.com/{name}", f"--device-id-prefix={name}", "--node-name=n1")
        node.start("simulated-device-plugin", *flags)
        ids[f"example.com/{name}"] = {f"{name}-n1-0", f"{name}-n1-1"}

    def have_all() -> bool:
        """Return whether both have all of their devices. Fail if they have any other."""
        for resource, own in ids.items():
            assert set(kubelet.devices(resource)) <= own
        return all(own == kubelet.healthy(resource) for resource, own in ids.items())

    for _ in range(4):
        kubelet.wait(have_all)
        for path in kubelet.plugin_dir.glob("simple-device-plugin.sock"):
            path.unlink()
        kubelet.restart()
    kubelet.wait(have_all)


def test_a_crash_is_that_of_the_process_and_a_new_one_has_the_devices_back(
    node: Node, plugin: subprocess.Popen[str]
) -> None:
    pod = Pod.of("keeper", main={RESOURCE: 1})
    assert node.kubelet.run(pod)
    ctl(node, "crash")
    assert -signal.SIGKILL == plugin.wait(PATIENCE)
    node.kubelet.wait_for(RESOURCE, (), GPUS)
    start(node, f"--control-socket={control(node)}")
    assert node.kubelet.run(Pod.of("other", main={RESOURCE: 1}))
    assert "Running" == node.kubelet.pod(pod).phase


def test_an_uninstalled_plugin_leaves_nothing_behind(
    node: Node, plugin: subprocess.Popen[str]
) -> None:
    events = node.uninstall(plugin)
    assert [] == list(node.kubelet.plugin_dir.glob("simple*"))
    assert not control(node).exists()
    assert ["registered", "started", "stopping"] == sorted(
        event for event in events if not event.startswith(("device ", "more devices"))
    )
