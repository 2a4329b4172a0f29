"""Pods with limits of zero on a node that offers its devices through DRA, or has been switched.

As Kubernetes' own "must run a pod with extended resource requesting zero".
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cluster.dra_objects import RESOURCE
from deviceplugin._discovery import retention
from drivers.dual_node import IDS, DualNode, gopher
from patience import eventually

ALL = set(IDS)


@pytest.fixture
def node() -> Iterator[DualNode]:
    """A node whose kubelet forgets a lost resource at its next status."""
    with TemporaryDirectory(prefix="dra-") as path, DualNode(Path(path), stop_grace=0.0) as running:
        yield running
        running.check()


def wait_forgotten(node: DualNode) -> None:
    def is_forgotten() -> bool:
        # Also the devices of pods that have ended, which it collects only when it has to.
        known = RESOURCE in node.kubelet.resources
        return not known and not node.kubelet.in_use(RESOURCE)

    eventually(is_forgotten, "the kubelet to forget it")


def test_a_node_that_starts_with_dra_registers_nothing_and_runs_zero(node: DualNode) -> None:
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=ALL)
    assert set() == node.run("zero", 0)
    assert "extendedResourceClaimStatus" not in node.make.status("zero")
    assert 0 == node.kubelet.registration_count(RESOURCE)
    assert node.host
    assert "" == node.host.ready()
    (resource,) = node.host.inventory()["resources"]
    assert (False, "") == (resource["registered"], resource["problem"])
    assert 2 == len(node.run("two", 2))


def test_after_a_switch_to_dra_zero_runs_as_soon_as_the_kubelet_has_forgotten(
    node: DualNode,
) -> None:
    node.start()
    node.wait_for(plugin=ALL, dra=set())
    node.switch("dra")
    node.wait_for(plugin=set(), dra=ALL)
    wait_forgotten(node)
    assert set() == node.run("zero", 0)
    assert 2 == len(node.run("two", 2))


def test_the_resource_stays_registered_until_the_last_pod_of_the_device_plugin_ends(
    node: DualNode,
) -> None:
    node.start()
    node.wait_for(plugin=ALL, dra=set())
    held = node.run("one")
    node.switch("dra")
    node.wait_for(plugin=set(), dra=ALL - held)
    node.make.pod("early", {RESOURCE: "0"})
    node.wait_for_phase("early", "Failed")
    assert "no healthy devices present" in str(node.make.status("early")["message"])
    assert {RESOURCE} == node.kubelet.registered
    node.end("one")
    wait_forgotten(node)
    assert set() == node.run("zero", 0)


def test_a_restart_in_dra_mode_registers_for_a_pod_that_holds_something(node: DualNode) -> None:
    node.start()
    node.wait_for(plugin=ALL, dra=set())
    held = node.run("one")
    node.stop()
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=ALL - held)
    eventually(lambda: {RESOURCE} == node.kubelet.registered, "the registration")
    assert held == node.start_again("one")
    node.end("one")
    wait_forgotten(node)
    assert set() == node.run("zero", 0)


def test_after_a_switch_back_it_is_registered_with_its_first_free_device(node: DualNode) -> None:
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=ALL)
    held = node.run("all", 3)
    node.switch("device-plugin")
    node.wait_for(plugin=set(), dra=set())
    assert set() == node.run("zero", 0)
    assert 0 == node.kubelet.registration_count(RESOURCE)
    node.end("all")
    node.wait_for(plugin=held, dra=set())
    assert 1 == len(node.run("one"))
    assert set() == node.run("again", 0)


def test_a_kubelet_that_remembers_a_hook_of_the_process_before_is_told_that_there_is_none() -> None:
    """It would not start a container with a device of DRA for five minutes."""
    with TemporaryDirectory(prefix="dra-") as path, DualNode(Path(path)) as node:
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


def test_a_container_without_devices_runs_beside_one_with_a_device_of_dra(node: DualNode) -> None:
    node.start(protocol="dra")
    node.wait_for(plugin=set(), dra=ALL)
    containers = [
        {"name": name, "resources": {"limits": {RESOURCE: count}}}
        for name, count in (("main", "1"), ("none", "0"))
    ]
    spec = {"containers": containers}
    node.cluster.create({"kind": "Pod", "metadata": {"name": "mixed"}, "spec": spec})
    node.wait_for_phase("mixed", "Running")
    mappings = node.make.status("mixed")["extendedResourceClaimStatus"]["requestMappings"]
    assert ["main"] == [each["containerName"] for each in mappings]


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
