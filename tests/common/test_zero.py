"""Pods with limits of zero, which a kubelet rejects where it knows a resource without a device."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deviceplugin_testing.fixture import Kubelet, Node
from deviceplugin_testing.simulator import KubeletConfig, Outcome, Pod, SimulatedKubelet
from patience import eventually
from scripted_plugin import RESOURCE, ScriptedPlugin, sick

REJECTED = (
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate "
    f"unhealthy devices {RESOURCE}, which is unexpected"
)
SOON = timedelta(milliseconds=100)


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    """A kubelet that forgets a lost resource at its next status, and not after five minutes."""
    config = KubeletConfig(stop_grace=0.0, watch_interval=0.05)
    with TemporaryDirectory(prefix="dp") as root, Kubelet(Path(root), config) as running:
        yield running


@contextmanager
def serving(kubelet: Kubelet, plugin: ScriptedPlugin, registration: str = "self") -> Iterator[Node]:
    """Run ``plugin``, whose devices are forgotten soon after they vanish and nobody has them."""
    with kubelet.running(plugin, registration=registration, vanished_grace=SOON) as node:
        yield node


def ask_for_zero(kubelet: SimulatedKubelet, name: str = "zero") -> Outcome:
    return kubelet.admit(Pod.of(name, main={RESOURCE: 0}))


def wait_forgotten(kubelet: SimulatedKubelet) -> None:
    def is_forgotten() -> bool:
        kubelet.tick()
        return RESOURCE not in kubelet.resources

    kubelet.wait(lambda: not kubelet.registered)
    eventually(is_forgotten, "the kubelet to forget the resource")


def test_a_pod_with_zero_runs_where_there_has_never_been_a_device(kubelet: Kubelet) -> None:
    with serving(kubelet, ScriptedPlugin()) as node:
        node.wait_for(RESOURCE, ())
        assert ask_for_zero(node.kubelet)
        assert ("", []) == (node.host.ready(), node.host.troubles())
        assert 0 == node.kubelet.registration_count(RESOURCE)
        node.kubelet.tick()
        assert {} == node.kubelet.node.capacity
        node.restart_kubelet()
        node.wait_for(RESOURCE, ())
        assert ask_for_zero(node.kubelet, "later")
        assert 0 == node.kubelet.registration_count(RESOURCE)


@pytest.mark.parametrize("registration", ["self", "watcher"])
def test_a_pod_with_zero_runs_again_once_the_kubelet_has_forgotten_a_resource_without_devices(
    kubelet: Kubelet, registration: str
) -> None:
    plugin = ScriptedPlugin("a")
    with serving(kubelet, plugin, registration) as node:
        node.wait_for(RESOURCE, {"a"})
        plugin.set()
        node.wait_for(RESOURCE, ())
        assert REJECTED == ask_for_zero(node.kubelet, "early").message
        wait_forgotten(node.kubelet)
        assert ask_for_zero(node.kubelet)
        assert "" == node.host.ready()


@pytest.mark.parametrize("registration", ["self", "watcher"])
def test_a_device_that_comes_back_is_allocated_at_once(kubelet: Kubelet, registration: str) -> None:
    plugin = ScriptedPlugin("a")
    with serving(kubelet, plugin, registration) as node:
        for number in range(3):
            plugin.set("a")
            node.kubelet.wait(lambda: node.kubelet.registered)  # else it may be what was before
            node.wait_for(RESOURCE, {"a"})
            pod = Pod.of(f"p{number}", main={RESOURCE: 1})
            assert node.kubelet.run(pod)
            node.kubelet.terminate(pod)
            plugin.set()
            node.kubelet.wait(lambda: not node.kubelet.registered)


def test_a_resource_stays_registered_while_a_pod_has_a_device_that_is_gone(
    kubelet: Kubelet,
) -> None:
    plugin, holder = ScriptedPlugin("a"), Pod.of("holder", main={RESOURCE: 1})
    with serving(kubelet, plugin) as node:
        node.wait_for(RESOURCE, {"a"})
        assert node.kubelet.run(holder)
        plugin.set()
        node.wait_for(RESOURCE, (), {"a"})
        assert REJECTED == ask_for_zero(node.kubelet, "early").message
        node.kubelet.terminate(holder)
        wait_forgotten(node.kubelet)
        assert ask_for_zero(node.kubelet)


def test_unhealthy_devices_stay_in_the_nodes_capacity_and_the_kubelet_rejects_zero(
    kubelet: Kubelet,
) -> None:
    with serving(kubelet, ScriptedPlugin(sick("a"))) as node:
        node.wait_for(RESOURCE, (), {"a"})
        node.kubelet.tick()
        assert {RESOURCE: 1} == node.kubelet.node.capacity
        assert REJECTED == ask_for_zero(node.kubelet).message


def test_the_start_hook_is_called_without_a_device_and_the_stop_hook_only_at_the_end(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    plugin = ScriptedPlugin()
    with serving(kubelet, plugin) as node:
        eventually(lambda: [("start", RESOURCE)] == plugin.hooks, "start")
        plugin.set("a")
        node.wait_for(RESOURCE, {"a"})
        plugin.set()
        node.kubelet.wait(lambda: not node.kubelet.registered)
        eventually(lambda: not node.host.ready(), "the endpoint to rest")
        assert [("start", RESOURCE)] == plugin.hooks
        events = caplog.messages
        assert (1, 0) == (events.count("resource withdrawn"), events.count("registration lost"))
    assert [("start", RESOURCE), ("stop", RESOURCE)] == plugin.hooks
