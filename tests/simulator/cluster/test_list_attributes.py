"""Attributes with several values, and constraints on attributes, in the simulated cluster."""

from typing import Any

import pytest

from cluster.dra_api.cases import GATES
from cluster.dra_objects import Simulated
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError
from deviceplugin_testing.simulator._control_plane.scheduler.constraints import are_met
from deviceplugin_testing.simulator._control_plane.scheduler.pools import DeviceKey, Offer

ROOT = "resource.kubernetes.io/pcieRoot"
MATCH, DISTINCT = {"matchAttribute": ROOT}, {"distinctAttribute": ROOT}
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
lists = pytest.mark.parametrize("options", [{"feature_gates": GATES}])


def device(name: str, *roots: str, **more: Any) -> dict[str, Any]:
    """Return a device near ``roots``, as a list if there is not just one."""
    value = {"string": roots[0]} if len(roots) == 1 else {"strings": [*roots]}
    return {"name": name, "attributes": {ROOT: value, **more}}


def taken(make: Simulated, *constraints: Any, count: int = 2, **exactly: Any) -> list[str]:
    """Return the devices that a claim with ``constraints`` gets."""
    wanted = {"deviceClassName": "gopher", "count": count, **exactly}
    make.device_class()
    make.claim_of("c", [{"name": "r", "exactly": wanted}], constraints=[*constraints])
    make.pod_with("c")
    make.settle()
    return make.devices_of("c")


@lists
def test_devices_match_that_have_a_value_in_common(make: Simulated) -> None:
    make.slice(devices=[device("a", "x"), device("b", "y", "z"), device("c", "w", "z")])
    assert ["b", "c"] == taken(make, MATCH)


def test_without_the_feature_a_list_is_dropped_and_its_attribute_refused(make: Simulated) -> None:
    with pytest.raises(RefusedError, match="exactly one value must be specified"):
        make.slice(devices=[device("a", "x", "y")])


def test_without_the_feature_a_slice_that_has_lists_keeps_them(make: Simulated) -> None:
    devices = [device("a", "x", "y"), device("b", "y", "x")]
    name = make.slice("a")["metadata"]["name"]
    make.cluster.change("ResourceSlice", name, lambda one: one["spec"].update(devices=devices))
    found = make.api.get(f"{SLICES}/{name}")
    found["metadata"]["labels"] = {"a": "b"}
    assert devices == make.api.replace(f"{SLICES}/{name}", found)["spec"]["devices"]
    assert [] == taken(make, MATCH)


def test_a_claim_gets_the_first_devices_that_match_wherever_they_are(make: Simulated) -> None:
    names = ("a x", "b y", "c x", "d y", "e x")
    make.slice(devices=[device(*one.split()) for one in names])
    assert ["a", "c", "e"] == taken(make, MATCH, count=3)


def test_all_devices_are_taken_only_if_they_match(make: Simulated) -> None:
    make.slice(devices=[device("a", "x"), device("b", "y")])
    assert [] == taken(make, MATCH, allocationMode="All", count=0)


@lists
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('strings.includes("x")', ["a"]),
        ('string.includes("x")', ["a"]),
        ('strings[1] == "y"', ["a"]),
        ('"y" in device.attributes["d"].strings', ["a"]),
        ('versions.includes(semver("2.0.0"))', ["a"]),
        ('strings.includes("z")', []),
        ('string.includes("z")', []),
        ("ints.includes(true)", []),
    ],
)
def test_a_selector_asks_for_one_of_the_values(
    make: Simulated, condition: str, expected: list[str]
) -> None:
    kinds: dict[str, Any] = {"strings": ["x", "y"], "versions": ["1.0.0", "2.0.0"], "ints": [1]}
    attributes = {f"d/{kind}": {kind: value} for kind, value in {**kinds, "string": "x"}.items()}
    make.slice(devices=[{"name": "a", "attributes": attributes}])
    before = "" if " in " in condition else 'device.attributes["d"].'
    selectors = [{"cel": {"expression": f"{before}{condition}"}}]
    assert expected == taken(make, count=1, selectors=selectors)


@lists
def test_a_value_beyond_the_list_fails_the_selection(make: Simulated) -> None:
    make.slice(devices=[device("a", "x", "y")])
    expression = f'device.attributes["{ROOT.partition("/")[0]}"].pcieRoot[2] == "x"'
    assert [] == taken(make, count=1, selectors=[{"cel": {"expression": expression}}])
    assert "no such key: 2" in make.why_not()


def test_without_the_feature_new_selectors_cannot_say_includes(make: Simulated) -> None:
    selectors = [{"cel": {"expression": 'device.attributes["d"].x.includes("a")'}}]
    with pytest.raises(RefusedError, match=r"selectors\[0\]\.cel\.expression: .*'includes'"):
        make.device_class(selectors=selectors)
    with pytest.raises(RefusedError, match=r"exactly\.selectors\[0\]\.cel.*'includes'"):
        make.claim(selectors=selectors)
    stored = make.device_class()
    stored["spec"]["selectors"] = selectors
    make.cluster.change("DeviceClass", "gopher", lambda _: stored)
    path = "/apis/resource.k8s.io/v1/deviceclasses/gopher"
    assert (
        selectors == make.api.merge(path, {"metadata": {"labels": {"a": "b"}}})["spec"]["selectors"]
    )


VALUES: dict[str, Any] = {
    "x": {"string": "x"},
    "y": {"string": "y"},
    "xy": {"strings": ["x", "y", "y"]},
    "yz": {"strings": ["y", "z"]},
    "1": {"int": 1},
    "12": {"ints": [1, 2]},
    "version": {"version": "x"},
    "none": None,
}


@pytest.mark.parametrize(
    ("constraint", "devices", "with_lists", "without"),
    [
        (MATCH, "x x", True, True),
        (MATCH, "x y", False, False),
        (MATCH, "x xy", True, False),
        (MATCH, "xy yz y", True, False),
        (MATCH, "x xy yz", False, False),
        (MATCH, "x version", False, False),
        (MATCH, "1 12", True, False),
        (MATCH, "x none", False, False),
        (MATCH, "xy", True, False),
        (DISTINCT, "x y", True, True),
        (DISTINCT, "x x", False, False),
        (DISTINCT, "x yz", True, False),
        (DISTINCT, "xy yz", False, False),
        (DISTINCT, "x version", True, True),
        (DISTINCT, "x none", False, False),
        (DISTINCT, "x y x", True, True),  # of one request, only the last is compared
        ({**MATCH, "requests": ["r"]}, "x y", False, False),
        ({**MATCH, "requests": ["r/s"]}, "x y", False, False),
        ({**MATCH, "requests": ["other"]}, "x y", True, True),
    ],
)
def test_a_constraint_compares_the_values_as_sets(
    constraint: dict[str, Any], devices: str, with_lists: bool, without: bool
) -> None:
    found = [
        (
            "r/s",
            Offer(
                DeviceKey("d", "p", one), {"attributes": {ROOT: VALUES[one]} if VALUES[one] else {}}
            ),
        )
        for one in devices.split()
    ]
    seen = [are_met([constraint], found, lists=lists) for lists in (True, False)]
    assert [with_lists, without] == seen


def test_a_driver_need_not_write_its_domain_and_another_must() -> None:
    own = Offer(DeviceKey("d.io", "p", "a"), {"attributes": {"x": {"int": 1}}})
    other = own._replace(key=DeviceKey("e.io", "p", "a"))
    seen = [
        are_met([{"matchAttribute": "d.io/x"}], [("r", one)], lists=False) for one in (own, other)
    ]
    assert [True, False] == seen
