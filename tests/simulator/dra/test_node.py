"""A simulated node runs the pods of a simulated cluster, and says what became of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.dra_objects import DRIVER, RESOURCE, Objects
from deviceplugin.apiserver import ApiServer, NotFoundError, UnavailableError
from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin_testing.simulator import (
    Behaviour,
    KubeletConfig,
    ManualClock,
    SimulatedCluster,
    SimulatedNode,
    StubDriver,
    StubError,
    StubPlugin,
)
from patience import eventually

QUIET = KubeletConfig(watch_interval=None, sync_interval=None)
CLAIMS = [{"name": "c", "resourceClaimName": "c"}]
TEMPLATES = [{"name": "c", "resourceClaimTemplateName": "t"}]


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster(controllers=False) as running:
        running.add_node("n1")
        yield running


@pytest.fixture
def make(cluster: SimulatedCluster) -> Objects:
    return Objects(cluster)


@pytest.fixture
def node(root: Path, cluster: SimulatedCluster, clock: ManualClock) -> Iterator[SimulatedNode]:
    api = ApiServer(cluster.url)
    with SimulatedNode(root, api, "n1", interval=None, config=QUIET, clock=clock) as running:
        yield running


@pytest.fixture
def stub(node: SimulatedNode) -> Iterator[StubDriver]:
    """A driver that is connected."""
    kubelet = node.kubelet
    with StubDriver(kubelet.registry_dir, DRIVER, cdi_dir=kubelet.cdi_dirs[0]) as driver:
        kubelet.watch()
        kubelet.wait(lambda: kubelet.dra.connected and not kubelet.dra.wipes)
        yield driver


@pytest.fixture
def devices(stub: StubDriver, make: Objects) -> StubDriver:
    """The driver, whose devices are in slices, and have a class with the name of a resource."""
    make.slice("gary", "gina")
    make.device_class(extendedResourceName=RESOURCE)
    return stub


def settle(cluster: SimulatedCluster, node: SimulatedNode, steps: int = 2) -> None:
    for _ in range(steps):
        cluster.settle()
        node.step()


def with_claim(make: Objects, name: str = "p", claims: Any = CLAIMS) -> dict[str, Any]:
    """Create a pod whose container uses the claim."""
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "c"}]}}
    spec = {"containers": [container], "resourceClaims": claims}
    return make.cluster.create({"kind": "Pod", "metadata": {"name": name}, "spec": spec})


def current(make: Objects, name: str = "p") -> dict[str, Any]:
    """Return the state of the pod's container."""
    (container,) = make.status(name)["containerStatuses"]
    state: dict[str, Any] = container["state"]
    return state


def test_a_pod_with_a_claim_runs_and_ends(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects, devices: StubDriver
) -> None:
    make.claim()
    with_claim(make)
    settle(cluster, node)
    assert ("Running", {"running": {}}) == (make.status()["phase"], current(make))
    assert [["c"]] == devices.prepared
    options = node.kubelet.pod(node.pod("p")).started["main"]
    assert options
    assert {"CLAIM": "c"} == options.envs
    node.finish("p")
    settle(cluster, node)
    assert ("Succeeded", {"terminated": {"exitCode": 0}}) == (make.status()["phase"], current(make))
    assert ([["c"]], []) == (devices.unprepared, make.devices_of("c"))


def test_a_claim_from_a_template_is_the_pods_own(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects, devices: StubDriver
) -> None:
    make.template()
    with_claim(make, claims=TEMPLATES)
    settle(cluster, node)
    (claim,) = cluster.list("ResourceClaim")
    assert [[claim["metadata"]["name"]]] == devices.prepared
    assert {"running": {}} == current(make)


def test_a_limit_is_satisfied_by_a_claim_or_by_a_plugin(
    cluster: SimulatedCluster,
    node: SimulatedNode,
    make: Objects,
    devices: StubDriver,
    clock: ManualClock,
) -> None:
    make.pod("claimed", {RESOURCE: 1})
    settle(cluster, node)
    assert {"running": {}} == current(make, "claimed")
    with StubPlugin(node.kubelet.plugin_dir, RESOURCE, ["a", "b"]) as plugin:
        node.kubelet.wait_for(RESOURCE, {"a", "b"})
        clock.advance(10)
        settle(cluster, node)
        found = cluster.get("Node", "n1")
        assert found
        assert {"capacity": {RESOURCE: "2"}, "allocatable": {RESOURCE: "2"}} == found["status"]
        make.pod("allocated", {RESOURCE: 1})
        settle(cluster, node)
        assert {"running": {}} == current(make, "allocated")
        assert 1 == len(plugin.allocated) == len(devices.prepared)


def test_what_is_not_prepared_waits_and_runs_later(
    cluster: SimulatedCluster,
    node: SimulatedNode,
    make: Objects,
    devices: StubDriver,
    clock: ManualClock,
) -> None:
    devices.failing["NodePrepareResources"] = StubError("not yet")
    make.claim()
    with_claim(make)
    settle(cluster, node)
    waiting = current(make)["waiting"]
    assert "ContainerCreating" == waiting["reason"]
    assert "Failed to prepare dynamic resources" in waiting["message"]
    devices.failing.clear()
    clock.advance(90)
    settle(cluster, node)
    assert {"running": {}} == current(make)


def test_a_deleted_pod_is_torn_down_and_then_gone(
    cluster: SimulatedCluster,
    node: SimulatedNode,
    make: Objects,
    devices: StubDriver,
    clock: ManualClock,
) -> None:
    make.claim()
    with_claim(make)
    settle(cluster, node)
    devices.on_unprepare = lambda _claim: pb.NodeUnprepareResourceResponse(error="busy")
    cluster.delete("Pod", "p")
    settle(cluster, node)
    assert "Running" == make.status()["phase"]
    devices.on_unprepare = lambda _claim: pb.NodeUnprepareResourceResponse()
    clock.advance(15)
    settle(cluster, node, 3)
    assert None is cluster.get("Pod", "p")
    with pytest.raises(LookupError, match="the node n1 has no pod default/p"):
        node.pod("p")


def test_a_pod_that_is_removed_by_force_is_forgotten(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects, devices: StubDriver
) -> None:
    make.claim()
    with_claim(make)
    settle(cluster, node)
    cluster.delete("Pod", "p", grace=0)
    settle(cluster, node)
    assert [["c"]] == devices.unprepared
    assert [] == node.kubelet.pods


def test_a_pod_that_is_deleted_before_it_is_seen_never_runs(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects, devices: StubDriver
) -> None:
    make.claim()
    with_claim(make)
    cluster.settle()
    cluster.delete("Pod", "p")
    settle(cluster, node)
    assert None is cluster.get("Pod", "p")
    assert [] == devices.prepared
    make.pod("done")
    cluster.settle()
    make.end("done")
    settle(cluster, node)
    assert [] == node.kubelet.pods


def test_a_rejected_pod_has_failed(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects
) -> None:
    cluster.change("Node", "n1", lambda draft: draft["status"].update(allocatable={RESOURCE: "1"}))
    node.kubelet.node.allocatable[RESOURCE] = 0
    make.pod(limits={RESOURCE: 1})
    settle(cluster, node)
    assert ("Failed", f"OutOf{RESOURCE}") == (make.status()["phase"], make.status()["reason"])


def test_health_is_in_the_status_of_the_pod(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects, devices: StubDriver
) -> None:
    make.claim()
    with_claim(make)
    settle(cluster, node)
    devices.report({("pool", "device"): "Unhealthy"}, message="too hot")
    node.kubelet.wait(node.kubelet.take_pokes)
    node.step()
    (container,) = make.status()["containerStatuses"]
    (entry,) = container["allocatedResourcesStatus"]
    (health,) = entry["resources"]
    assert ("claim:c", "Unhealthy", "too hot") == (
        entry["name"],
        health["health"],
        health["message"],
    )


def test_health_of_a_plugins_devices_is_there_too(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects, clock: ManualClock
) -> None:
    with StubPlugin(node.kubelet.plugin_dir, RESOURCE, ["a"]):
        node.kubelet.wait_for(RESOURCE, {"a"})
        clock.advance(10)
        node.step()
        make.pod(limits={RESOURCE: 1})
        settle(cluster, node)
        (container,) = make.status()["containerStatuses"]
        listed = [{"resourceID": "a", "health": "Healthy"}]
        expected = [{"name": RESOURCE, "resources": listed}]
        assert expected == container["allocatedResourcesStatus"]


def test_the_kubelet_deletes_the_slices_of_its_node_only(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects
) -> None:
    cluster.add_node("n2")
    make.slice("a")
    make.slice("b", nodeName="n2")
    node.kubelet.restart()
    eventually(lambda: [one["spec"]["nodeName"] for one in cluster.list("ResourceSlice")] == ["n2"])


@pytest.mark.usefixtures("devices")
def test_a_server_that_is_away_is_waited_for(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects
) -> None:
    make.claim()
    with_claim(make)
    cluster.settle()
    cluster.go_away()
    node.step()
    assert node.problem
    cluster.come_back()
    settle(cluster, node)
    assert "" == node.problem
    assert {"running": {}} == current(make)


class Failing:
    """An API server whose merge patches fail."""

    def __init__(self, api: ApiServer, error: Exception) -> None:
        self._api = api
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def merge(self, _path: str, _changes: object) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "problem"),
    [(NotFoundError("gone", status=404), ""), (UnavailableError("busy", status=503), "busy")],
)
def test_a_pod_that_is_gone_when_it_is_reported_is_not_a_problem(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects, error: Exception, problem: str
) -> None:
    node.step()
    node._api = Failing(node._api, error)
    for name in "pq":
        make.pod(name)
    settle(cluster, node)
    assert problem == node.problem
    assert {"main"} == node.kubelet.pod(node.pod("q")).running


@pytest.mark.usefixtures("devices")
def test_pods_run_on_while_the_kubelet_is_down(
    cluster: SimulatedCluster, node: SimulatedNode, make: Objects
) -> None:
    make.claim()
    with_claim(make)
    settle(cluster, node)
    node.kubelet.stop()
    node.step()
    cluster.delete("Pod", "p")
    settle(cluster, node)
    assert {"main"} == node.kubelet.pod(node.pod("p")).running
    node.kubelet.start()
    node.kubelet.watch()
    node.kubelet.wait(lambda: node.kubelet.dra.connected)
    settle(cluster, node, 4)
    assert None is cluster.get("Pod", "p")


def test_a_kubelet_that_crashes_stays_down(
    root: Path, cluster: SimulatedCluster, make: Objects, clock: ManualClock
) -> None:
    api = ApiServer(cluster.url)
    behaviour = Behaviour.v1_36()
    with SimulatedNode(
        root, api, "n1", interval=None, config=QUIET, clock=clock, behaviour=behaviour
    ) as node:
        plugin = StubPlugin(node.kubelet.plugin_dir, RESOURCE, ["a"])

        def forget(ids: list[str]) -> Any:
            received = node.kubelet.lists_received(RESOURCE)
            plugin.update([])
            node.kubelet.wait(lambda: node.kubelet.lists_received(RESOURCE) > received)
            return answer(ids)

        answer, plugin.on_allocate = plugin.on_allocate, forget
        with plugin:
            node.kubelet.wait_for(RESOURCE, {"a"})
            clock.advance(10)
            node.step()
            make.pod(limits={RESOURCE: 1})
            settle(cluster, node)
            assert 1 == len(node.kubelet.crashes)
            assert not node.kubelet.running


def test_all_of_this_happens_by_itself(
    cluster: SimulatedCluster, root: Path, make: Objects
) -> None:
    api = ApiServer(cluster.url)
    config = KubeletConfig(watch_interval=0.02, sync_interval=0.02)
    with (
        SimulatedNode(root, api, "n1", interval=0.02, config=config) as node,
        StubDriver(node.kubelet.registry_dir, DRIVER, cdi_dir=node.kubelet.cdi_dirs[0]),
    ):
        node.kubelet.wait(lambda: node.kubelet.dra.connected and not node.kubelet.dra.wipes)
        make.slice("gary")
        make.device_class()
        make.claim()
        with_claim(make)
        make.cluster.settle()
        eventually(lambda: make.status()["phase"] == "Running")


def test_a_node_that_was_never_started_can_be_stopped(
    cluster: SimulatedCluster, root: Path
) -> None:
    node = SimulatedNode(root, ApiServer(cluster.url), "n1", config=QUIET)
    node.stop()
    assert not node.kubelet.running
