"""Upstream's scenarios of device plugins in which containers, sandboxes or streams end.

They are those of test/e2e_node/device_plugin_test.go, device_plugin_failures_test.go and
device_manager_test.go that are not in test_any_home.py.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin_testing.simulator import Container, Pod
from kubelets.equipped import Kubelet
from kubelets.plugin_node import PluginNode
from scripted_plugin import ScriptedPlugin, sick

GOPHER = "example.com/gopher"


def run(kubelet: Kubelet, name: str, count: int = 1) -> Pod:
    pod = Pod.of(name, main={GOPHER: count})
    assert kubelet.run(pod)
    return pod


def device(kubelet: Kubelet, pod: Pod, container: str = "main") -> str:
    """Return what a container was told at its last start, which the kubelet lists as well."""
    (listed,) = kubelet.held(pod)[container][GOPHER]
    options = kubelet.pod(pod).started[container]
    assert options
    assert listed == options.envs["Gopher"]
    return listed


def restart(kubelet: Kubelet, pod: Pod) -> str:
    """Restart the container of a pod, and return its device."""
    kubelet.exit_container(pod, "main")
    kubelet.start_container(pod, "main")
    return device(kubelet, pod)


# device_plugin_test.go


def test_a_container_gets_a_device_by_its_cdi_name(kubelet: Kubelet, root: Path) -> None:
    """can make a CDI device accessible in a container"""
    edits = {"env": ["CDI=a"], "deviceNodes": [{"path": "/dev/made", "hostPath": "/dev/null"}]}
    devices = [{"name": "a", "containerEdits": edits}]
    text = json.dumps({"cdiVersion": "0.5.0", "kind": "example.com/cdi", "devices": devices})
    (root / "cdi/example.json").write_text(text)
    plugin = ScriptedPlugin(dp.Device("a", cdi_names=["example.com/cdi=a"]), resource=GOPHER)
    node = PluginNode(kubelet, plugin, root)
    node.start(capacity=1)
    options = kubelet.pod(run(kubelet, "p")).started["main"]
    node.stop()
    assert options
    assert ({"CDI": "a"}, ["/dev/made"]) == (
        dict(options.envs),
        [one.container_path for one in options.devices],
    )


def test_a_pod_keeps_its_device_when_its_container_restarts(gophers: PluginNode) -> None:
    """Keeps device plugin assignments across pod restarts (no kubelet restart, no device plugin
    restart)
    """
    first = run(gophers.kubelet, "first")
    before = device(gophers.kubelet, first)
    assert before == restart(gophers.kubelet, first)
    second = run(gophers.kubelet, "second")
    assert {"gary", "gina"} == {before, device(gophers.kubelet, second)}
    assert before == device(gophers.kubelet, first)


def test_a_pod_keeps_its_device_when_its_container_and_the_kubelet_restart(
    gophers: PluginNode,
) -> None:
    """Keeps device plugin assignments across pod and kubelet restarts (no device plugin restart)"""
    pod = run(gophers.kubelet, "p")
    before = device(gophers.kubelet, pod)
    assert before == restart(gophers.kubelet, pod)
    gophers.kubelet.restart()
    gophers.wait(2, 2)
    assert before == device(gophers.kubelet, pod)
    assert before == restart(gophers.kubelet, pod)


def test_a_pod_that_has_succeeded_stays_so_without_its_plugin(gophers: PluginNode) -> None:
    """will not attempt to admit the succeeded pod after the kubelet restart and device plugin
    removed
    """
    pod = run(gophers.kubelet, "p")
    gophers.kubelet.terminate(pod)
    gophers.stop()
    gophers.wait(2, 0)
    gophers.kubelet.restart()
    gophers.kubelet.sync()
    assert "Succeeded" == gophers.kubelet.pod(pod).phase


def test_a_pod_that_is_deleted_while_the_kubelet_is_down_leaves_its_device(
    gophers: PluginNode,
) -> None:
    """[OrphanedPods] Ensures pods consuming devices deleted while kubelet is down are cleaned up
    correctly
    """
    kubelet = gophers.kubelet
    orphan = run(kubelet, "orphan")
    kubelet.stop()
    kubelet.delete(orphan)
    kubelet.start()
    gophers.wait(2, 2)
    assert [] == gophers.listed()
    assert {"gary", "gina"} == kubelet.held(run(kubelet, "next", 2))["main"][GOPHER]


def test_a_sidecar_has_the_device_of_the_init_container_before_it(gophers: PluginNode) -> None:
    """Can schedule a pod with a restartable init container"""
    init, main = Container("init", {GOPHER: 1}), Container("main", {GOPHER: 1})
    sidecar = Container("sidecar", {GOPHER: 1}, restarts_always=True)
    pod = Pod("p", [main], [init, sidecar])
    assert gophers.kubelet.run(pod)
    found = {one: device(gophers.kubelet, pod, one) for one in ("init", "sidecar", "main")}
    assert found["init"] == found["sidecar"] != found["main"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_pod_is_rejected_after_a_reboot_until_the_plugin_registers(
    gophers: PluginNode, count: int
) -> None:
    """Keeps device plugin assignments across node reboots (no pod restart, no device plugin
    re-registration)
    should deploy pod consuming devices first but fail with admission error after kubelet restart
    in case device plugin hasn't re-registered
    """
    kubelet = gophers.kubelet
    pod = run(kubelet, "p", count)
    gophers.stop()
    kubelet.reboot()
    gophers.wait(0, 0)
    state = kubelet.pod(pod)
    assert ("Failed", "UnexpectedAdmissionError") == (state.phase, state.reason)
    assert "no healthy devices present; cannot allocate unhealthy devices" in state.message
    kubelet.delete(pod)
    # Where we go on: the plugin registers by itself, and the next pod runs.
    gophers.start(capacity=2)
    run(kubelet, "next", 2)


# device_plugin_failures_test.go


@pytest.fixture
def devices() -> str:
    """The devices of ``plugin``; tests parametrise it."""
    return "0"


@pytest.fixture
def plugin(devices: str) -> ScriptedPlugin:
    return ScriptedPlugin(*devices, resource=GOPHER)


@pytest.fixture
def node(
    kubelet: Kubelet, plugin: ScriptedPlugin, devices: str, root: Path
) -> Iterator[PluginNode]:
    """A node with a plugin of which the test says which devices are healthy."""
    made = PluginNode(kubelet, plugin, root)
    made.start(capacity=len(devices))
    yield made
    made.stop()


def test_one_device_becomes_unhealthy_and_healthy(node: PluginNode, plugin: ScriptedPlugin) -> None:
    """will set allocatable to zero when a single device became unhealthy and then back to 1 if it
    got healthy again
    """
    plugin.set(sick("0"))
    node.wait(1, 0)
    plugin.set("0")
    node.wait(1, 1)


def test_a_pod_runs_on_with_a_device_that_became_unhealthy(
    node: PluginNode, plugin: ScriptedPlugin
) -> None:
    """will set allocatable to zero when a single device became unhealthy, but capacity will stay
    at 1
    """
    pod = Pod.of("p", main={GOPHER: 1})
    assert node.kubelet.run(pod)
    node.wait(1, 1)
    plugin.set(sick("0"))
    node.wait(1, 0)
    assert ("Running", {"main"}) == (node.kubelet.pod(pod).phase, node.kubelet.pod(pod).running)
    node.kubelet.delete(pod)
    node.kubelet.expire()
    node.wait(1, 0)


@pytest.mark.parametrize("devices", ["0123"])
def test_unhealthy_devices_are_not_allocatable(node: PluginNode, plugin: ScriptedPlugin) -> None:
    """will lower allocatable to a number of unhealthy devices and then back if they became healthy
    again
    """
    for ill in ("3", "", "13", "1", ""):
        plugin.set(*(sick(one) if one in ill else one for one in "0123"))
        node.wait(4, 4 - len(ill))


@pytest.mark.parametrize("fault", [Kubelet.hang_up, lambda kubelet, _: kubelet.restart()])
def test_our_plugin_registers_again_when_its_stream_ends(
    gophers: PluginNode, fault: Callable[[Kubelet, str], None]
) -> None:
    """Where we differ from the plugin of these cases: the devices are back by themselves."""
    before = gophers.kubelet.registration_count(GOPHER)
    fault(gophers.kubelet, GOPHER)
    gophers.kubelet.wait(lambda: gophers.kubelet.registration_count(GOPHER) > before)
    gophers.wait(2, 2)


def test_a_plugin_that_ends_leaves_the_capacity_for_five_minutes(gophers: PluginNode) -> None:
    """when device plugin is stopped after provisioning devices, node allocatable will be set to
    zero
    """
    gophers.stop()
    gophers.wait(2, 0)
    gophers.kubelet.expire()
    gophers.wait(0, 0)
