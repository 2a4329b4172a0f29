"""Upstream's scenarios of test/e2e/dra/dra.go that need a driver, with one of ours in its place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from typing_extensions import override

import deviceplugin as dp
from cluster.dra_objects import RESOURCE
from deviceplugin.kit import sharing
from deviceplugin_testing.simulator import StubPlugin
from drivers.played_node import MoodyPlugin, PlayedNode
from scripted_plugin import sick

USES: Final = {"claims": [{"name": "c"}]}
ONE: Final = {"deviceClassName": "gopher"}


def devices(node: PlayedNode, *claims: str) -> list[str]:
    return [device for claim in claims for device in node.make.devices_of(claim)]


def claims_of(node: PlayedNode) -> list[str]:
    return [one["metadata"]["name"] for one in node.cluster.list("ResourceClaim")]


def held(node: PlayedNode, claim: str) -> set[str]:
    """Return what a claim has in its status as long as it is allocated or reserved."""
    status = node.make.get("ResourceClaim", claim).get("status", {})
    return {one for one in ("allocation", "reservedFor") if status.get(one)}


# Pods and claims


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("containers", [("main",), ("one", "two"), ()])
@pytest.mark.parametrize("pods", [("p",), ("p", "q", "r")])
def test_every_container_that_uses_a_claim_gets_its_devices_until_the_pod_ends(
    node: PlayedNode, pods: Sequence[str], containers: Sequence[str], template: bool
) -> None:
    """supports simple pod referencing inline resource claim
    supports inline claim referenced by multiple containers
    supports simple pod referencing external resource claim
    supports external claim referenced by multiple pods
    supports external claim referenced by multiple containers of multiple pods
    supports sharing a claim concurrently
    supports init containers
    supports init containers with external claims
    must call NodePrepareResources even if not used by any container
    deletes generated claims when pod is done
    removes reservation from claim when pod is done
    must deallocate after use
    does not delete generated claims when pod is restarting
    """
    node.make.template()
    source = {"resourceClaimTemplateName": "t"} if template else {"resourceClaimName": "c"}
    made = [{"name": one, "image": "none", "resources": USES} for one in containers]
    made = made or [{"name": "main", "image": "none"}]
    spec = {
        "resourceClaims": [{"name": "c", **source}],
        "initContainers": [{**made[0], "name": "i"}],
    }
    for pod in pods:
        node.claiming(pod, containers=made, **spec)
    node.wait_phase("Running", *pods)
    used = [one for one in claims_of(node) if template == (one != "c")]
    assert used == node.prepared(*used)
    assert len(used) == len({*devices(node, *used)}) == (len(pods) if template else 1)
    for pod in pods:
        assert len(node.held(pod)) == (1 if containers else 0)
        if containers:  # which restart twice
            name, known = containers[0], node.node.pod(pod)
            for _ in range(2):
                node.kubelet.exit_container(known, name)
                assert node.kubelet.start_container(known, name)
        node.end(pod)
    node.wait_phase("Succeeded", *pods)
    node.until(lambda: claims_of(node) == ["c"], "generated claims to be deleted")
    node.until(lambda: not held(node, "c"), "the claim to be free")
    assert [] == node.prepared(*used)


def test_pods_get_the_same_devices_one_after_the_other(node: PlayedNode) -> None:
    """supports reusing resources"""
    names = ["a", "b", "d", "e"]
    for name in names:
        node.make.claim(name, count=3)
        node.claiming(name, name)
    for _ in names:
        node.until(lambda: "Running" in map(node.phase, names), "one of them to run")
        (name,) = (one for one in names if node.phase(one) == "Running")
        node.remove(name)
        node.wait_phase("", name)
    assert 4 == node.plugin.calls.count("allocate") == node.plugin.calls.count("released")


def test_a_pod_whose_claim_is_not_allocated_does_not_run(node: PlayedNode) -> None:
    """must not run a pod if a claim is not ready"""
    node.make.claim("never", count=4)
    node.claiming("p", "never", nodeName="n1")
    node.until(lambda: node.why_pending("p"), "the kubelet to say why")
    assert ("Pending", []) == (node.phase("p"), node.plugin.calls)


def test_a_force_deleted_pod_is_unprepared_before_its_successor_is_prepared(
    node: PlayedNode,
) -> None:
    """must unprepare resources for force-deleted pod
    blocks new pod after force-delete
    """
    node.claiming("p", "c")
    node.wait_phase("Running", "p")
    node.plugin.failing.add("released")
    node.cluster.delete("Pod", "p", grace=0)
    node.cluster.delete("ResourceClaim", "c")
    node.until(lambda: not node.cluster.get("ResourceClaim", "c"), "the claim to be gone")
    node.make.claim("c")
    node.claiming("p", "c")
    node.until(lambda: "old ResourceClaim with same name" in node.why_pending("p"), "the reason")
    assert ["allocate"] == [one for one in node.plugin.calls if one == "allocate"]
    node.plugin.failing.clear()
    node.wait_phase("Running", "p")


def test_an_administrator_has_a_device_beside_its_owner(node: PlayedNode) -> None:
    """DaemonSet with admin access"""
    label = {"resource.kubernetes.io/admin-access": "true"}
    node.cluster.change("Namespace", "default", lambda one: one["metadata"].update(labels=label))
    node.make.claim("all", count=3)
    node.claiming("owner", "all")
    node.wait_phase("Running", "owner")
    node.make.claim("admin", adminAccess=True)
    node.claiming("monitor", "admin")
    node.wait_phase("Running", "monitor")
    assert node.held("monitor") < node.held("owner")
    node.plugin.set(*node.plugin.discover())
    for name in ("monitor", "owner"):  # or two pods have a device
        node.remove(name)
    node.wait_phase("", "monitor", "owner")


def test_a_pod_runs_after_its_driver_has_started(idle: PlayedNode) -> None:
    """runs pod after driver starts"""
    idle.make.claim("c")
    idle.claiming("p", "c")
    idle.until(lambda: idle.make.why_not("p"), "the scheduler to say why not")
    idle.start(protocol="dra")
    idle.wait_phase("Running", "p")


@pytest.mark.parametrize("expression", ["", "false"])
def test_a_pod_runs_once_its_class_fits(node: PlayedNode, expression: str) -> None:
    """retries pod scheduling after creating device class
    retries pod scheduling after updating device class
    """
    if expression:
        node.make.device_class("late", selectors=[{"cel": {"expression": expression}}])
    node.make.claim("l", deviceClassName="late")
    node.claiming("p", "l")
    node.until(lambda: node.make.why_not("p"), "the scheduler to say why not")
    if expression:
        true = [{"cel": {"expression": "true"}}]
        node.cluster.change("DeviceClass", "late", lambda one: one["spec"].update(selectors=true))
    else:
        node.make.device_class("late")
    node.wait_phase("Running", "p")


def test_a_pod_can_have_devices_by_both_protocols(node: PlayedNode) -> None:
    """supports extended resources together with ResourceClaim"""
    limits = {**USES, "limits": {"example.com/other": "1"}}
    with StubPlugin(node.kubelet.plugin_dir, "example.com/other", ["a"]) as plugin:
        node.kubelet.wait_for("example.com/other", {"a"})
        node.until(
            lambda: "example.com/other" in node.make.get("Node", "n1")["status"]["capacity"], "it"
        )
        node.claiming("p", "c", containers=[{"name": "main", "resources": limits}])
        node.wait_phase("Running", "p")
        assert ([["a"]], 1) == (plugin.allocated, len(node.held("p")))


# Requests and parameters


@dataclass(frozen=True)
class GopherParameters:
    word: str = "none"
    """A variable of the container."""


class Talkative(MoodyPlugin):
    """Gives each container the word of its claim as a variable."""

    parameters = GopherParameters

    @override
    def allocate_with(
        self, devices: Sequence[dp.Device], parameters: GopherParameters
    ) -> dp.Allocation:
        return self.allocate(devices) + dp.Allocation(envs={parameters.word: "yes"})


def say(word: str, *requests: str) -> dict[str, Any]:
    body = {"apiVersion": "gopher.example.com/v1", "kind": "GopherParameters", "word": word}
    opaque = {"driver": "gopher.example.com", "parameters": body}
    return {"opaque": opaque, **({"requests": list(requests)} if requests else {})}


def words(node: PlayedNode, container: str) -> set[str]:
    options = node.kubelet.pod(node.node.pod("p")).started[container]
    return set(options.envs) if options else set()


def test_containers_get_the_parameters_of_the_requests_that_they_name(idle: PlayedNode) -> None:
    """must map configs and devices to the right containers
    supports claim and class parameters
    selects the first subrequest that can be satisfied
    uses the config for the selected subrequest
    filters config correctly for multiple devices
    """
    idle.plugin = Talkative()
    idle.start(protocol="dra")
    choices = [{"name": "many", **ONE, "count": 20}, {"name": "few", **ONE, "count": 1}]
    requests: list[dict[str, Any]] = [
        {"name": "x", "firstAvailable": choices},
        {"name": "y", "exactly": ONE},
    ]
    config = [say("x", "x"), say("many", "x/many"), say("few", "x/few"), say("y", "y")]
    idle.make.claim_of("c", requests, config=config)
    uses = {one: {"claims": [{"name": "c", "request": one}]} for one in ("x", "y")}
    whole = {"name": "both", "resources": USES}
    parts = [{"name": one, "resources": used} for one, used in uses.items()]
    idle.claiming("p", "c", containers=[whole, *parts])
    idle.wait_phase("Running", "p")
    results = idle.make.allocation("c")["results"]
    assert ["x/few", "y"] == [one["request"] for one in results]
    found = {one: words(idle, one) for one in ("both", "x", "y")}
    assert {"both": {"few", "y"}, "x": {"few"}, "y": {"y"}} == found


# Shares, taints and extended resources


def test_pods_share_a_device_as_far_as_its_capacity_goes(idle: PlayedNode) -> None:
    """must allow multiple allocations and consume capacity
    must be functional when plugin starts to listen on a service socket after registration with
    the specified allocation results
    """
    idle.plugin.set(*sharing.shares(dp.Device("gary"), 8))
    idle.start(protocol="dra")
    for name, shares in (("a", 4), ("b", 8), ("d", 4)):
        idle.make.claim(name, capacity={"requests": {"shares": str(shares)}})
    for name in ("a", "d", "b"):
        idle.claiming(name, name)
        idle.wait_phase("Running", "a", *(["d"] if name != "a" else []))
    idle.until(lambda: idle.make.why_not("b"), "the scheduler to say why not")
    for name in ("a", "d"):
        idle.remove(name)
    idle.wait_phase("Running", "b")


def test_an_unhealthy_device_is_for_those_who_tolerate_it(node: PlayedNode) -> None:
    """DeviceTaint keeps pod pending
    DeviceToleration enables pod scheduling
    """
    node.plugin.set(*(sick(one.id) for one in node.plugin.discover()))
    node.until(lambda: not node.by_dra(), "the taints")
    node.claiming("p", "c")
    node.until(lambda: node.make.why_not("p"), "the scheduler to say why not")
    node.make.claim("brave", tolerations=[{"operator": "Exists"}])
    node.claiming("q", "brave")
    node.wait_phase("Running", "q")
    assert "Pending" == node.phase("p")


@pytest.mark.parametrize("counts", [(1,), (3,), (1, 1, 1), (1, 2)])
def test_limits_are_satisfied_by_a_claim(node: PlayedNode, counts: Sequence[int]) -> None:
    """must run a pod with extended resource with one container one resource
    must run a pod with extended resource with one container three resources
    must run a pod with extended resource with three containers one resource each
    must run a pod with extended resource with three containers multiple resources each
    """
    made = [
        {"name": f"c{number}", "resources": {"limits": {RESOURCE: str(count)}}}
        for number, count in enumerate(counts)
    ]
    node.claiming("p", containers=made)
    node.wait_phase("Running", "p")
    started = node.kubelet.pod(node.node.pod("p")).started
    found = [{one.host_path for one in options.devices} for options in started.values() if options]
    assert list(counts) == [len(one) for one in found]
    assert sum(counts) == len(node.held("p"))


def test_slices_are_owned_by_the_node_and_name_it(node: PlayedNode) -> None:
    """must manage ResourceSlices"""
    (found,) = node.cluster.list("ResourceSlice")
    (owner,) = found["metadata"]["ownerReferences"]
    uid = node.make.get("Node", "n1")["metadata"]["uid"]
    assert ("v1", "Node", "n1", uid) == tuple(
        owner[key] for key in ("apiVersion", "kind", "name", "uid")
    )
    spec = found["spec"]
    assert ("gopher.example.com", "n1", 1) == (
        spec["driver"],
        spec["nodeName"],
        spec["pool"]["resourceSliceCount"],
    )
    assert ["gary", "gerd", "gina"] == [one["name"] for one in spec["devices"]]
