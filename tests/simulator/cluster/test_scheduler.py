"""The simulated scheduler gives each device to one claim, in the order of the real one."""

from typing import Any

import pytest

from cluster.dra_objects import DRIVER, RESOURCE, Objects
from deviceplugin_testing.simulator import SimulatedCluster

POOL = f"n1/{RESOURCE}"


def test_a_claim_gets_the_first_device_and_its_pod_the_node(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("gary", "gina")
    make.device_class()
    make.claim()
    pod = make.pod_with("c")
    cluster.settle()

    found = cluster.get("ResourceClaim", "c")
    assert found is not None
    result = {"request": "r", "driver": DRIVER, "pool": POOL, "device": "gary"}
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    assert {
        "allocation": {
            "allocationTimestamp": "2027-01-15T08:00:00Z",
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [user],
    } == found["status"]
    assert ["resource.kubernetes.io/delete-protection"] == found["metadata"]["finalizers"]
    assert "n1" == make.node_of()
    assert [{"type": "PodScheduled", "status": "True"}] == make.status()["conditions"]
    assert ["p"] == [one["metadata"]["name"] for one in cluster.pods_on("n1")]


def test_a_container_may_name_the_claim_that_it_uses(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("gary")
    make.device_class()
    make.claim()
    container = {"name": "main", "resources": {"claims": [{"name": "d"}]}}
    make.pod_with("c", containers=[container])
    cluster.settle()
    assert ["gary"] == make.devices_of("c")


def test_two_pods_share_a_claim(cluster: SimulatedCluster, make: Objects) -> None:
    make.slice("gary")
    make.device_class()
    make.claim()
    make.pod_with("c", "a")
    make.pod_with("c", "b")
    cluster.settle()
    found = cluster.get("ResourceClaim", "c")
    assert found is not None
    assert ["a", "b"] == [one["name"] for one in found["status"]["reservedFor"]]
    assert ["n1", "n1"] == [make.node_of("a"), make.node_of("b")]


def test_no_device_is_given_to_two_claims(cluster: SimulatedCluster, make: Objects) -> None:
    make.slice("gary", "gina")
    make.device_class()
    for name in "abc":
        make.claim(name)
        make.pod_with(name, name)
    cluster.settle()
    assert [["gary"], ["gina"], []] == [make.devices_of(name) for name in "abc"]
    assert "0/1 nodes are available: 1 cannot allocate all claims." == make.why_not("c")


def test_devices_are_taken_by_pool_slice_and_place(
    cluster: SimulatedCluster, make: Objects
) -> None:
    pool = {"generation": 1, "resourceSliceCount": 2}
    later = {"name": "z", "generation": 1, "resourceSliceCount": 1}
    make.slice("z1", pool=later)
    for name, devices in (("b", ["4", "3"]), ("a", ["2", "1"])):
        spec: dict[str, Any] = {"driver": DRIVER, "nodeName": "n1", "pool": {**pool, "name": "a"}}
        spec |= {"devices": [{"name": one} for one in devices]}
        cluster.create({"kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec})
    make.device_class()
    make.claim(count=5)
    make.pod_with("c")
    cluster.settle()
    assert ["2", "1", "4", "3", "z1"] == make.devices_of("c")


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n2"},
        {"pool": {"name": POOL, "generation": 1, "resourceSliceCount": 2}},
        {"devices": [{"name": "a", "bindingConditions": ["x"], "bindingFailureConditions": ["y"]}]},
        {"devices": [{"name": "a", "consumesCounters": [{"counterSet": "s", "counters": {}}]}]},
        {"devices": [{"name": "a", "taints": [{"key": "x", "effect": "NoSchedule"}]}]},
        {"devices": [{"name": "a", "taints": [{"key": "x", "effect": "NoExecute"}]}]},
    ],
)
def test_such_devices_are_not_offered(
    cluster: SimulatedCluster, make: Objects, spec: dict[str, Any]
) -> None:
    make.slice("a", **spec)
    make.device_class()
    make.claim()
    make.pod_with("c")
    cluster.settle()
    assert [] == make.devices_of("c")


def test_only_the_highest_generation_counts(cluster: SimulatedCluster, make: Objects) -> None:
    for generation in (1, 2):
        pool = {"name": POOL, "generation": generation, "resourceSliceCount": 1}
        make.slice(f"g{generation}", pool=pool)
    make.device_class()
    make.claim()
    make.pod_with("c")
    cluster.settle()
    assert ["g2"] == make.devices_of("c")


def test_a_pool_with_a_device_twice_offers_nothing(
    cluster: SimulatedCluster, make: Objects
) -> None:
    pool = {"name": POOL, "generation": 1, "resourceSliceCount": 2}
    make.slice("a", pool=pool)
    make.slice("a", pool=pool)
    make.device_class()
    make.claim()
    make.pod_with("c")
    cluster.settle()
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
    cluster: SimulatedCluster, make: Objects, toleration: dict[str, str], expected: list[str]
) -> None:
    taint = {"key": "x", "value": "held", "effect": "NoSchedule"}
    make.slice(devices=[{"name": "a", "taints": [taint]}])
    make.device_class()
    make.claim(tolerations=[toleration])
    make.pod_with("c")
    cluster.settle()
    assert expected == make.devices_of("c")


def test_tolerations_are_in_the_result(cluster: SimulatedCluster, make: Objects) -> None:
    make.slice("a")
    make.device_class()
    make.claim(tolerations=[{"operator": "Exists"}])
    make.pod_with("c")
    cluster.settle()
    found = cluster.get("ResourceClaim", "c")
    assert found is not None
    results = found["status"]["allocation"]["devices"]["results"]
    assert [{"operator": "Exists"}] == results[0]["tolerations"]


# Requests


def test_all_devices_are_allocated_if_all_are_free(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("a", "b")
    make.device_class()
    make.claim("all", allocationMode="All")
    make.pod_with("all", "p")
    cluster.settle()
    assert ["a", "b"] == make.devices_of("all")
    make.claim("all2", allocationMode="All")
    make.pod_with("all2", "q")
    cluster.settle()
    assert [] == make.devices_of("all2")


def test_all_devices_are_not_allocated_while_a_pool_is_incomplete(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("a", pool={"name": POOL, "generation": 1, "resourceSliceCount": 2})
    make.device_class()
    make.claim(allocationMode="All")
    make.pod_with("c")
    cluster.settle()
    assert "incomplete pools" in make.why_not()


def test_requests_of_one_claim_get_different_devices(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("a", "b", "c")
    make.device_class()
    exactly = {"deviceClassName": "gopher"}
    make.claim_of("c", [{"name": one, "exactly": exactly} for one in ("x", "y")])
    make.pod_with("c")
    cluster.settle()
    assert ["a", "b"] == make.devices_of("c")


def test_a_later_request_takes_what_an_earlier_one_leaves(
    cluster: SimulatedCluster, make: Objects
) -> None:
    devices = [
        {"name": name, "attributes": {"kind": {"string": kind}}}
        for name, kind in (("a", "big"), ("b", "small"))
    ]
    make.slice(devices=devices)
    make.device_class()
    big = {"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "big"'}}
    any_one = {"name": "any", "exactly": {"deviceClassName": "gopher"}}
    only = {"name": "big", "exactly": {"deviceClassName": "gopher", "selectors": [big]}}
    make.claim_of("c", [any_one, only])
    make.pod_with("c")
    cluster.settle()
    assert ["b", "a"] == make.devices_of("c")


def test_the_first_sub_request_that_fits_is_taken(cluster: SimulatedCluster, make: Objects) -> None:
    make.slice("a", "b")
    make.device_class()
    subs = [
        {"name": "three", "deviceClassName": "gopher", "count": 3},
        {"name": "two", "deviceClassName": "gopher", "count": 2},
    ]
    make.claim_of("c", [{"name": "r", "firstAvailable": subs}])
    make.pod_with("c")
    cluster.settle()
    found = cluster.get("ResourceClaim", "c")
    assert found is not None
    results = found["status"]["allocation"]["devices"]["results"]
    assert [("r/two", "a"), ("r/two", "b")] == [(one["request"], one["device"]) for one in results]


def test_an_administrator_gets_devices_that_are_in_use(
    cluster: SimulatedCluster, make: Objects
) -> None:
    label = {"resource.kubernetes.io/admin-access": "true"}
    cluster.change("Namespace", "default", lambda draft: draft["metadata"].update(labels=label))
    make.slice("a")
    make.device_class()
    make.claim("admin", adminAccess=True)
    make.claim("user")
    make.pod_with("admin", "p")
    make.pod_with("user", "q")
    cluster.settle()
    assert [["a"], ["a"]] == [make.devices_of("admin"), make.devices_of("user")]
    found = cluster.get("ResourceClaim", "admin")
    assert found is not None
    assert found["status"]["allocation"]["devices"]["results"][0]["adminAccess"]


def test_the_configuration_of_class_and_claim_is_in_the_allocation(
    cluster: SimulatedCluster, make: Objects
) -> None:
    def opaque(value: int) -> dict[str, Any]:
        return {"opaque": {"driver": DRIVER, "parameters": {"a": value}}}

    make.slice("a")
    make.device_class(config=[opaque(1)])
    request = {"name": "r", "exactly": {"deviceClassName": "gopher"}}
    make.claim_of("c", [request], config=[{**opaque(2), "requests": ["r"]}])
    make.pod_with("c")
    cluster.settle()
    found = cluster.get("ResourceClaim", "c")
    assert found is not None
    assert [
        {"source": "FromClass", "requests": ["r"], **opaque(1)},
        {"source": "FromClaim", "requests": ["r"], **opaque(2)},
    ] == found["status"]["allocation"]["devices"]["config"]


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
def test_a_selector_chooses_devices(
    cluster: SimulatedCluster, make: Objects, expression: str, expected: list[str]
) -> None:
    attributes = {"size": {"int": 3}, "example.com/fast": {"bool": True}}
    make.slice(devices=[{"name": "a", "attributes": attributes}])
    make.device_class(selectors=[{"cel": {"expression": expression}}])
    make.claim()
    make.pod_with("c")
    cluster.settle()
    assert expected == make.devices_of("c")


def test_a_missing_attribute_is_an_error_of_the_claim(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("a")
    make.device_class(selectors=[{"cel": {"expression": 'device.attributes["x"].y == 1'}}])
    make.claim()
    make.pod_with("c")
    cluster.settle()
    assert (
        "0/1 nodes are available: 1 cannot allocate all claims: no such key: y." == make.why_not()
    )


def test_a_claim_of_an_unknown_class_waits(cluster: SimulatedCluster, make: Objects) -> None:
    make.slice("a")
    make.claim()
    make.pod_with("c")
    cluster.settle()
    assert "device class gopher does not exist" in make.why_not()
    make.device_class()
    cluster.settle()
    assert ["a"] == make.devices_of("c")


# Pods and nodes


def test_a_pod_waits_for_its_claim(cluster: SimulatedCluster, make: Objects) -> None:
    make.pod_with("c")
    cluster.settle()
    assert 'resourceclaim "c" not found' == make.why_not()
    make.pod("q", resourceClaims=[{"name": "d", "resourceClaimTemplateName": "none"}])
    cluster.settle()
    assert "waiting for resource claim d to be created" == make.why_not("q")


def test_a_pod_does_not_get_a_claim_that_is_being_deleted(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.claim()
    cluster.change("ResourceClaim", "c", lambda x: x["metadata"].update(finalizers=["a.b/c"]))
    cluster.delete("ResourceClaim", "c")
    make.pod_with("c")
    cluster.settle()
    assert 'resourceclaim "c" is being deleted' == make.why_not()


def test_a_claim_that_is_allocated_pins_its_pods_to_the_node(
    cluster: SimulatedCluster, make: Objects
) -> None:
    cluster.add_node("n0", labels={"zone": "a"})
    make.slice("a")
    make.device_class()
    make.claim()
    make.pod_with("c", "p")
    cluster.settle()
    make.pod_with("c", "q", nodeSelector={"zone": "a"})
    cluster.settle()
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
    cluster: SimulatedCluster, make: Objects, node: Any, pod: Any, reason: str
) -> None:
    cluster.change("Node", "n1", lambda draft: draft["spec"].update(node))
    make.pod(**pod)
    cluster.settle()
    assert reason in make.why_not()
    cluster.change("Node", "n1", lambda draft: draft.update(spec={}))
    make.pod("q")
    cluster.settle()
    assert "n1" == make.node_of("q")


# Extended resources


def test_limits_are_satisfied_through_dra_where_nothing_is_allocatable(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("a", "b")
    make.device_class(extendedResourceName=RESOURCE)
    make.pod(limits={RESOURCE: 2, "cpu": "1"})
    cluster.settle()
    status = make.status()["extendedResourceClaimStatus"]
    mapping = {"containerName": "main", "resourceName": RESOURCE}
    assert [{**mapping, "requestName": "container-0-request-1"}] == status["requestMappings"]
    name = status["resourceClaimName"]
    assert name.startswith("p-extended-resources-")
    assert ["a", "b"] == make.devices_of(name)
    claim = cluster.get("ResourceClaim", name)
    assert claim is not None
    annotation = "resource.kubernetes.io/extended-resource-claim"
    assert {annotation: "true"} == claim["metadata"]["annotations"]
    assert "p" == claim["metadata"]["ownerReferences"][0]["name"]


def test_a_pod_that_asks_for_zero_needs_no_claim(cluster: SimulatedCluster, make: Objects) -> None:
    make.device_class(extendedResourceName=RESOURCE)
    make.pod(limits={RESOURCE: 0})
    cluster.settle()
    assert "n1" == make.node_of("p")
    assert "extendedResourceClaimStatus" not in make.status()
    assert [] == cluster.list("ResourceClaim")


def test_limits_are_satisfied_by_the_plugin_where_it_has_devices(
    cluster: SimulatedCluster, make: Objects
) -> None:
    cluster.change("Node", "n1", lambda x: x["status"].update(allocatable={RESOURCE: "1"}))
    make.slice("a")
    make.device_class(extendedResourceName=RESOURCE)
    make.pod("p", limits={RESOURCE: 1})
    make.pod("q", limits={RESOURCE: 1})
    cluster.settle()
    assert "n1" == make.node_of("p")
    assert [] == cluster.list("ResourceClaim")
    assert f"0/1 nodes are available: 1 Insufficient {RESOURCE}." == make.why_not("q")
    make.end("p")
    assert "n1" == make.node_of("q")


def test_a_pod_that_dra_serves_still_counts_as_a_user_of_the_resource(
    cluster: SimulatedCluster, make: Objects
) -> None:
    make.slice("a", "b")
    make.device_class(extendedResourceName=RESOURCE)
    make.pod("dra", limits={RESOURCE: 1})
    cluster.settle()
    cluster.change("Node", "n1", lambda x: x["status"].update(allocatable={RESOURCE: "1"}))
    make.pod("plugin", limits={RESOURCE: 1})
    cluster.settle()
    assert "" == make.node_of("plugin")
    make.end("dra")
    assert "n1" == make.node_of("plugin")


def test_a_class_has_an_implicit_resource_name(cluster: SimulatedCluster, make: Objects) -> None:
    make.slice("a")
    make.device_class()
    make.pod(limits={"deviceclass.resource.kubernetes.io/gopher": 1})
    make.pod("q", limits={"deviceclass.resource.kubernetes.io/other": 1})
    cluster.settle()
    assert ["n1", ""] == [make.node_of("p"), make.node_of("q")]


def test_of_two_classes_for_a_resource_the_newest_counts(
    cluster: SimulatedCluster, make: Objects, clock: Any
) -> None:
    make.slice("a")
    make.device_class("z", extendedResourceName=RESOURCE)
    clock.now += 60
    for name in ("c", "b"):
        make.device_class(name, extendedResourceName=RESOURCE)
    make.pod(limits={RESOURCE: 1})
    cluster.settle()
    claim = cluster.list("ResourceClaim")[0]
    assert "b" == claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"]


def test_containers_that_run_one_after_the_other_count_once(
    cluster: SimulatedCluster, make: Objects
) -> None:
    def container(name: str, count: int, **fields: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {RESOURCE: count}}, **fields}

    cluster.change("Node", "n1", lambda x: x["status"].update(allocatable={RESOURCE: "3"}))
    inits = [container("i", 2), container("s", 1, restartPolicy="Always")]
    spec = {"initContainers": inits, "containers": [container("a", 1), container("b", 1)]}
    cluster.create({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    cluster.settle()
    assert "n1" == make.node_of()
