"""The gopher plugin from installation to removal."""

import subprocess

import pytest

from deviceplugin_testing.simulator import Pod
from homes.simulated_node import Node

RESOURCE = "example.com/gopher"
pytestmark = pytest.mark.gopher


@pytest.fixture
def plugin(node: Node) -> subprocess.Popen[str]:
    gophers = node.root / "gophers"
    gophers.mkdir()
    for name in ("gary", "gina"):
        (gophers / name).touch()
    process = node.start("gopher-device-plugin", f"--directory={gophers}")
    node.kubelet.wait_for(RESOURCE, {"gary", "gina"})
    node.kubelet.tick()
    return process


def test_the_node_has_the_gophers_and_a_pod_gets_one(
    node: Node, plugin: subprocess.Popen[str]
) -> None:
    assert (2, 2) == (node.kubelet.capacity(RESOURCE), node.kubelet.allocatable(RESOURCE))
    pod = Pod.of("digger", main={RESOURCE: 1})
    assert node.kubelet.run(pod)
    options = node.kubelet.run_options(pod, "main")
    assert options is not None
    assert options.envs["Gopher"] in {"gary", "gina"}
    assert plugin.poll() is None


@pytest.mark.usefixtures("plugin")
def test_the_resource_is_exhausted_and_freed_again(node: Node) -> None:
    first, second = Pod.of("first", main={RESOURCE: 2}), Pod.of("second", main={RESOURCE: 2})
    assert node.kubelet.run(first)
    assert "requested number of devices unavailable" in node.kubelet.admit(second).message
    node.kubelet.terminate(first)
    assert node.kubelet.run(Pod.of("third", main={RESOURCE: 2}))


@pytest.mark.usefixtures("plugin")
def test_a_container_keeps_its_gopher_over_restarts(node: Node) -> None:
    pod = Pod.of("keeper", main={RESOURCE: 1})
    assert node.kubelet.run(pod)
    before = node.kubelet.run_options(pod, "main")
    node.kubelet.restart()
    node.kubelet.wait_for(RESOURCE, {"gary", "gina"})
    assert before == node.kubelet.start_container(pod, "main")


def test_a_killed_plugin_is_replaced_and_its_pods_are_not_disturbed(
    node: Node, plugin: subprocess.Popen[str]
) -> None:
    pod = Pod.of("keeper", main={RESOURCE: 1})
    assert node.kubelet.run(pod)
    plugin.kill()
    node.kubelet.wait(lambda: 0 == node.kubelet.allocatable(RESOURCE) or _tick(node))
    node.start("gopher-device-plugin", f"--directory={node.root / 'gophers'}")
    node.kubelet.wait_for(RESOURCE, {"gary", "gina"})
    assert node.kubelet.run(Pod.of("other", main={RESOURCE: 1}))
    assert "Running" == node.kubelet.pod(pod).phase


def _tick(node: Node) -> bool:
    node.kubelet.tick()
    return False


def test_an_uninstalled_plugin_leaves_nothing_behind(
    node: Node, plugin: subprocess.Popen[str]
) -> None:
    events = node.uninstall(plugin)
    assert [] == list(node.kubelet.plugin_dir.glob("example.com*"))
    assert ["registered", "started", "stopping"] == sorted(
        event for event in events if not event.startswith("device ")
    )
