"""Pods with limits of zero on a node that offers its devices through DRA, or has been switched.

As Kubernetes' own "must run a pod with extended resource requesting zero".
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.dra_objects import RESOURCE
from deviceplugin._discovery import retention
from drivers.dual_node import IDS, DualNode, gopher
from patience import eventually

ALL = set(IDS)


@pytest.fixture
def node(root: Path) -> Iterator[DualNode]:
    """A node whose kubelet forgets a lost resource at its next status."""
    with DualNode(root, stop_grace=0.0) as running:
        yield running
        running.check()


def wait_forgotten(node: DualNode) -> None:
    def is_forgotten() -> bool:
        # Also the devices of pods that have ended, which it collects only when it has to.
        known = RESOURCE in node.kubelet.resources
        return not known and not node.kubelet.in_use(RESOURCE)

    eventually(is_forgotten, "the kubelet to forget it")


def test_a_node_that_starts_with_dra_registers_nothing_and_runs_zero(dra_node: DualNode) -> None:
    assert set() == dra_node.run("zero", 0)
    assert "extendedResourceClaimStatus" not in dra_node.make.status("zero")
    containers = [
        {"name": name, "resources": {"limits": {RESOURCE: count}}}
        for name, count in (("main", "1"), ("none", "0"))
    ]
    spec = {"containers": containers}
    dra_node.cluster.create({"kind": "Pod", "metadata": {"name": "mixed"}, "spec": spec})
    dra_node.wait_for_phase("mixed", "Running")
    mappings = dra_node.make.status("mixed")["extendedResourceClaimStatus"]["requestMappings"]
    assert ["main"] == [each["containerName"] for each in mappings]
    assert 0 == dra_node.kubelet.registration_count(RESOURCE)
    assert dra_node.host
    assert "" == dra_node.host.ready()
    (resource,) = dra_node.host.inventory()["resources"]
    assert (False, "") == (resource["registered"], resource["problem"])


def test_the_resource_stays_registered_until_the_last_pod_of_the_device_plugin_ends(
    plugin_node: DualNode,
) -> None:
    held = plugin_node.run("one")
    plugin_node.switch("dra")
    plugin_node.wait_for(plugin=set(), dra=ALL - held)
    assert ALL - held == plugin_node.run("two", 2)
    plugin_node.make.pod("early", {RESOURCE: "0"})
    plugin_node.wait_for_phase("early", "Failed")
    assert "no healthy devices present" in str(plugin_node.make.status("early")["message"])
    assert {RESOURCE} == plugin_node.kubelet.registered
    plugin_node.end("one")
    plugin_node.wait_for(plugin=set(), dra=ALL)
    wait_forgotten(plugin_node)
    assert set() == plugin_node.run("zero", 0)
    assert held == plugin_node.run("three")


def test_a_restart_in_dra_mode_registers_for_a_pod_that_holds_something(
    plugin_node: DualNode,
) -> None:
    held = plugin_node.run("one")
    plugin_node.stop()
    plugin_node.start(protocol="dra")
    plugin_node.wait_for(plugin=set(), dra=ALL - held)
    eventually(lambda: {RESOURCE} == plugin_node.kubelet.registered, "the registration")
    assert held == plugin_node.start_again("one")
    plugin_node.end("one")
    wait_forgotten(plugin_node)
    assert set() == plugin_node.run("zero", 0)


def test_after_a_switch_back_it_is_registered_with_its_first_free_device(
    dra_node: DualNode,
) -> None:
    held = dra_node.run("all", 3)
    dra_node.switch("device-plugin")
    dra_node.wait_for(plugin=set(), dra=set())
    assert set() == dra_node.run("zero", 0)
    assert 0 == dra_node.kubelet.registration_count(RESOURCE)
    dra_node.end("all")
    dra_node.wait_for(plugin=held, dra=set())
    assert 1 == len(dra_node.run("one"))
    assert set() == dra_node.run("again", 0)


def test_a_kubelet_that_remembers_a_hook_of_the_process_before_is_told_that_there_is_none(
    root: Path,
) -> None:
    """It would not start a container with a device of DRA for five minutes."""
    with DualNode(root) as node:
        node.start()
        node.wait_for(plugin=ALL, dra=set())
        assert node.kubelet.options(RESOURCE).pre_start_required
        node.stop()
        node.start(protocol="dra")
        node.wait_for(plugin=set(), dra=ALL)
        eventually(lambda: not node.kubelet.options(RESOURCE).pre_start_required, "the options")
        eventually(lambda: not node.kubelet.registered, "the end of the registration")
        held = node.run("one")
        assert held == node.start_again("one")
        assert 2 == node.kubelet.registration_count(RESOURCE)


def test_without_devices_neither_protocol_registers_anything(node: DualNode) -> None:
    node.plugin.set()
    node.start(protocol="dra")
    eventually(lambda: node.host and not node.host.ready(), "readiness")
    assert set() == node.run("zero", 0)
    node.switch("device-plugin")
    assert set() == node.run("again", 0)
    assert 0 == node.kubelet.registration_count(RESOURCE)
    node.plugin.set(gopher("gary"))
    node.wait_for(plugin={"gary"}, dra=set())


def test_while_it_is_not_known_what_pods_hold_the_resource_is_registered(
    node: DualNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_PATIENCE", 0.0)
    socket = node.kubelet.pod_resources_socket.with_name("none.sock")
    node.start(protocol="dra", pod_resources_socket=socket)
    eventually(lambda: {RESOURCE} == node.kubelet.registered, "the registration")
    assert set() == node.by_plugin()
