"""Devices that consume counters of their pool, and those of Kubernetes 1.37 with groups.

Devices are written as ``a1=g4h1``, one of the kind a that consumes 4 of the counter set g and 1 of
h; ``!`` is a taint, ``/x+y`` are compatibility groups. A pod is written as the kinds that its
claims ask for: ``a,*`` is a claim for one of the kind a and any other, ``a;b`` are two claims,
``a*2`` is a request for two, and ``=`` asks for devices of one kind. Between pods, ``g:2`` changes
a counter, ``-a1`` removes a device and ``~a1=...`` replaces it.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.dra_objects import DRIVER, RESOURCE, Objects, Simulated
from deviceplugin_testing.simulator._control_plane.rules.gates import Gates

Object = dict[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
GROUPS = {"DRADeviceCompatibilityGroups": True}
NONE = {"DRAPartitionableDevices": False}


def device(word: str) -> Object:
    name, amounts, taint, groups = re.fullmatch(r"(\w+)=?([a-z0-9]*)(!?)/?([\w+]*)", word).groups()  # type: ignore[union-attr]
    several = [
        {"counterSet": one, "counters": {"n": {"value": amount}}}
        | ({"compatibilityGroups": groups.split("+")} if groups else {})
        for one, amount in re.findall(r"([a-z])(\d+)", amounts)
    ]
    made = {"name": name, "attributes": {"kind": {"string": name.rstrip("0123456789")}}}
    return (
        made
        | ({"consumesCounters": several} if several else {})
        | ({"taints": [{"key": "x", "effect": "NoSchedule"}]} if taint else {})
    )


def counters(word: str) -> list[Object]:
    found = re.findall(r"([a-z])(-?\d+)", word)
    return [{"name": one, "counters": {"n": {"value": amount}}} for one, amount in found]


def publish(make: Objects, amounts: str, devices: str, count: int = 2) -> None:
    pool = {"name": f"n1/{RESOURCE}", "generation": 1, "resourceSliceCount": count}
    make.device_class()
    if amounts:
        made = {"devices": None, "sharedCounters": counters(amounts)}
        make.slice(metadata={"name": "counters"}, pool=pool, **made)
    make.slice(metadata={"name": "d"}, pool=pool, devices=[*map(device, devices.split())])


def requests_of(claim: str) -> Iterator[Object]:
    for index, word in enumerate(claim.rstrip("=").split(",")):
        kind, _, count = word.partition("*") if word != "*" else ("", "", "1")
        wanted: Object = {"deviceClassName": "gopher", "count": int(count or 1)}
        if kind:
            expression = f'device.attributes["{DRIVER}"].kind == "{kind}"'
            wanted["selectors"] = [{"cel": {"expression": expression}}]
        yield {"name": f"r{index}", "exactly": wanted}


def got(make: Objects, number: int, word: str) -> str:
    """Create a pod, and return what its claims get."""
    claims = {f"c{number}-{index}": one for index, one in enumerate(word.split(";"))}
    for name, one in claims.items():
        rules = [{"matchAttribute": f"{DRIVER}/kind"}] if one.endswith("=") else []
        make.claim_of(name, [*requests_of(one)], constraints=rules)
    pod = f"p{number}"
    make.pod(pod, resourceClaims=[{"name": one, "resourceClaimName": one} for one in claims])
    make.settle_until(lambda: make.node_of(pod) or make.why_not(pod))
    return " ".join(one for name in claims for one in make.devices_of(name)) or "-"


def changed(make: Objects, action: str) -> None:
    """Change counters or devices, and wait for the scheduler by a device that it has then."""

    def edit(one: Object) -> None:
        spec = one["spec"]
        spec["pool"]["generation"] += 1
        if "sharedCounters" in spec:
            amounts = {each["name"]: each for each in [*spec["sharedCounters"], *counters(action)]}
            spec["sharedCounters"] = (
                [*amounts.values()] if ":" in action else spec["sharedCounters"]
            )
        elif action[0] in "-~":
            name = action[1:].partition("=")[0]
            new = [device(action[1:])] if action[0] == "~" else []
            spec["devices"] = [
                each for old in spec["devices"] for each in (new if old["name"] == name else [old])
            ]
        if "devices" in spec:
            spec["devices"].append({"name": f"fence{spec['pool']['generation']}"} | KIND)

    for name in ("counters", "d"):
        make.cluster.change("ResourceSlice", name, edit)


KIND: Object = {"attributes": {"kind": {"string": "fence"}}}


def play(make: Objects, amounts: str, devices: str, history: str) -> str:
    publish(make, amounts, devices)
    found = []
    for number, word in enumerate(history.split()):
        if word[0] in "-~" or ":" in word:
            changed(make, word.replace(":", "") + ":" if ":" in word else word)
            assert got(make, number, "fence").startswith("fence")
        else:
            found.append(got(make, number, word))
    return " | ".join(found)


SCENES = {
    "parts until nothing is left": ("g8", "w1=g8 a1=g4 a2=g4 a3=g4", "a a a w", "a1 | a2 | - | -"),
    "a whole closes its parts": ("g8", "a1=g4 w1=g8 x1", "w a x", "w1 | - | x1"),
    "what is free besides": ("g8h8", "a1=g8 a2=g8 a3=h8", "a a a", "a1 | a3 | -"),
    "two sets at once": ("g4h4", "a1=g4h4 a2=h4 a3=g4", "a a", "a1 | -"),
    "another device for the first request": ("g8", "a1=g4 w1=g8 x1", "*,w", "x1 w1"),
    "another device for the first claim": ("g8", "a1=g4 w1=g8 x1", "*;w", "x1 w1"),
    "two devices that are not neighbours": ("g4h4", "a1=g4 a2=g4 a3=h4", "a*2", "a1 a3"),
    "a tainted device keeps its counters": ("g8", "a1=g4! a2=g8", "a", "-"),
    "a tainted device behind does not": ("g8", "a2=g8 a1=g4!", "a", "a2"),
    "what a constraint rejects keeps them": ("g8", "a1=g1 b1=g6 a2=g2", "*2= a*2", "- | a1 a2"),
    "an exceeded counter closes all others": ("g8h8", "a1=g4 b1=h4", "a g:2 b", "a1 | -"),
    "a counter that nobody has left": ("g0h4", "a1=g1 b1=h4", "a b", "- | b1"),
    "a negative counter": ("g-1h4", "b1=h4 x1", "b x", "- | x1"),
    "a device that is gone consumes nothing": ("g8", "a1=g8 a2=g8", "a -a1 a", "a1 | a2"),
    "a device consumes what its slice says": ("g8", "a1=g1 a2=g7", "a ~a1=g2 a", "a1 | -"),
    "a set that is not there": ("g8", "a1=z1 x1", "x", "-"),
    "more than a claim can have": ("g9", " ".join(f"x{n}" for n in range(33)), "x*33", "-"),
    "nothing is consumed": ("g0", "a1=g0 a2=g0", "a a", "a1 | a2"),
}  # fmt: skip


@pytest.mark.parametrize("scene", SCENES)
def test_claims_get_what_the_counters_allow(either: Objects, scene: str) -> None:
    amounts, devices, history, expected = SCENES[scene]
    assert expected == play(either, amounts, devices, history)


def test_a_pool_without_its_counters_offers_nothing(either: Objects) -> None:
    publish(either, "", "a1=g1 x1")
    assert "-" == got(either, 1, "x")


def test_a_pool_that_is_replaced_on_another_node_offers_nothing(either: Objects) -> None:
    publish(either, "", "x1")
    pool = {"name": f"n1/{RESOURCE}", "generation": 2, "resourceSliceCount": 1}
    either.slice(metadata={"name": "new"}, nodeName="n2", pool=pool, devices=[device("x2")])
    assert "-" == got(either, 1, "x")


def test_an_invalid_pool_is_said_if_nothing_else_fits(either: Objects) -> None:
    publish(either, "g8", "a1=z1")
    assert "-" == got(either, 1, "a")
    assert "invalid resource pools were encountered" in either.why_not("p1")


# Compatibility groups, as KEP-5963 says: there is no release with them to compare with.

TOGETHER = {
    "two of one group": ("a1=g1/mig a2=g1/mig", "a a", "a1 | a2"),
    "two of other groups": ("a1=g1/mig b1=g1/vgpu", "a b", "a1 | -"),
    "the other way round": ("a1=g1/mig b1=g1/vgpu", "b a", "b1 | -"),
    "with groups and without": ("a1=g1/mig b1=g1 c1=g1", "a b c", "a1 | - | -"),
    "without and with groups": ("a1=g1/mig b1=g1 c1=g1", "b a c", "b1 | - | c1"),
    "one in common": ("a1=g1/foo+x b1=g1/bar+x c1=g1/baz", "a b c", "a1 | b1 | -"),
    "none that all have in common": ("a1=g1/x+y b1=g1/y+z c1=g1/z+x", "a b c", "a1 | b1 | -"),
    "in one claim": ("a1=g1/x b1=g1/y b2=g1/x", "*,b", "a1 b2"),
    "of other counter sets": ("a1=g1/x b1=h1/y", "a b", "a1 | b1"),
    "as they were when allocated": ("a1=g1/x b1=g1/x c1=g1/y", "a ~a1=g1/y c b", "a1 | - | b1"),
    "of one that is gone": ("a1=g1/x b1=g1/y c1=g1/x", "a -a1 b c", "a1 | - | c1"),
}  # fmt: skip


@pytest.mark.parametrize("options", [{"feature_gates": GROUPS, "release": "1.37"}])
@pytest.mark.parametrize("scene", TOGETHER)
def test_devices_go_together_that_have_a_group_in_common(make: Simulated, scene: str) -> None:
    devices, history, expected = TOGETHER[scene]
    assert expected == play(make, "g9h9", devices, history)


@pytest.mark.parametrize("options", [{"feature_gates": GROUPS}])
def test_a_claim_keeps_the_groups_of_its_device(make: Simulated) -> None:
    publish(make, "g9h9", "a1=g1h1/mig x1")
    assert ("a1", "x1") == (got(make, 1, "a"), got(make, 2, "x"))
    (with_groups,), (without,) = (make.allocation(one)["results"] for one in ("c1-0", "c2-0"))
    assert {"g": ["mig"], "h": ["mig"]} == with_groups["compatibilityGroups"]
    assert "compatibilityGroups" not in without


def test_without_groups_a_slice_that_has_them_keeps_them_and_is_skipped(make: Simulated) -> None:
    publish(make, "g9", "a1=g1/mig b1=g1/mig c1=g1")
    assert "compatibilityGroups" not in str(make.get("ResourceSlice", "d"))
    new = [*map(device, ("a1=g1/mig", "c1=g1"))]
    make.cluster.change("ResourceSlice", "d", lambda one: one["spec"].update(devices=new))
    found = make.api.get(f"{SLICES}/d")
    assert new == make.api.replace(f"{SLICES}/d", found)["spec"]["devices"]
    assert ("-", "c1") == (got(make, 1, "a"), got(make, 2, "c"))


# Without counters.


@pytest.mark.parametrize("options", [{"feature_gates": NONE}, {"release": "1.35"}])
def test_without_the_feature_counters_vanish(make: Simulated) -> None:
    publish(make, "g1", "a1=g1 a2=g1")
    kept = [make.get("ResourceSlice", name)["spec"] for name in ("counters", "d")]
    assert "Counters" not in str(kept)
    assert ("a1", "a2") == (got(make, 1, "a"), got(make, 2, "a"))


@pytest.mark.parametrize("options", [{"feature_gates": NONE}])
def test_without_the_feature_what_has_counters_keeps_them_and_offers_no_part(
    make: Simulated,
) -> None:
    publish(make, "g1", "a1 x1")
    slices = {"counters": {"sharedCounters": counters("g1")}, "d": {"devices": [device("a1=g1")]}}
    for name, spec in slices.items():
        make.cluster.change("ResourceSlice", name, lambda one: one["spec"].update(spec))  # noqa: B023
        found = make.api.get(f"{SLICES}/{name}")
        more = {"devices": [device(word) for word in ("a1=g1", "x1")]} if name == "d" else {}
        found["spec"] |= more
        kept = make.api.replace(f"{SLICES}/{name}", found)["spec"]
        assert {**spec, **more}.items() <= kept.items()
    assert ("-", "x1") == (got(make, 1, "a"), got(make, 2, "x"))


@pytest.mark.parametrize(
    ("release", "given", "expected"),
    [
        ("1.33", {}, Gates(shares=False, lists=False, counters=False, groups=False)),
        ("1.35", {"DRAPartitionableDevices": True}, Gates(shares=False)),
        ("1.36", {}, Gates()),
        ("1.37", GROUPS, Gates(groups=True)),
    ],
)
def test_a_release_has_its_features(release: str, given: Any, expected: Gates) -> None:
    assert expected == Gates.of(given, release)


def test_groups_need_counters() -> None:
    with pytest.raises(ValueError, match="CompatibilityGroups needs DRAPartitionableDevices"):
        Gates.of({**GROUPS, **NONE})
