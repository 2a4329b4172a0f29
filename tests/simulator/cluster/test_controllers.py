"""Claims come and go with their pods, slices with their node, and NoExecute evicts."""

from typing import Any

import pytest

from cluster.dra_objects import RESOURCE, ManualTime, Objects
from deviceplugin_testing.simulator import SimulatedCluster

TEMPLATE = [{"name": "d", "resourceClaimTemplateName": "t"}]


def claims(cluster: SimulatedCluster) -> list[str]:
    return [one["metadata"]["name"] for one in cluster.list("ResourceClaim")]


def test_a_claim_is_made_from_the_template_and_goes_with_the_pod(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("a")
    make.device_class()
    make.template(labels={"x": "y"}, annotations={"n": "m"})
    make.pod(resourceClaims=TEMPLATE)
    cluster.settle()
    (claim,) = cluster.list("ResourceClaim")
    metadata = claim["metadata"]
    assert metadata["name"].startswith("p-d-")
    assert {"x": "y"} == metadata["labels"]
    assert {"n": "m", "resource.kubernetes.io/pod-claim-name": "d"} == metadata["annotations"]
    status = {"name": "d", "resourceClaimName": metadata["name"]}
    assert [status] == make.status()["resourceClaimStatuses"]
    assert "n1" == make.node_of()
    make.end()
    assert [] == claims(cluster)


def test_the_claim_of_a_template_that_comes_later_is_made_then(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.pod(resourceClaims=TEMPLATE)
    cluster.settle()
    assert [] == claims(cluster)
    make.template()
    cluster.settle()
    assert 1 == len(claims(cluster))


def test_the_devices_of_a_claim_are_free_once_no_pod_uses_it(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("a")
    make.device_class()
    make.claim()
    make.pod_with("c", "p")
    make.pod_with("c", "q")
    cluster.settle()
    make.end("p")
    assert ["a"] == make.devices_of("c")
    make.end("q", "Failed")
    assert [] == make.devices_of("c")
    found = cluster.get("ResourceClaim", "c")
    assert found is not None
    assert "finalizers" not in found["metadata"]


def test_a_claim_in_use_is_deleted_once_it_is_not(cluster: SimulatedCluster, make: Objects) -> None:
    make.slice("a")
    make.device_class()
    make.claim()
    make.pod_with("c")
    cluster.settle()
    cluster.delete("ResourceClaim", "c")
    cluster.settle()
    assert ["c"] == claims(cluster)
    make.end()
    assert [] == claims(cluster)


def test_a_claim_that_is_not_used_and_deleted_loses_its_allocation(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.claim()

    def allocate(draft: dict[str, Any]) -> None:
        draft["status"] = {"allocation": {"devices": {"results": []}}}
        draft["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection", "a.b/c"]

    cluster.change("ResourceClaim", "c", allocate)
    cluster.settle()
    cluster.delete("ResourceClaim", "c")
    cluster.settle()
    found = cluster.get("ResourceClaim", "c")
    assert found is not None
    assert (["a.b/c"], {}) == (found["metadata"]["finalizers"], found["status"])


def test_a_pod_that_was_deleted_before_it_ran_frees_its_claims(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.template()
    make.pod(resourceClaims=TEMPLATE)
    cluster.settle()
    cluster.delete("Pod", "p")
    cluster.settle()
    assert ([], []) == (claims(cluster), cluster.list("Pod"))


def test_a_pod_on_a_node_stays_until_its_kubelet_removes_it(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("a")
    make.device_class()
    make.claim()
    make.pod_with("c")
    cluster.settle()
    for _ in range(2):
        cluster.delete("Pod", "p")
    cluster.settle()
    found = cluster.get("Pod", "p")
    assert found is not None
    assert (30, 2) == (
        found["metadata"]["deletionGracePeriodSeconds"],
        found["metadata"]["generation"] - 1,
    )
    assert ["a"] == make.devices_of("c")
    cluster.delete("Pod", "p", grace=0)
    cluster.settle()
    assert ([], []) == (cluster.list("Pod"), make.devices_of("c"))


def test_slices_go_with_their_node(cluster: SimulatedCluster, make: Objects) -> None:
    node = cluster.get("Node", "n1")
    assert node is not None
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"]}
    found = make.slice("a")
    made = {"metadata": {"ownerReferences": [owner]}}
    cluster.change(
        "ResourceSlice", found["metadata"]["name"], lambda x: x["metadata"].update(made["metadata"])
    )
    make.slice("b")
    cluster.settle()
    assert 2 == len(cluster.list("ResourceSlice"))
    cluster.delete("Node", "n1")
    cluster.add_node("n1")
    cluster.settle()
    assert ["b"] == [one["spec"]["devices"][0]["name"] for one in cluster.list("ResourceSlice")]


def test_controllers_that_never_rest_are_an_error(cluster: SimulatedCluster) -> None:
    cluster.add_node("n2")

    def count() -> None:
        cluster.change("Node", "n2", lambda x: x["spec"].update(n=x["spec"].get("n", 0) + 1))

    cluster._steps = (*cluster._steps, count)
    with pytest.raises(RuntimeError, match="do not come to rest in 100 steps"):
        cluster.settle()


# Eviction


def taint(cluster: SimulatedCluster, effect: str, added: str = "2027-01-15T08:00:00Z") -> None:
    (found,) = cluster.list("ResourceSlice")
    one = {"key": "x", "effect": effect, "timeAdded": added}
    cluster.change(
        "ResourceSlice",
        found["metadata"]["name"],
        lambda draft: draft["spec"]["devices"][0].update(taints=[one]),
    )
    cluster.settle()


def is_leaving(cluster: SimulatedCluster, name: str = "p") -> bool:
    found = cluster.get("Pod", name)
    return found is not None and "deletionTimestamp" in found["metadata"]


def run(cluster: SimulatedCluster, make: Objects, **exactly: Any) -> None:
    make.slice("a", "b")
    make.device_class()
    make.claim(**exactly)
    make.pod_with("c")
    make.pod("other")
    cluster.settle()


def test_a_pod_is_evicted_from_a_device_that_says_no_execute(
    cluster: SimulatedCluster, make: Objects
) -> None:
    run(cluster, make)
    taint(cluster, "NoSchedule")
    assert not is_leaving(cluster)
    taint(cluster, "NoExecute")
    assert is_leaving(cluster)
    assert not is_leaving(cluster, "other")
    condition = make.status()["conditions"][-1]
    assert ("DisruptionTarget", "DeletionByDeviceTaintManager") == (
        condition["type"],
        condition["reason"],
    )


def test_a_pod_stays_on_a_device_whose_taint_it_tolerates(
    cluster: SimulatedCluster, make: Objects
) -> None:
    run(cluster, make, tolerations=[{"key": "x", "operator": "Exists"}])
    taint(cluster, "NoExecute")
    assert not is_leaving(cluster)


def test_a_pod_that_tolerates_a_taint_for_a_time_stays_so_long(
    cluster: SimulatedCluster, make: Objects, clock: ManualTime
) -> None:
    toleration = {"key": "x", "operator": "Exists", "tolerationSeconds": 60}
    run(cluster, make, tolerations=[toleration, {"key": "y", "operator": "Exists"}])
    taint(cluster, "NoExecute", "2027-01-15T08:00:00Z")
    clock.now = 1_800_000_000.0 + 59
    cluster.settle()
    assert not is_leaving(cluster)
    clock.now += 1
    cluster.settle()
    assert is_leaving(cluster)


def test_controllers_run_by_themselves() -> None:
    with SimulatedCluster() as cluster:
        make = Objects(cluster)
        cluster.add_node("n1")
        make.slice("a")
        make.device_class(extendedResourceName=RESOURCE)
        make.pod(limits={RESOURCE: 1})
        assert cluster.wait_for(lambda: make.node_of() == "n1")
        assert not cluster.wait_for(lambda: make.node_of() == "n2", 0.01)
