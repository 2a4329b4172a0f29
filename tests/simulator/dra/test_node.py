"""A simulated node runs the pods of a simulated cluster, and says what became of them."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from typing_extensions import override

from cluster.dra_objects import DRIVER, RESOURCE, Simulated
from deviceplugin.apiserver import ApiServer, NotFoundError, UnavailableError
from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin_testing.simulator import (
    ApiCluster,
    Behaviour,
    ClusterError,
    KubeletConfig,
    ManualClock,
    RefusedError,
    SimulatedKubelet,
    SimulatedNode,
    StubDriver,
    StubError,
    StubPlugin,
)
from kubelets.equipped import during_allocate
from patience import eventually

QUIET = KubeletConfig(watch_interval=None, sync_interval=None)


class World(Simulated):
    """A cluster and its node, whose kubelet is given ``options``."""

    node: SimulatedNode

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__()
        self.clock = ManualClock()
        self._root, self._running = root, ExitStack()
        self._options = {"interval": None, "config": QUIET, "clock": self.clock, **options}

    @override
    def __enter__(self) -> Self:
        super().__enter__()
        self.node = SimulatedNode(self._root, self.api, "n1", **self._options)
        self._running.enter_context(self.node)
        return self

    @override
    def __exit__(self, *_: object) -> None:
        self._running.close()
        super().__exit__()

    @property
    def kubelet(self) -> SimulatedKubelet:
        return self.node.kubelet

    def step(self, steps: int = 2) -> None:
        """Let the controllers and the node do what they have to do."""
        for _ in range(steps):
            self.settle()
            self.node.step()

    def claiming(self, template: str = "") -> None:
        """Create a pod whose container uses the claim c, and that claim without a template."""
        name = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": "c"}
        if not template:
            self.claim()
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "c"}]}}
        self.pod(containers=[container], resourceClaims=[{"name": "c", **name}])

    def state(self, name: str = "p") -> dict[str, Any]:
        """Return the state of the pod's container."""
        (container,) = self.status(name)["containerStatuses"]
        state: dict[str, Any] = container["state"]
        return state

    def driver(self) -> StubDriver:
        return StubDriver(self.kubelet.registry_dir, DRIVER, cdi_dir=self.kubelet.cdi_dirs[0])


@pytest.fixture
def world(root: Path) -> Iterator[World]:
    with World(root) as running:
        yield running


@pytest.fixture
def devices(world: World) -> Iterator[StubDriver]:
    """A driver whose devices are in slices, and have a class with the name of a resource."""
    with world.driver() as driver:
        world.kubelet.watch()
        world.kubelet.wait(lambda: world.kubelet.dra.connected and not world.kubelet.dra.wipes)
        world.slice("gary", "gina")
        world.device_class(extendedResourceName=RESOURCE)
        yield driver


@pytest.mark.parametrize("template", ["", "t"])
def test_a_pod_with_a_claim_runs_and_ends(world: World, devices: StubDriver, template: str) -> None:
    devices.failing["NodePrepareResources"] = StubError("not yet")
    world.template()
    world.claiming(template)
    world.step()
    waiting = world.state()["waiting"]
    assert "ContainerCreating" == waiting["reason"]
    assert "Failed to prepare dynamic resources" in waiting["message"]
    devices.failing.clear()
    world.clock.advance(90)
    world.step()
    assert ("Running", {"running": {}}) == (world.status()["phase"], world.state())
    (claim,) = (one["metadata"]["name"] for one in world.cluster.list("ResourceClaim"))
    assert [[claim]] * 2 == devices.prepared
    options = world.kubelet.pod(world.node.pod("p")).started["main"]
    assert options
    assert {"CLAIM": claim} == options.envs
    world.node.finish("p")
    world.step()
    ended = (world.status()["phase"], world.state())
    assert ("Succeeded", {"terminated": {"exitCode": 0}}) == ended
    assert [[claim]] == devices.unprepared
    left = [one.get("status", {}) for one in world.cluster.list("ResourceClaim")]
    assert ([] if template else [{}]) == left


def test_a_limit_is_satisfied_by_a_claim_or_by_a_plugin(world: World, devices: StubDriver) -> None:
    world.pod("claimed", {RESOURCE: 1})
    world.step()
    assert {"running": {}} == world.state("claimed")
    with StubPlugin(world.kubelet.plugin_dir, RESOURCE, ["a", "b"]) as plugin:
        world.kubelet.wait_for(RESOURCE, {"a", "b"})
        world.clock.advance(10)
        world.step()
        status = world.get("Node", "n1")["status"]
        assert {"capacity": {RESOURCE: "2"}, "allocatable": {RESOURCE: "2"}} == status
        world.pod("allocated", {RESOURCE: 1})
        world.step()
        (container,) = world.status("allocated")["containerStatuses"]
        assert {"running": {}} == container["state"]
        (given,) = plugin.allocated
        listed = [{"resourceID": given[0], "health": "Healthy"}]
        assert [{"name": RESOURCE, "resources": listed}] == container["allocatedResourcesStatus"]
        assert 1 == len(devices.prepared)


def test_a_deleted_pod_is_torn_down_and_then_gone(world: World, devices: StubDriver) -> None:
    world.claiming()
    world.step()
    devices.on_unprepare = lambda _claim: pb.NodeUnprepareResourceResponse(error="busy")
    world.cluster.delete("Pod", "p")
    world.step()
    assert "Running" == world.status()["phase"]
    devices.on_unprepare = lambda _claim: pb.NodeUnprepareResourceResponse()
    world.clock.advance(15)
    world.step(3)
    assert None is world.cluster.get("Pod", "p")
    with pytest.raises(LookupError, match="the node n1 has no pod default/p"):
        world.node.pod("p")
    world.pod_with("c", "forced")
    world.step()
    assert {"running": {}} == world.state("forced")
    world.cluster.delete("Pod", "forced", grace=0)
    world.step()
    assert [] == world.kubelet.pods


def test_a_pod_that_is_deleted_before_it_is_seen_never_runs(
    world: World, devices: StubDriver
) -> None:
    world.claiming()
    world.settle()
    world.cluster.delete("Pod", "p")
    world.step()
    assert None is world.cluster.get("Pod", "p")
    assert [] == devices.prepared
    world.pod("done")
    world.settle()
    world.end("done")
    world.step()
    assert [] == world.kubelet.pods


def test_a_rejected_pod_has_failed(world: World) -> None:
    world.cluster.change(
        "Node", "n1", lambda draft: draft["status"].update(allocatable={RESOURCE: "1"})
    )
    world.kubelet.node.allocatable[RESOURCE] = 0
    world.pod(limits={RESOURCE: 1})
    world.step()
    assert ("Failed", f"OutOf{RESOURCE}") == (world.status()["phase"], world.status()["reason"])


def test_health_is_in_the_status_of_the_pod(world: World, devices: StubDriver) -> None:
    world.claiming()
    world.step()
    devices.report({("pool", "device"): "Unhealthy"}, message="too hot")
    world.kubelet.wait(world.kubelet.take_pokes)
    world.node.step()
    (container,) = world.status()["containerStatuses"]
    (entry,) = container["allocatedResourcesStatus"]
    assert "claim:c" == entry["name"]
    assert {"health": "Unhealthy", "message": "too hot"}.items() <= entry["resources"][0].items()


def test_the_kubelet_deletes_the_slices_of_its_node_only(world: World) -> None:
    world.cluster.add_node("n2")
    world.slice("a")
    world.slice("b", nodeName="n2")
    world.kubelet.restart()
    eventually(
        lambda: [one["spec"]["nodeName"] for one in world.cluster.list("ResourceSlice")] == ["n2"]
    )


def test_an_api_server_is_asked_for_claims_and_slices(world: World) -> None:
    world.kubelet.wait(lambda: not world.kubelet.dra.wipes)  # of its start
    world.slice("a")
    world.slice("b", driver="x.io")
    world.slice("c", nodeName="n2")
    api = ApiCluster(world.api)

    def left_without(node: str, driver: str = "") -> list[str]:
        api.delete_slices(node, driver)
        found = world.cluster.list("ResourceSlice")
        return sorted(one["spec"]["devices"][0]["name"] for one in found)

    assert world.claim() == api.claim("default", "c")
    assert [["a", "c"], ["c"]] == [left_without("n1", "x.io"), left_without("n1")]
    refuse = partial(world.cluster.faults.refuse, matches=lambda wanted: wanted.verb == "delete")
    refuse(RefusedError(404, "NotFound", "deleted meanwhile"), 1)
    assert ["c"] == left_without("n2")
    refuse(RefusedError(500, "InternalError", "no leader"), 1)
    with pytest.raises(ClusterError, match="no leader"):
        left_without("n2")
    world.cluster.go_away()
    with pytest.raises(ClusterError):
        api.claim("default", "c")


@pytest.mark.usefixtures("devices")
def test_a_server_that_is_away_is_waited_for(world: World) -> None:
    world.claiming()
    world.settle()
    world.cluster.go_away()
    world.node.step()
    assert world.node.problem
    world.cluster.come_back()
    world.step()
    assert "" == world.node.problem
    assert {"running": {}} == world.state()


class Failing(ApiServer):
    """Its merge patches fail."""

    def __init__(self, url: str, error: Exception) -> None:
        super().__init__(url)
        self._error = error

    @override
    def merge(self, path: str, changes: dict[str, Any]) -> dict[str, Any]:
        raise self._error


@pytest.mark.parametrize(
    ("error", "problem"),
    [(NotFoundError("gone", status=404), ""), (UnavailableError("busy", status=503), "busy")],
)
def test_a_pod_that_is_gone_when_it_is_reported_is_not_a_problem(
    world: World, error: Exception, problem: str
) -> None:
    world.node.step()
    world.node._api = Failing(world.cluster.url, error)
    for name in "pq":
        world.pod(name)
    world.step()
    assert problem == world.node.problem
    assert {"main"} == world.kubelet.pod(world.node.pod("q")).running


@pytest.mark.usefixtures("devices")
def test_pods_run_on_while_the_kubelet_is_down(world: World) -> None:
    world.claiming()
    world.step()
    world.kubelet.stop()
    world.node.step()
    world.cluster.delete("Pod", "p")
    world.step()
    assert {"main"} == world.kubelet.pod(world.node.pod("p")).running
    world.kubelet.start()
    world.kubelet.watch()
    world.kubelet.wait(lambda: world.kubelet.dra.connected)
    world.step(4)
    assert None is world.cluster.get("Pod", "p")


def test_a_kubelet_that_crashes_stays_down(root: Path) -> None:
    with World(root, behaviour=Behaviour.v1_36()) as world:
        kubelet, plugin = world.kubelet, StubPlugin(world.kubelet.plugin_dir, RESOURCE, ["a"])

        def forget() -> None:
            plugin.update([])
            kubelet.wait(lambda: kubelet.lists_received(RESOURCE) > 1)

        during_allocate(plugin, forget)
        with plugin:
            kubelet.wait_for(RESOURCE, {"a"})
            world.clock.advance(10)
            world.node.step()
            world.pod(limits={RESOURCE: 1})
            world.step()
            assert (1, False) == (len(kubelet.crashes), kubelet.running)


def test_all_of_this_happens_by_itself(root: Path) -> None:
    config = KubeletConfig(watch_interval=0.02, sync_interval=0.02)
    with World(root, interval=0.02, config=config) as world, world.driver():
        world.kubelet.wait(lambda: world.kubelet.dra.connected and not world.kubelet.dra.wipes)
        world.slice("gary")
        world.device_class()
        world.claiming()
        world.settle()
        eventually(lambda: world.status()["phase"] == "Running")


def test_a_node_that_was_never_started_can_be_stopped(root: Path) -> None:
    node = SimulatedNode(root, ApiServer("http://127.0.0.1:1"), "n1", config=QUIET)
    node.stop()
    assert not node.kubelet.running
