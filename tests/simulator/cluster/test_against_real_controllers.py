"""Scenes that end in the simulated cluster as with the real scheduler and controllers.

The endings are recorded in ``endings.json``. Where another release ends a scene otherwise, the test
on the real controllers fails with what then belongs there.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from cluster.dra_api.asking import ENDINGS, normal
from cluster.dra_objects import DRIVER, RESOURCE, Objects
from cluster.real_controllers import RealCluster
from patience import eventually

POOL = f"n1/{RESOURCE}"
RECORDED = json.loads(ENDINGS.read_text(encoding="utf-8"))
Ends = Callable[[Callable[[], Any]], None]
"""Compares what can be seen at the end with what is recorded for the test."""


@pytest.fixture
def make(either: Objects) -> Objects:
    return either


@pytest.fixture
def ends(request: pytest.FixtureRequest, make: Objects) -> Ends:
    expected = RECORDED[request.node.originalname.removeprefix("test_")]

    def check(seen: Callable[[], Any]) -> None:
        def found() -> Any:
            return json.loads(json.dumps(seen()))

        make.settle()
        if isinstance(make.cluster, RealCluster):  # whose controllers take their time
            with suppress(AssertionError):
                eventually(lambda: expected == found(), "the scene", timeout=15, every=0.1)
        assert expected == found()

    return check


def devices(make: Objects, *claims: str) -> Callable[[], Any]:
    """Return what claims have got."""
    return lambda: [make.devices_of(claim) for claim in claims]


def decide(make: Objects, name: str = "p") -> None:
    """Wait until the scheduler has put a pod on a node, or said why not."""
    make.settle_until(lambda: make.node_of(name) or make.why_not(name))


def test_two_devices_are_not_enough_for_three_claims(make: Objects, ends: Ends) -> None:
    make.slice("gary", "gina")
    make.device_class()
    for name in "abc":
        make.claim(name)
        make.pod_with(name, name)
        decide(make, name)
    ends(lambda: (devices(make, *"abc")(), make.why_not("c").partition(". ")[0].rstrip(".")))


def test_five_devices_are_taken_of_two_pools(make: Objects, ends: Ends) -> None:
    make.slice("z1", pool={"name": "z", "generation": 1, "resourceSliceCount": 1})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2}
    for name, names in (("b", ["4", "3"]), ("a", ["2", "1"])):
        make.slice(*names, metadata={"name": name}, pool=pool)
    make.device_class()
    make.claim(count=5)
    make.pod_with("c")
    ends(devices(make, "c"))


def test_a_claim_gets_devices_that_meet_its_constraint(make: Objects, ends: Ends) -> None:
    """Of the devices of one request, only the last is compared: x, y and x are distinct."""
    values = {"a": "x", "b": "y", "c": "y", "d": "x", "e": "y"}
    fields = {name: {"g.io/root": {"string": value}} for name, value in values.items()}
    make.slice(devices=[{"name": name, "attributes": one} for name, one in fields.items()])
    make.device_class()
    for name, rule in (("d", "distinctAttribute"), ("m", "matchAttribute")):
        exactly = {"deviceClassName": "gopher", "count": 2 if name == "m" else 3}
        request = {"name": "r", "exactly": exactly}
        make.claim_of(name, [request], constraints=[{rule: "g.io/root"}])
        make.pod_with(name, name)
        decide(make, name)
    ends(devices(make, "d", "m"))


def test_a_tainted_device_is_left_out(make: Objects, ends: Ends) -> None:
    taint = {"key": "x", "value": "held", "effect": "NoSchedule"}
    make.usual(devices=[{"name": "a", "taints": [taint]}, {"name": "b"}])
    ends(devices(make, "c"))


def test_a_tainted_device_is_taken_by_who_tolerates_it(make: Objects, ends: Ends) -> None:
    taint = {"key": "x", "value": "held", "effect": "NoSchedule"}
    make.usual(
        devices=[{"name": "a", "taints": [taint]}, {"name": "b"}],
        exactly={"tolerations": [{"key": "x", "value": "held"}]},
    )
    ends(lambda: make.allocation("c").get("results"))


def test_an_incomplete_pool_offers_nothing(make: Objects, ends: Ends) -> None:
    make.slice("a", pool={"name": "a", "generation": 1, "resourceSliceCount": 2})
    make.usual("b", pool={"name": "b", "generation": 1, "resourceSliceCount": 1})
    ends(devices(make, "c"))


def test_the_newest_generation_of_a_pool_counts(make: Objects, ends: Ends) -> None:
    for generation in (1, 2):
        pool = {"name": POOL, "generation": generation, "resourceSliceCount": 1}
        make.slice(f"g{generation}", pool=pool)
    make.device_class()
    make.claim()
    make.pod_with("c")
    ends(devices(make, "c"))


def test_the_first_sub_request_that_can_be_satisfied_is(make: Objects, ends: Ends) -> None:
    make.slice("a", "b")
    make.device_class()
    subs = [{"name": f"x{count}", "deviceClassName": "gopher", "count": count} for count in (3, 2)]
    make.claim_of("c", [{"name": "r", "firstAvailable": subs}])
    make.pod_with("c")
    ends(lambda: make.allocation("c"))


def test_all_devices_can_be_asked_for(make: Objects, ends: Ends) -> None:
    make.usual("a", "b", exactly={"allocationMode": "All"})
    ends(devices(make, "c"))


def test_two_requests_are_satisfied_together(make: Objects, ends: Ends) -> None:
    kinds = {"a": {"string": "big"}, "b": {"string": "small"}}
    make.slice(devices=[{"name": one, "attributes": {"kind": kinds[one]}} for one in kinds])
    make.device_class()
    big = {"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "big"'}}
    any_one = {"name": "any", "exactly": {"deviceClassName": "gopher"}}
    only = {"name": "big", "exactly": {"deviceClassName": "gopher", "selectors": [big]}}
    make.claim_of("c", [any_one, only])
    make.pod_with("c")
    ends(devices(make, "c"))


def test_a_selector_of_a_missing_attribute_finds_nothing(make: Objects, ends: Ends) -> None:
    make.slice("a")
    make.device_class(selectors=[{"cel": {"expression": 'device.attributes["x"].y == 1'}}])
    make.claim()
    make.pod_with("c")
    decide(make)
    ends(lambda: (make.devices_of("c"), make.node_of()))


def test_the_class_and_the_claim_have_configurations(make: Objects, ends: Ends) -> None:
    def opaque(value: int) -> dict[str, Any]:
        return {"opaque": {"driver": DRIVER, "parameters": {"a": value}}}

    make.slice("a")
    make.device_class(config=[opaque(1)])
    request = {"name": "r", "exactly": {"deviceClassName": "gopher"}}
    make.claim_of("c", [request], config=[{**opaque(2), "requests": ["r"]}])
    make.pod_with("c")
    ends(lambda: make.allocation("c").get("config"))


def test_a_limit_of_a_pod_becomes_a_claim(make: Objects, ends: Ends) -> None:
    make.slice("a", "b", "c")
    make.device_class(extendedResourceName=RESOURCE)
    make.pod(limits={RESOURCE: 2, "cpu": "1"})

    def seen() -> Any:
        status = make.status().get("extendedResourceClaimStatus")
        if status is None:
            return None
        claim = make.cluster.get("ResourceClaim", status["resourceClaimName"])
        assert claim is not None
        metadata = claim["metadata"]
        return (
            status["requestMappings"],
            metadata["generateName"],
            metadata["annotations"],
            metadata.get("finalizers"),
            [(one["kind"], one["name"], one["controller"]) for one in metadata["ownerReferences"]],
            claim["spec"],
            normal(claim["status"].get("allocation")),
            [one["name"] for one in claim["status"].get("reservedFor", ())],
        )

    ends(seen)


def test_a_device_plugin_goes_before_a_class(make: Objects, ends: Ends) -> None:
    make.allocatable(1)
    make.slice("a")
    make.device_class(extendedResourceName=RESOURCE)
    for name in "pq":
        make.pod(name, limits={RESOURCE: 1})
        decide(make, name)
    ends(lambda: (make.node_of("p"), make.why_not("q").partition(". ")[0].rstrip(".")))


def test_a_pod_with_a_claim_counts_for_the_plugin_too(make: Objects, ends: Ends) -> None:
    make.slice("a", "b")
    make.device_class(extendedResourceName=RESOURCE)
    make.pod("dra", limits={RESOURCE: 1})
    make.settle_until(lambda: make.node_of("dra"))
    make.allocatable(1)
    make.pod("plugin", limits={RESOURCE: 1})
    make.settle_until(lambda: make.why_not("plugin"))
    first = make.node_of("plugin")
    make.end("dra")
    ends(lambda: (first, make.node_of("plugin")))


def test_a_class_has_a_resource_of_its_own(make: Objects, ends: Ends) -> None:
    make.slice("a")
    make.device_class("z", extendedResourceName=RESOURCE)
    make.device_class("y", extendedResourceName=RESOURCE)
    make.pod(limits={"deviceclass.resource.kubernetes.io/z": 1})
    ends(make.node_of)


def test_a_template_makes_a_claim_that_goes_with_its_pod(make: Objects, ends: Ends) -> None:
    make.slice("a")
    make.device_class()
    make.template(labels={"x": "y"}, annotations={"n": "m"})
    make.pod(resourceClaims=[{"name": "d", "resourceClaimTemplateName": "t"}])
    make.settle_until(make.node_of)
    (claim,) = make.cluster.list("ResourceClaim")
    metadata = claim["metadata"]
    name = make.status()["resourceClaimStatuses"][0]
    seen = (
        metadata["generateName"],
        metadata["labels"],
        metadata["annotations"],
        [(one["kind"], one["name"], one["controller"]) for one in metadata["ownerReferences"]],
        name == {"name": "d", "resourceClaimName": metadata["name"]},
    )
    make.end()
    ends(lambda: (seen, [*make.cluster.list("ResourceClaim")]))


def test_a_claim_is_released_with_its_last_pod(make: Objects, ends: Ends) -> None:
    make.slice("a")
    make.device_class()
    make.claim()
    for name in "pq":
        make.pod_with("c", name)
        make.settle_until(partial(make.node_of, name))
        if name == "q":
            make.end("p")
            make.end("q", "Failed")

    def seen() -> Any:
        claim = make.cluster.get("ResourceClaim", "c")
        assert claim is not None
        return claim.get("status", {}), claim["metadata"].get("finalizers")

    ends(seen)


def test_a_pod_is_evicted_from_a_tainted_device(make: Objects, ends: Ends) -> None:
    make.usual("a", "b")
    make.settle_until(make.node_of)
    (found,) = make.cluster.list("ResourceSlice")
    name, added = (found["metadata"][key] for key in ("name", "creationTimestamp"))
    taint = {"key": "x", "effect": "NoExecute", "timeAdded": added}
    make.cluster.change(
        "ResourceSlice", name, lambda one: one["spec"]["devices"][0].update(taints=[taint])
    )

    def seen() -> Any:
        pod = make.cluster.get("Pod", "p")
        if pod is None or "deletionTimestamp" not in pod["metadata"]:
            return None
        conditions = {one["type"]: one for one in pod["status"]["conditions"]}
        condition = conditions["DisruptionTarget"]
        return condition["status"], condition["reason"]

    ends(seen)


COUNTED = {"default": "1", "validRange": {"min": "1", "step": "1"}}


def share_slice(make: Objects, *names: str, count: int = 4, **fields: Any) -> None:
    """Publish devices with shares, and with memory that nobody consumes by default."""
    capacity = {
        "shares": {"value": str(count), "requestPolicy": COUNTED},
        "memory": {"value": "8Gi", "requestPolicy": {"default": "0"}},
    }
    shared = {"allowMultipleAllocations": True, "capacity": capacity, **fields}
    make.slice(devices=[{"name": name, **shared} for name in names])
    make.device_class()


def claim_shares(make: Objects, **asked: str | None) -> None:
    """Create a pod with a claim for each of ``asked``, one after the other."""
    for name, shares in asked.items():
        capacity = {"capacity": {"requests": {"shares": shares}}} if shares else {}
        make.claim(name, **capacity)
        make.pod_with(name, name)
        decide(make, name)


def results(make: Objects, *claims: str) -> Callable[[], Any]:
    return lambda: [normal(make.allocation(claim).get("results")) for claim in claims]


def test_shares_run_out(make: Objects, ends: Ends) -> None:
    share_slice(make, "a")
    claim_shares(make, one=None, three="3", more=None)
    ends(lambda: (results(make, "one", "three")(), make.node_of("more")))


def test_shares_come_back(make: Objects, ends: Ends) -> None:
    share_slice(make, "a", count=2)
    claim_shares(make, both="2", next=None)
    before = make.node_of("next")
    make.end("both")
    make.settle_until(lambda: make.node_of("next"))
    ends(lambda: (before, results(make, "both", "next")()))


def test_shares_come_from_the_next_device(make: Objects, ends: Ends) -> None:
    share_slice(make, "a", "b")
    claim_shares(make, x="3", y="2", z="1", large="5", half="1500m", tiny="0")
    ends(
        lambda: (
            devices(make, "x", "y", "z")(),
            make.node_of("large"),
            results(make, "half", "tiny")(),
        )
    )


def test_two_devices_of_a_request_are_not_shares_of_one(make: Objects, ends: Ends) -> None:
    share_slice(make, "a")
    make.claim(count=2)
    make.pod_with("c")
    decide(make)
    ends(make.node_of)


def test_two_requests_have_shares_of_one_device(make: Objects, ends: Ends) -> None:
    share_slice(make, "a", count=2)
    exactly = {"deviceClassName": "gopher"}
    make.claim_of("c", [{"name": name, "exactly": exactly} for name in ("x", "y")])
    make.pod_with("c")
    decide(make)
    ids = {one["shareID"] for one in make.allocation("c")["results"]}
    ends(lambda: (len(ids), results(make, "c")()))


def test_limits_are_satisfied_by_shares(make: Objects, ends: Ends) -> None:
    share_slice(make, "a", count=2)
    make.device_class("shared", extendedResourceName=RESOURCE)
    for name in "xyz":
        make.pod(name, limits={RESOURCE: 1})
        decide(make, name)
    found = [make.node_of(name) for name in "xyz"]
    # Were it scheduled while all is deleted, the real scheduler would count its share for ever.
    make.cluster.delete("Pod", "z", grace=0)
    ends(lambda: found)


def test_memory_of_a_shared_device_is_consumed(make: Objects, ends: Ends) -> None:
    share_slice(make, "a")
    for name, memory in (("x", "6Gi"), ("y", "1Gi"), ("z", "4Gi")):
        make.claim(name, capacity={"requests": {"memory": memory}})
        make.pod_with(name, name)
        decide(make, name)
    ends(lambda: (results(make, *"xy")(), make.node_of("z")))


def test_a_device_has_the_capacity_that_is_asked_for(make: Objects, ends: Ends) -> None:
    devices_ = [
        {"name": name, "capacity": {"memory": {"value": value}}}
        for name, value in (("small", "1Gi"), ("large", "8Gi"))
    ]
    make.usual(devices=devices_, exactly={"capacity": {"requests": {"memory": "2Gi"}}})
    decide(make)
    ends(results(make, "c"))


def test_a_device_can_be_shared_without_capacity(make: Objects, ends: Ends) -> None:
    make.slice(devices=[{"name": "a", "allowMultipleAllocations": True}])
    make.device_class()
    claim_shares(make, one=None, two=None, more="1")
    ends(lambda: (results(make, "one", "two")(), make.node_of("more")))


def test_shares_are_rounded_up_to_valid_values(make: Objects, ends: Ends) -> None:
    policy = {"default": "1Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}
    capacity = {"shares": {"value": "8Gi", "requestPolicy": policy}}
    make.slice(devices=[{"name": "a", "allowMultipleAllocations": True, "capacity": capacity}])
    make.device_class()
    claim_shares(make, x="1500Mi", y=None, z="5Gi")
    ends(lambda: (results(make, "x", "y")(), make.node_of("z")))
