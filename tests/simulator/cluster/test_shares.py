"""Devices that several claims have at a time, in the simulated cluster."""

from fractions import Fraction
from typing import Any

import pytest

from cluster.dra_objects import Simulated
from deviceplugin.apiserver import InvalidError
from deviceplugin_testing.simulator import SimulatedCluster
from deviceplugin_testing.simulator._control_plane.scheduler.pools import consumed

STEPS = {"default": "1", "validRange": {"min": "1", "step": "1"}}
SOME = {"default": "1", "validRange": {"min": "1", "max": "4", "step": "3"}}
VALUES = {"default": "1", "validValues": ["1", "4"]}
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def shared(count: int = 4, **fields: Any) -> dict[str, Any]:
    capacity = {"shares": {"value": str(count), "requestPolicy": STEPS}}
    return {"name": "a", "allowMultipleAllocations": True, "capacity": capacity, **fields}


def claim(make: Simulated, name: str, shares: str = "", **more: Any) -> list[str]:
    """Create a pod with a claim; return what the claim consumes."""
    capacity = {"capacity": {"requests": {"shares": shares}}} if shares else {}
    make.claim(name, **capacity, **more)
    make.pod_with(name, name)
    make.settle_until(lambda: make.node_of(name) or make.why_not(name))
    results = make.allocation(name).get("results", [])
    return [one.get("consumedCapacity", {}).get("shares", "") for one in results]


def test_a_single_device_has_no_share_and_is_taken_once(make: Simulated) -> None:
    make.slice(devices=[{"name": "a", "capacity": {"shares": {"value": "4"}}}])
    make.device_class()
    assert [""] == claim(make, "a", "2")
    assert [] == claim(make, "b")


def test_an_administrator_takes_nothing_away(make: Simulated) -> None:
    label = {"resource.kubernetes.io/admin-access": "true"}
    make.cluster.change("Namespace", "default", lambda one: one["metadata"].update(labels=label))
    make.slice(devices=[shared(2)])
    make.device_class()
    assert ["1"] == claim(make, "admin", adminAccess=True)
    assert ["2"] == claim(make, "a", "2")
    assert make.allocation("admin")["results"][0]["adminAccess"]


@pytest.mark.parametrize(
    ("policy", "asked", "used", "expected"),
    [
        pytest.param(None, None, 0, "10", id="all without a policy"),
        pytest.param(None, "3", 7, "3", id="as much as is asked for"),
        pytest.param(None, "4", 7, None, id="more than is left"),
        pytest.param({"default": "2"}, None, 0, "2", id="the default"),
        pytest.param({"default": None}, None, 0, "10", id="an empty policy"),
        pytest.param({"default": "2", "validRange": {"min": "2"}}, "1", 0, "2", id="at least"),
        pytest.param({"default": "2", "validRange": {"min": "2"}}, "2500m", 0, "2500m", id="any"),
        pytest.param(STEPS, "2500m", 0, "3", id="the next step"),
        pytest.param(SOME, "2", 0, "4", id="a larger step"),
        pytest.param(SOME, "5", 0, None, id="too much"),
        pytest.param(VALUES, "2", 0, "4", id="the next value"),
        pytest.param(VALUES, "5", 0, None, id="no value"),
        pytest.param(VALUES, "4", 0, "4", id="a value"),
    ],
)
def test_what_a_claim_consumes_follows_from_the_policy(
    policy: Any, asked: str | None, used: int, expected: str | None
) -> None:
    capacity: dict[str, Any] = {"value": "10"}
    if policy is not None:
        capacity["requestPolicy"] = policy
    wanted = {} if asked is None else {"x": asked}
    found = consumed({"capacity": {"x": capacity}}, wanted, {"x": Fraction(used)})
    assert (None if expected is None else {"x": expected}) == found


def test_large_steps_are_written_in_binary() -> None:
    between = {"default": "1Ki", "validRange": {"min": "0", "step": "1Ki"}}
    capacity = {"x": {"value": "1Gi", "requestPolicy": between}}
    assert {"x": "2Ki"} == consumed({"capacity": capacity}, {"x": "1025"}, {})


def test_a_capacity_that_a_device_does_not_have_cannot_be_asked_for() -> None:
    assert consumed({"capacity": {"x": {"value": "1"}}}, {"y": "1"}, {}) is None


# Without the feature.


without = pytest.mark.parametrize("options", [{"feature_gates": {"DRAConsumableCapacity": False}}])


@without
def test_a_cluster_without_the_feature_drops_its_fields(make: Simulated) -> None:
    (device,) = make.slice(devices=[shared()])["spec"]["devices"]
    assert {"name": "a", "capacity": {"shares": {"value": "4"}}} == device
    make.device_class()
    assert [""] == claim(make, "a", "2")
    assert [] == claim(make, "b")
    (result,) = make.allocation("a")["results"]
    assert "shareID" not in result
    sub = {"name": "s", "deviceClassName": "gopher", "capacity": {"requests": {"shares": "2"}}}
    template = make.template([{"name": "r", "firstAvailable": [sub]}])
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert "capacity" not in request["firstAvailable"][0]


@without
def test_a_slice_that_has_the_fields_keeps_them(make: Simulated) -> None:
    name = make.slice(devices=[shared()])["metadata"]["name"]
    make.cluster.change("ResourceSlice", name, lambda one: one["spec"].update(devices=[shared()]))
    found = make.api.get(f"{SLICES}/{name}")
    found["metadata"]["labels"] = {"a": "b"}
    (device,) = make.api.replace(f"{SLICES}/{name}", found)["spec"]["devices"]
    assert shared() == device


def test_a_feature_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="DRAFoo is not simulated; there are DRACon"):
        SimulatedCluster(feature_gates={"DRAFoo": False})


def test_a_dry_run_creates_nothing(make: Simulated) -> None:
    made = make.slice(devices=[shared()])
    del made["metadata"]
    for name in ("x", ""):
        body = {**made, "metadata": {"name": name, "generateName": "x-"}}
        assert make.api.create(SLICES, body, dry_run=True)["metadata"]["uid"]
    assert 1 == len(make.cluster.list("ResourceSlice"))
    bad = {**made, "metadata": {"name": "A"}}
    with pytest.raises(InvalidError):
        make.api.create(SLICES, bad, dry_run=True)
