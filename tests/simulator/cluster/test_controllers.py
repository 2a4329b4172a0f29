"""Claims come and go with their pods, slices with their node, and NoExecute evicts."""

from typing import Any

import pytest

from cluster.dra_objects import RESOURCE, Simulated

TEMPLATE = [{"name": "d", "resourceClaimTemplateName": "t"}]


def claims(make: Simulated) -> list[str]:
    return [one["metadata"]["name"] for one in make.cluster.list("ResourceClaim")]


def test_a_claim_in_use_is_deleted_once_it_is_not(make: Simulated) -> None:
    make.usual("a")
    make.settle()
    make.cluster.delete("ResourceClaim", "c")
    make.settle()
    assert ["c"] == claims(make)
    make.end()
    assert [] == claims(make)


def test_a_claim_that_is_not_used_and_deleted_loses_its_allocation(make: Simulated) -> None:
    make.claim()

    def allocate(draft: dict[str, Any]) -> None:
        draft["status"] = {"allocation": {"devices": {"results": []}}}
        draft["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection", "a.b/c"]

    make.cluster.change("ResourceClaim", "c", allocate)
    make.settle()
    assert "allocation" in make.get("ResourceClaim", "c")["status"]
    make.cluster.delete("ResourceClaim", "c")
    make.settle()
    found = make.get("ResourceClaim", "c")
    assert (["a.b/c"], {}) == (found["metadata"]["finalizers"], found["status"])


def test_a_pod_that_was_deleted_before_it_ran_frees_its_claims(make: Simulated) -> None:
    make.pod(resourceClaims=TEMPLATE)
    make.settle()
    assert [] == claims(make)
    make.template()  # for which the claim waits
    make.settle()
    assert 1 == len(claims(make))
    make.cluster.delete("Pod", "p")
    make.settle()
    assert ([], []) == (claims(make), make.cluster.list("Pod"))


def test_a_pod_on_a_node_stays_until_its_kubelet_removes_it(make: Simulated) -> None:
    make.usual("a")
    make.settle()
    for _ in range(2):
        make.cluster.delete("Pod", "p")
    make.settle()
    found = make.get("Pod", "p")
    assert (30, 2) == (
        found["metadata"]["deletionGracePeriodSeconds"],
        found["metadata"]["generation"] - 1,
    )
    assert ["a"] == make.devices_of("c")
    make.cluster.delete("Pod", "p", grace=0)
    make.settle()
    assert ([], []) == (make.cluster.list("Pod"), make.devices_of("c"))


def test_slices_go_with_their_node(make: Simulated) -> None:
    node = make.get("Node", "n1")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"]}
    make.slice("a", metadata={"name": "owned", "ownerReferences": [owner]})
    make.slice("b", metadata={"name": "other"})
    make.settle()
    assert 2 == len(make.cluster.list("ResourceSlice"))
    make.cluster.delete("Node", "n1")
    make.cluster.add_node("n1")
    make.settle()
    (left,) = make.cluster.list("ResourceSlice")
    assert "other" == left["metadata"]["name"]


def test_controllers_that_never_rest_are_an_error(make: Simulated) -> None:
    make.cluster.add_node("n2")

    def count() -> None:
        make.cluster.change("Node", "n2", lambda x: x["spec"].update(n=x["spec"].get("n", 0) + 1))

    make.cluster._steps = (*make.cluster._steps, count)
    with pytest.raises(RuntimeError, match="do not come to rest in 100 steps"):
        make.settle()


# Eviction


def taint(make: Simulated, effect: str) -> None:
    (found,) = make.cluster.list("ResourceSlice")
    one = {"key": "x", "effect": effect, "timeAdded": "2027-01-15T08:00:00Z"}
    make.cluster.change(
        "ResourceSlice",
        found["metadata"]["name"],
        lambda draft: draft["spec"]["devices"][0].update(taints=[one]),
    )
    make.settle()


def is_leaving(make: Simulated, name: str = "p") -> bool:
    found = make.cluster.get("Pod", name)
    return found is not None and "deletionTimestamp" in found["metadata"]


def run(make: Simulated, **exactly: Any) -> None:
    make.usual("a", "b", exactly=exactly)
    make.pod("other")
    make.settle()


EXISTS = {"key": "x", "operator": "Exists"}


@pytest.mark.parametrize(
    ("tolerations", "leaving"),
    [
        ([], [True, True, True]),
        ([EXISTS], [False, False, False]),
        ([{**EXISTS, "tolerationSeconds": 60}], [False, False, True]),
    ],
)
def test_a_pod_is_evicted_from_a_device_whose_taint_it_does_not_tolerate_or_no_longer(
    make: Simulated, tolerations: list[dict[str, Any]], leaving: list[bool]
) -> None:
    run(make, tolerations=[*tolerations, {"key": "y", "operator": "Exists"}])
    taint(make, "NoSchedule")
    assert not is_leaving(make)
    taint(make, "NoExecute")
    seen = []
    for seconds in (0, 59, 1):
        make.time.advance(seconds)
        make.settle()
        seen.append(is_leaving(make))
    assert leaving == seen
    assert not is_leaving(make, "other")


def test_controllers_run_by_themselves() -> None:
    with Simulated(controllers=True) as make:
        make.slice("a")
        make.device_class(extendedResourceName=RESOURCE)
        make.pod(limits={RESOURCE: 1})
        assert make.cluster.wait_for(lambda: make.node_of() == "n1")
        assert not make.cluster.wait_for(lambda: make.node_of() == "n2", 0.01)
