"""Scenes that end in the simulated cluster as with the real scheduler and controllers.

The endings are recorded in ``endings.json``. Where another release ends a scene otherwise, the test
on the real controllers fails with what then belongs there.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster import real_controllers
from cluster.dra_api.asking import ENDINGS, normal
from cluster.dra_objects import DRIVER, RESOURCE, Objects, Simulated
from cluster.real_controllers import RealCluster
from patience import eventually

MISSING = real_controllers.why_not()
POOL = f"n1/{RESOURCE}"
Scene = Callable[[Objects], Callable[[], Any]]
"""Creates objects, and returns what then can be seen."""


def devices(make: Objects, *claims: str) -> Callable[[], Any]:
    """Return what claims have got."""
    return lambda: [make.devices_of(claim) for claim in claims]


def decide(make: Objects, name: str = "p") -> None:
    """Wait until the scheduler has put a pod on a node, or said why not."""
    make.settle_until(lambda: make.node_of(name) or make.why_not(name))


def two_devices_for_three(make: Objects) -> Callable[[], Any]:
    make.slice("gary", "gina")
    make.device_class()
    for name in "abc":
        make.claim(name)
        make.pod_with(name, name)
        decide(make, name)
    return lambda: (devices(make, *"abc")(), make.why_not("c").partition(". ")[0].rstrip("."))


def five_of_two_pools(make: Objects) -> Callable[[], Any]:
    make.slice("z1", pool={"name": "z", "generation": 1, "resourceSliceCount": 1})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2}
    for name, names in (("b", ["4", "3"]), ("a", ["2", "1"])):
        make.slice(*names, metadata={"name": name}, pool=pool)
    make.device_class()
    make.claim(count=5)
    make.pod_with("c")
    return devices(make, "c")


def tainted(make: Objects) -> Callable[[], Any]:
    taint = {"key": "x", "value": "held", "effect": "NoSchedule"}
    make.usual(devices=[{"name": "a", "taints": [taint]}, {"name": "b"}])
    return devices(make, "c")


def tolerated(make: Objects) -> Callable[[], Any]:
    taint = {"key": "x", "value": "held", "effect": "NoSchedule"}
    make.usual(
        devices=[{"name": "a", "taints": [taint]}, {"name": "b"}],
        exactly={"tolerations": [{"key": "x", "value": "held"}]},
    )
    return lambda: make.allocation("c").get("results")


def incomplete(make: Objects) -> Callable[[], Any]:
    make.slice("a", pool={"name": "a", "generation": 1, "resourceSliceCount": 2})
    make.usual("b", pool={"name": "b", "generation": 1, "resourceSliceCount": 1})
    return devices(make, "c")


def two_generations(make: Objects) -> Callable[[], Any]:
    for generation in (1, 2):
        pool = {"name": POOL, "generation": generation, "resourceSliceCount": 1}
        make.slice(f"g{generation}", pool=pool)
    make.device_class()
    make.claim()
    make.pod_with("c")
    return devices(make, "c")


def sub_requests(make: Objects) -> Callable[[], Any]:
    make.slice("a", "b")
    make.device_class()
    subs = [{"name": f"x{count}", "deviceClassName": "gopher", "count": count} for count in (3, 2)]
    make.claim_of("c", [{"name": "r", "firstAvailable": subs}])
    make.pod_with("c")
    return lambda: make.allocation("c")


def all_devices(make: Objects) -> Callable[[], Any]:
    make.usual("a", "b", exactly={"allocationMode": "All"})
    return devices(make, "c")


def two_requests(make: Objects) -> Callable[[], Any]:
    kinds = {"a": {"string": "big"}, "b": {"string": "small"}}
    make.slice(devices=[{"name": one, "attributes": {"kind": kinds[one]}} for one in kinds])
    make.device_class()
    big = {"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "big"'}}
    any_one = {"name": "any", "exactly": {"deviceClassName": "gopher"}}
    only = {"name": "big", "exactly": {"deviceClassName": "gopher", "selectors": [big]}}
    make.claim_of("c", [any_one, only])
    make.pod_with("c")
    return devices(make, "c")


def no_such_attribute(make: Objects) -> Callable[[], Any]:
    make.slice("a")
    make.device_class(selectors=[{"cel": {"expression": 'device.attributes["x"].y == 1'}}])
    make.claim()
    make.pod_with("c")
    decide(make)
    return lambda: (make.devices_of("c"), make.node_of())


def configured(make: Objects) -> Callable[[], Any]:
    def opaque(value: int) -> dict[str, Any]:
        return {"opaque": {"driver": DRIVER, "parameters": {"a": value}}}

    make.slice("a")
    make.device_class(config=[opaque(1)])
    request = {"name": "r", "exactly": {"deviceClassName": "gopher"}}
    make.claim_of("c", [request], config=[{**opaque(2), "requests": ["r"]}])
    make.pod_with("c")
    return lambda: make.allocation("c").get("config")


def extended(make: Objects) -> Callable[[], Any]:
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

    return seen


def from_the_plugin(make: Objects) -> Callable[[], Any]:
    make.allocatable(1)
    make.slice("a")
    make.device_class(extendedResourceName=RESOURCE)
    for name in "pq":
        make.pod(name, limits={RESOURCE: 1})
        decide(make, name)
    return lambda: (make.node_of("p"), make.why_not("q").partition(". ")[0].rstrip("."))


def counted_twice(make: Objects) -> Callable[[], Any]:
    make.slice("a", "b")
    make.device_class(extendedResourceName=RESOURCE)
    make.pod("dra", limits={RESOURCE: 1})
    make.settle_until(lambda: make.node_of("dra"))
    make.allocatable(1)
    make.pod("plugin", limits={RESOURCE: 1})
    make.settle_until(lambda: make.why_not("plugin"))
    first = make.node_of("plugin")
    make.end("dra")
    return lambda: (first, make.node_of("plugin"))


def of_the_newest_class(make: Objects) -> Callable[[], Any]:
    make.slice("a")
    make.device_class("z", extendedResourceName=RESOURCE)
    make.device_class("y", extendedResourceName=RESOURCE)
    make.pod(limits={"deviceclass.resource.kubernetes.io/z": 1})
    return make.node_of


def templated(make: Objects) -> Callable[[], Any]:
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
    return lambda: (seen, [*make.cluster.list("ResourceClaim")])


def released(make: Objects) -> Callable[[], Any]:
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

    return seen


def evicted(make: Objects) -> Callable[[], Any]:
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

    return seen


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


def shares_run_out(make: Objects) -> Callable[[], Any]:
    share_slice(make, "a")
    claim_shares(make, one=None, three="3", more=None)
    return lambda: (results(make, "one", "three")(), make.node_of("more"))


def shares_come_back(make: Objects) -> Callable[[], Any]:
    share_slice(make, "a", count=2)
    claim_shares(make, both="2", next=None)
    before = make.node_of("next")
    make.end("both")
    make.settle_until(lambda: make.node_of("next"))
    return lambda: (before, results(make, "both", "next")())


def shares_of_the_next_device(make: Objects) -> Callable[[], Any]:
    share_slice(make, "a", "b")
    claim_shares(make, x="3", y="2", z="1", large="5", half="1500m", tiny="0")
    return lambda: (
        devices(make, "x", "y", "z")(),
        make.node_of("large"),
        results(make, "half", "tiny")(),
    )


def two_of_one_request(make: Objects) -> Callable[[], Any]:
    share_slice(make, "a")
    make.claim(count=2)
    make.pod_with("c")
    decide(make)
    return make.node_of


def two_requests_for_shares(make: Objects) -> Callable[[], Any]:
    share_slice(make, "a", count=2)
    exactly = {"deviceClassName": "gopher"}
    make.claim_of("c", [{"name": name, "exactly": exactly} for name in ("x", "y")])
    make.pod_with("c")
    decide(make)
    ids = {one["shareID"] for one in make.allocation("c")["results"]}
    return lambda: (len(ids), results(make, "c")())


def extended_shares(make: Objects) -> Callable[[], Any]:
    share_slice(make, "a", count=2)
    make.device_class("shared", extendedResourceName=RESOURCE)
    for name in "xyz":
        make.pod(name, limits={RESOURCE: 1})
        decide(make, name)
    found = [make.node_of(name) for name in "xyz"]
    # Were it scheduled while all is deleted, the real scheduler would count its share for ever.
    make.cluster.delete("Pod", "z", grace=0)
    return lambda: found


def memory_of_a_shared_device(make: Objects) -> Callable[[], Any]:
    share_slice(make, "a")
    for name, memory in (("x", "6Gi"), ("y", "1Gi"), ("z", "4Gi")):
        make.claim(name, capacity={"requests": {"memory": memory}})
        make.pod_with(name, name)
        decide(make, name)
    return lambda: (results(make, *"xy")(), make.node_of("z"))


def capacity_of_a_device(make: Objects) -> Callable[[], Any]:
    devices_ = [
        {"name": name, "capacity": {"memory": {"value": value}}}
        for name, value in (("small", "1Gi"), ("large", "8Gi"))
    ]
    make.usual(devices=devices_, exactly={"capacity": {"requests": {"memory": "2Gi"}}})
    decide(make)
    return results(make, "c")


def shared_without_capacity(make: Objects) -> Callable[[], Any]:
    make.slice(devices=[{"name": "a", "allowMultipleAllocations": True}])
    make.device_class()
    claim_shares(make, one=None, two=None, more="1")
    return lambda: (results(make, "one", "two")(), make.node_of("more"))


def valid_values(make: Objects) -> Callable[[], Any]:
    policy = {"default": "1Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}
    capacity = {"shares": {"value": "8Gi", "requestPolicy": policy}}
    make.slice(devices=[{"name": "a", "allowMultipleAllocations": True, "capacity": capacity}])
    make.device_class()
    claim_shares(make, x="1500Mi", y=None, z="5Gi")
    return lambda: (results(make, "x", "y")(), make.node_of("z"))


SCENES: Mapping[str, Scene] = {
    scene.__name__: scene
    for scene in (
        two_devices_for_three,
        five_of_two_pools,
        tainted,
        tolerated,
        incomplete,
        two_generations,
        sub_requests,
        all_devices,
        two_requests,
        no_such_attribute,
        configured,
        extended,
        from_the_plugin,
        counted_twice,
        of_the_newest_class,
        templated,
        released,
        evicted,
        shares_run_out,
        shares_come_back,
        shares_of_the_next_device,
        two_of_one_request,
        two_requests_for_shares,
        extended_shares,
        memory_of_a_shared_device,
        capacity_of_a_device,
        shared_without_capacity,
        valid_values,
    )
}


RECORDED = json.loads(ENDINGS.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    root: Path = tmp_path_factory.mktemp("real")
    with real_controllers.running(root) as found:
        yield found


def plain(found: Any) -> Any:
    """Return what was seen as a file has it."""
    return json.loads(json.dumps(found))


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_ends_as_recorded(make: Simulated, name: str) -> None:
    seen = SCENES[name](make)
    make.settle()
    assert RECORDED[name] == plain(seen())


def test_every_recorded_ending_is_of_a_scene() -> None:
    assert list(SCENES) == list(RECORDED)


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")
@pytest.mark.xdist_group("real-api-server")
@pytest.mark.parametrize("name", SCENES)
def test_a_scene_ends_so_with_the_real_controllers(real: RealCluster, name: str) -> None:
    real.clear()
    real.add_node("n1")
    found = SCENES[name](Objects(real))
    last: list[Any] = []

    def is_the_same() -> bool:
        last[:] = [plain(found())]
        return bool(last[0] == RECORDED[name])

    try:
        eventually(is_the_same, "the scene", timeout=15, every=0.1)
    except AssertionError:
        assert RECORDED[name] == last[0]
