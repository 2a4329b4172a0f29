"""The simulated scheduler gives each device to one claim, in the order of the real one."""

from typing import Any

import pytest

from cluster.dra_objects import DRIVER, RESOURCE, Simulated

POOL = f"n1/{RESOURCE}"


def test_a_claim_gets_the_first_device_and_its_pod_the_node(make: Simulated) -> None:
    make.usual("gary", "gina")
    make.settle()
    found = make.get("ResourceClaim", "c")
    result = {"request": "r", "driver": DRIVER, "pool": POOL, "device": "gary"}
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    user = {"resource": "pods", "name": "p", "uid": make.get("Pod", "p")["metadata"]["uid"]}
    assert {
        "allocation": {
            "allocationTimestamp": "2027-01-15T08:00:00Z",
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [user],
    } == found["status"]
    assert ["resource.kubernetes.io/delete-protection"] == found["metadata"]["finalizers"]
    assert [{"type": "PodScheduled", "status": "True"}] == make.status()["conditions"]
    assert ["p"] == [one["metadata"]["name"] for one in make.cluster.pods_on("n1")]


ONE = {"value": "1"}


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n2"},
        {"pool": {"name": POOL, "generation": 1, "resourceSliceCount": 2}},
        {"devices": [{"name": "a", "bindingConditions": ["x"], "bindingFailureConditions": ["y"]}]},
        {
            "devices": [
                {"name": "b"},
                {"name": "a", "consumesCounters": [{"counterSet": "s", "counters": {"x": ONE}}]},
            ]
        },
        {"devices": [{"name": "a", "taints": [{"key": "x", "effect": "NoSchedule"}]}]},
        {"devices": [{"name": "a", "taints": [{"key": "x", "effect": "NoExecute"}]}]},
    ],
)
def test_such_devices_are_not_offered(make: Simulated, spec: dict[str, Any]) -> None:
    make.usual("a", **spec)
    make.settle()
    assert [] == make.devices_of("c")


def test_a_pool_with_a_device_twice_offers_nothing(make: Simulated) -> None:
    pool = {"name": POOL, "generation": 1, "resourceSliceCount": 2}
    make.slice("a", pool=pool)
    make.usual("a", pool=pool)
    make.settle()
    assert [] == make.devices_of("c")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "x", "operator": "Exists"}, ["a"]),
        ({"key": "x", "value": "held"}, ["a"]),
        ({"operator": "Exists", "effect": "NoSchedule"}, ["a"]),
        ({"key": "x", "value": "other"}, []),
        ({"key": "y", "operator": "Exists"}, []),
        ({"operator": "Exists", "effect": "NoExecute"}, []),
    ],
)
def test_a_toleration_makes_a_tainted_device_fit(
    make: Simulated, toleration: dict[str, str], expected: list[str]
) -> None:
    taint = {"key": "x", "value": "held", "effect": "NoSchedule"}
    make.usual(devices=[{"name": "a", "taints": [taint]}], exactly={"tolerations": [toleration]})
    make.settle()
    assert expected == make.devices_of("c")


# Requests


def test_all_devices_are_allocated_if_all_are_free(make: Simulated) -> None:
    make.usual("a", "b", exactly={"allocationMode": "All"})
    make.settle()
    make.claim("later", allocationMode="All")
    make.pod_with("later", "q")
    make.settle()
    assert [["a", "b"], []] == [make.devices_of("c"), make.devices_of("later")]


def test_all_devices_are_not_allocated_while_a_pool_is_incomplete(make: Simulated) -> None:
    make.usual(
        "a",
        pool={"name": POOL, "generation": 1, "resourceSliceCount": 2},
        exactly={"allocationMode": "All"},
    )
    make.settle()
    assert "incomplete pools" in make.why_not()


# Selectors


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f'device.driver == "{DRIVER}"', ["a"]),
        ('device.driver == "other"', []),
        (f'device.attributes["{DRIVER}"].size == 3', ["a"]),
        (f"device.attributes['{DRIVER}'].size == 4", []),
        (f'device.attributes["{DRIVER}"].size == "3"', []),
        ('device.attributes["example.com"].fast == true', ["a"]),
        (f'device.driver == "{DRIVER}" && device.attributes["example.com"].fast == false', []),
    ],
)
def test_a_selector_chooses_devices(make: Simulated, expression: str, expected: list[str]) -> None:
    attributes = {"size": {"int": 3}, "example.com/fast": {"bool": True}}
    selector = {"cel": {"expression": expression}}
    make.usual(devices=[{"name": "a", "attributes": attributes}], exactly={"selectors": [selector]})
    make.settle()
    assert expected == make.devices_of("c")


def test_a_missing_attribute_is_an_error_of_the_claim(make: Simulated) -> None:
    make.usual(
        "a", exactly={"selectors": [{"cel": {"expression": 'device.attributes["x"].y == 1'}}]}
    )
    make.settle()
    why = "0/1 nodes are available: 1 cannot allocate all claims: no such key: y."
    assert why == make.why_not()


# Pods and nodes


def test_a_pod_waits_for_its_claim_and_its_class(make: Simulated) -> None:
    make.slice("a")
    make.pod_with("c")
    make.pod("q", resourceClaims=[{"name": "d", "resourceClaimTemplateName": "none"}])
    make.settle()
    assert 'resourceclaim "c" not found' == make.why_not()
    assert "waiting for resource claim d to be created" == make.why_not("q")
    make.claim()
    make.settle()
    assert "device class gopher does not exist" in make.why_not()
    make.device_class()
    make.settle()
    assert ["a"] == make.devices_of("c")


def test_a_pod_does_not_get_a_claim_that_is_being_deleted(make: Simulated) -> None:
    make.claim()
    make.cluster.change("ResourceClaim", "c", lambda x: x["metadata"].update(finalizers=["a.b/c"]))
    make.cluster.delete("ResourceClaim", "c")
    make.pod_with("c")
    make.settle()
    assert 'resourceclaim "c" is being deleted' == make.why_not()


def test_a_claim_that_is_allocated_pins_its_pods_to_the_node(make: Simulated) -> None:
    make.cluster.add_node("n0", labels={"zone": "a"})
    make.usual("a")
    make.settle()
    make.pod_with("c", "q", nodeSelector={"zone": "a"})
    make.settle()
    assert "" == make.node_of("q")
    assert "resourceclaim not available on the node" in make.why_not("q")


@pytest.mark.parametrize(
    ("node", "pod", "reason"),
    [
        ({}, {"nodeSelector": {"zone": "b"}}, "didn't match Pod's node affinity/selector"),
        ({"unschedulable": True}, {}, "untolerated taint {node.kubernetes.io/unschedulable: }"),
        ({"taints": [{"key": "x", "value": "y", "effect": "NoSchedule"}]}, {}, "taint {x: y}"),
    ],
)
def test_a_pod_does_not_go_to_such_a_node(
    make: Simulated, node: Any, pod: Any, reason: str
) -> None:
    make.cluster.change("Node", "n1", lambda draft: draft["spec"].update(node))
    make.pod(**pod)
    make.settle()
    assert reason in make.why_not()
    make.cluster.change("Node", "n1", lambda draft: draft.update(spec={}))
    make.pod("q")
    make.settle()
    assert "n1" == make.node_of("q")


# Extended resources


def test_a_pod_that_asks_for_zero_needs_no_claim(make: Simulated) -> None:
    make.device_class(extendedResourceName=RESOURCE)
    make.pod(limits={RESOURCE: 0})
    make.settle()
    assert "n1" == make.node_of("p")
    assert [] == make.cluster.list("ResourceClaim")


def test_a_class_has_an_implicit_resource_name(make: Simulated) -> None:
    make.slice("a")
    make.device_class()
    make.pod(limits={"deviceclass.resource.kubernetes.io/gopher": 1})
    make.pod("q", limits={"deviceclass.resource.kubernetes.io/other": 1})
    make.settle()
    assert ["n1", ""] == [make.node_of("p"), make.node_of("q")]


def test_of_two_classes_for_a_resource_the_newest_counts(make: Simulated) -> None:
    make.slice("a")
    make.device_class("z", extendedResourceName=RESOURCE)
    make.time.advance(60)
    for name in ("c", "b"):
        make.device_class(name, extendedResourceName=RESOURCE)
    make.pod(limits={RESOURCE: 1})
    make.settle()
    claim = make.cluster.list("ResourceClaim")[0]
    assert "b" == claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"]


def test_containers_that_run_one_after_the_other_count_once(make: Simulated) -> None:
    def container(name: str, count: int, **fields: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {RESOURCE: count}}, **fields}

    make.cluster.change("Node", "n1", lambda x: x["status"].update(allocatable={RESOURCE: "3"}))
    inits = [container("i", 2), container("s", 1, restartPolicy="Always")]
    spec = {"initContainers": inits, "containers": [container("a", 1), container("b", 1)]}
    make.cluster.create({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    make.settle()
    assert "n1" == make.node_of()


def test_a_search_without_an_end_is_given_up(make: Simulated) -> None:
    make.usual(*(f"d{index}" for index in range(31)), exactly={"count": 32})
    make.settle()
    assert "timed out trying to allocate devices" in make.why_not()
