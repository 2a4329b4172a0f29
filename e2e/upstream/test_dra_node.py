"""Upstream's scenarios of test/e2e_node/dra_test.go, with a driver of ours in place of its own.

Where two drivers are needed, the other one is a stub.
"""

import pytest

from cluster.dra_objects import DRIVER
from deviceplugin_testing.simulator import StubDriver, StubError
from drivers.played_node import OTHER, PlayedNode
from patience import eventually
from scripted_plugin import sick


def test_the_driver_registers_again_after_each_restart(node: PlayedNode) -> None:
    """must register after Kubelet restart
    must register after plugin restart
    registers plugin
    """
    node.kubelet.restart()
    eventually(lambda: DRIVER in node.kubelet.dra.connected, "the driver")
    node.stop()
    eventually(lambda: DRIVER not in node.kubelet.dra.connected, "its end")
    node.start_driver()


def test_a_registration_that_failed_is_tried_again(node: PlayedNode) -> None:
    """must recover and register after registration failure"""
    with StubDriver(node.kubelet.registry_dir, OTHER) as stub:
        stub.failing["GetInfo"] = StubError("it failed")
        node.until(lambda: stub.calls.count("GetInfo") > 1, "two attempts")
        assert OTHER not in node.kubelet.dra.connected
        stub.failing.clear()
        node.until(lambda: OTHER in node.kubelet.dra.connected, "the registration")


def test_a_pod_that_came_while_the_kubelet_was_down_runs(node: PlayedNode) -> None:
    """must process pod created when kubelet is not running"""
    node.kubelet.stop()
    node.claiming("p", "c")
    eventually(lambda: node.make.node_of("p"), "the pod to be scheduled")
    assert "Pending" == node.phase("p")
    node.kubelet.start()
    node.wait_phase("Running", "p")


def test_a_pod_is_pending_as_long_as_its_devices_are_prepared(node: PlayedNode) -> None:
    """must keep pod in pending state if NodePrepareResources times out"""
    node.plugin.gate.clear()
    node.claiming("p", "c")
    node.until(lambda: node.plugin.calls, "the call")
    node.clock.advance(300)
    assert ("Pending", []) == (node.phase("p"), node.prepared("c"))
    node.plugin.gate.set()
    node.wait_phase("Running", "p")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pod_runs_once_its_devices_can_be_prepared(node: PlayedNode, restarts: bool) -> None:
    """must run pod if NodePrepareResources fails and then succeeds
    must retry NodePrepareResources after Kubelet restart
    must retry NodePrepareResources
    """
    node.plugin.failing.add("allocate")
    node.claiming("p", "c")
    node.until(lambda: "it failed" in node.why_pending("p"), "the failure to be reported")
    assert "Pending" == node.phase("p")
    if restarts:
        node.kubelet.stop()
    node.plugin.failing.clear()
    if restarts:
        node.kubelet.start()
    node.wait_phase("Running", "p")
    assert ["c"] == node.prepared("c")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_claim_is_unprepared_once_that_succeeds(
    node: PlayedNode, deleted: bool, restarts: bool
) -> None:
    """must run pod if NodeUnprepareResources fails and then succeeds
    must retry NodeUnprepareResources after Kubelet restart
    must call NodeUnprepareResources for deleted pod
    must call NodeUnprepareResources for deleted pod after Kubelet restart
    """
    node.plugin.failing.add("released")
    node.claiming("p", "c")
    node.wait_phase("Running", "p")
    node.remove("p") if deleted else node.end("p")
    node.until(lambda: "released" in node.plugin.calls, "the failure")
    assert ["c"] == node.prepared("c")
    if restarts:
        node.kubelet.restart()
        calls = len(node.plugin.calls)
        node.until(lambda: len(node.plugin.calls) > calls, "another failure")
    node.plugin.failing.clear()
    node.until(lambda: not node.prepared("c"), "the claim to be unprepared")
    node.wait_phase("" if deleted else "Succeeded", "p")


def test_a_pod_that_was_deleted_meanwhile_is_not_prepared_again(node: PlayedNode) -> None:
    """must not call NodePrepareResources for deleted pod after Kubelet restart"""
    node.plugin.gate.clear()
    node.claiming("p", "c")
    node.until(lambda: node.plugin.calls, "the call")
    node.kubelet.stop()
    node.cluster.delete("Pod", "p", grace=0)
    node.plugin.gate.set()
    node.kubelet.start()
    node.make.claim("other")
    node.claiming("next", "other")
    node.wait_phase("Running", "next")
    assert [] == node.prepared("c")
    assert 2 == node.plugin.calls.count("allocate")


def test_a_pod_ends_after_its_driver_was_away(node: PlayedNode) -> None:
    """must be functional after service reconnect"""
    node.claiming("p", "c")
    node.wait_phase("Running", "p")
    node.stop()
    node.until(lambda: not node.cluster.list("ResourceSlice"), "the slices to be removed")
    assert "Running" == node.phase("p")
    node.start_driver()
    node.remove("p")
    node.wait_phase("", "p")
    assert [] == node.prepared("c")


# Two drivers


def test_devices_of_two_drivers_are_prepared_and_unprepared(
    node: PlayedNode, other: StubDriver
) -> None:
    """must prepare and unprepare resources
    work
    """
    for name, kind in (("c2", "gopher"), ("o2", "other")):
        node.make.claim(name, deviceClassName=kind)
    ours, theirs = ["c", "c2"], ["o", "o2"]
    node.claiming("p", *ours, *theirs)
    node.wait_phase("Running", "p")
    assert ([*ours, *theirs], [theirs]) == (node.prepared(*ours, *theirs), other.prepared)
    node.end("p")
    node.wait_phase("Succeeded", "p")
    assert ([], theirs) == (node.prepared(*ours, *theirs), other.unprepared[0])
    assert ["allocate", "allocate", "released", "released"] == node.plugin.calls[:4]


@pytest.mark.parametrize("ours", [False, True])
def test_a_pod_waits_for_the_one_of_two_drivers_that_fails(
    node: PlayedNode, other: StubDriver, ours: bool
) -> None:
    """must run pod if NodePrepareResources fails for one plugin and then succeeds
    must run pod if NodeUnprepareResources fails for one plugin and then succeeds
    """

    def fail(hook: str, method: str) -> None:
        if ours:
            node.plugin.failing.add(hook)
        else:
            other.failing[method] = StubError("it failed")

    def mend() -> None:
        node.plugin.failing.clear()
        other.failing.clear()

    fail("allocate", "NodePrepareResources")
    node.claiming("p", "c", "o")
    node.until(lambda: "it failed" in node.why_pending("p"), "the failure")
    mend()
    node.wait_phase("Running", "p")
    fail("released", "NodeUnprepareResources")
    node.end("p")
    calls = node.plugin.calls if ours else other.calls
    hook = "released" if ours else "NodeUnprepareResources"
    node.until(lambda: hook in calls, "the failure")
    assert "Running" == node.phase("p")
    mend()
    node.wait_phase("Succeeded", "p")
    assert [] == node.prepared("c", "o")


@pytest.mark.parametrize("method", ["NodePrepareResources", "NodeUnprepareResources"])
def test_a_call_that_the_kubelets_restart_interrupts_is_made_again(
    node: PlayedNode, other: StubDriver, method: str
) -> None:
    """must run pod if NodePrepareResources is in progress for one plugin when Kubelet restarts
    must call NodeUnprepareResources again if it's in progress for one plugin when Kubelet restarts
    """
    other.hold(method)
    node.claiming("p", "c", "o")
    if method == "NodeUnprepareResources":
        node.wait_phase("Running", "p")
        node.remove("p")
    node.until(lambda: method in other.calls, "the call")
    node.kubelet.restart()
    other.release()
    if method == "NodePrepareResources":
        node.wait_phase("Running", "p")
        node.remove("p")
    node.wait_phase("", "p")
    assert [] == node.prepared("c", "o")


# ResourceSlices


def test_the_kubelet_removes_the_slices_of_its_node_and_the_driver_publishes_again(
    node: PlayedNode,
) -> None:
    """must be removed on kubelet startup"""
    node.cluster.add_node("n2")
    foreign = node.make.slice("device", nodeName="n2", driver=OTHER)["metadata"]["name"]

    def uids() -> set[str]:
        return {
            one["metadata"]["uid"]
            for one in node.cluster.list("ResourceSlice")
            if one["spec"]["nodeName"] == "n1"
        }

    before = uids()
    node.kubelet.restart()
    node.until(lambda: uids() and not before & uids(), "new slices")
    assert {"gary", "gerd", "gina"} < node.by_dra()
    assert node.cluster.get("ResourceSlice", foreign)


def test_slices_are_removed_after_the_driver_has_gone(node: PlayedNode) -> None:
    """must be removed after plugin unregistration
    must be removed if plugin stops after registration
    """
    node.stop()
    eventually(lambda: DRIVER in node.kubelet.dra.wipes, "the kubelet to notice")
    assert node.cluster.list("ResourceSlice")
    node.until(lambda: not node.cluster.list("ResourceSlice"), "the slices to be removed")


def test_slices_stay_if_the_driver_is_back_soon(node: PlayedNode) -> None:
    """must not be removed if plugin restarts quickly enough
    sequential update with pods replacing each other
    """
    before = node.cluster.list("ResourceSlice")
    node.stop()
    eventually(lambda: DRIVER in node.kubelet.dra.wipes, "the kubelet to notice")
    node.clock.advance(29)
    node.start_driver()
    node.claiming("p", "c")
    node.wait_phase("Running", "p")
    assert list(before) == list(node.cluster.list("ResourceSlice"))


# Health


def health(node: PlayedNode) -> list[str]:
    """Return the health of devices in the status of the pod."""
    return [
        one["health"]
        for container in node.make.status("p").get("containerStatuses", ())
        for status in container.get("allocatedResourcesStatus", ())
        for one in status["resources"]
    ]


def test_the_status_of_a_pod_says_the_health_of_its_device(node: PlayedNode) -> None:
    """should reflect device health changes in the Pod's status
    must reflect device health changes in the pod status
    should update health to Unknown when plugin stops and recover upon restart
    """
    node.claiming("p", "c")
    node.wait_phase("Running", "p")
    eventually(lambda: ["Healthy"] == health(node), "Healthy")
    devices = node.plugin.discover()
    node.plugin.set(*(sick(one.id) for one in devices))
    eventually(lambda: ["Unhealthy"] == health(node), "Unhealthy")
    node.plugin.set(*devices)
    eventually(lambda: ["Healthy"] == health(node), "Healthy again")
    node.stop()
    node.until(lambda: ["Unknown"] == health(node), "Unknown")
    node.start_driver()
    node.until(lambda: ["Healthy"] == health(node), "Healthy after the restart")
