"""Devices that DRA drivers offer, ours and others', beside what device plugins have of a node."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cluster.scripted_api import Answer, Script
from fleets.objects import FORBIDDEN, Object, Run, container, having, node, pod

GPU = "example.com/gpu"
DRIVER = "gpu.example.com"
CLASS = 'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].type == "gpu"'
TAINT = {"key": "example.com/broken", "effect": "NoExecute"}
HELD = {"key": f"{DRIVER}/held", "effect": "NoSchedule"}


def device(name: str, *taints: Object, **more: Any) -> Object:
    return {"name": name, "attributes": {"type": {"string": "gpu"}}, "taints": [*taints], **more}


def slices(*devices: Object, pool: str = "n", of: int = 1, generation: int = 1, **more: Any) -> Any:
    size = {"name": pool, "generation": generation, "resourceSliceCount": of}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": size, "devices": [*devices], **more}
    return {"metadata": {"name": "s"}, "spec": spec}


def device_class(*expressions: str, name: str = "gpu", resource: str = GPU) -> Object:
    selectors = [{"cel": {"expression": one}} for one in expressions]
    spec = {"selectors": selectors, "extendedResourceName": resource}
    return {"metadata": {"name": name}, "spec": spec}


def claim(*names: str, pool: str = "n", where: str = "n", **more: Any) -> Object:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": one, **more} for one in names
    ]
    match = {"key": "metadata.name", "operator": "In", "values": [where]}
    at = {"nodeSelectorTerms": [{"matchFields": [match]}]} if where else None
    allocation = {"devices": {"results": results}, "nodeSelector": at}
    spec = {"devices": {"requests": [request]}}
    return {"metadata": {"name": "c"}, "spec": spec, "status": {"allocation": allocation}}


def shared(name: str, count: Any) -> Object:
    return device(name, allowMultipleAllocations=True, capacity={"shares": {"value": count}})


def part(name: str, *taints: Object) -> Object:
    return device(name, *taints, consumesCounters=[{"counterSet": "gpu-0", "counters": {}}])


def through_dra(count: int) -> Object:
    found = pod("n", container(gpu=count))
    mapping = {"containerName": "main", "requestName": "r", "resourceName": GPU}
    found["status"]["extendedResourceClaimStatus"] = {"requestMappings": [mapping]}
    return found


A, B = device("a"), device("b")
BY_POOL = f"n/{GPU}"
NOWHERE: Mapping[str, Any] = {"nodeName": None, "allNodes": True}
CASES: Mapping[str, tuple[Object, Sequence[Object], Sequence[Object], Sequence[Object], Any]] = {
    # node, slices, claims, pods: healthy, total, held, problem
    "driver alone": (node("n"), [slices(A, B)], [claim("a")], [], (2, 2, 1, "")),
    "a taint": (node("n"), [slices(A, device("b", TAINT))], [], [], (1, 2, 0, "1 unhealthy")),
    "a taint of no effect": (
        *(node("n"), [slices(A, device("b", {**TAINT, "effect": "None"}))], [], []),
        (2, 2, 0, ""),
    ),
    "admin access": (node("n"), [slices(A)], [claim("a", adminAccess=True)], [], (1, 1, 0, "")),
    "hidden by its plugin": (node("n", gpu=(0, 2)), [slices(A, B)], [], [], (2, 2, 0, "")),
    "a status that is late": (node("n", gpu=(2, 2)), [slices(A, B)], [], [], (2, 2, 0, "")),
    "to DRA, a pod has one": (
        *(node("n", gpu=(0, 2)), [slices(A, device("b", HELD))], []),
        *([pod("n", container(gpu=1))], (2, 2, 1, "")),
    ),
    "to DRA, nobody has it": (
        *(node("n", gpu=(0, 2)), [slices(A, device("b", HELD))], [], []),
        (1, 2, 0, "1 unhealthy"),
    ),
    "back, a claim has one": (node("n", gpu=(1, 2)), [], [claim("b")], [], (2, 2, 1, "")),
    "back, by the name of the pool": (
        *(node("n", gpu=(0, 1)), [], [claim("b", pool=BY_POOL, request="gone")], []),
        (1, 1, 1, ""),
    ),
    "limits that DRA satisfies": (
        *(node("n", gpu=(0, 2)), [slices(A, B)], [claim("a")], [through_dra(1)]),
        (2, 2, 1, ""),
    ),
    "shares": (
        *(node("n"), [slices(shared("a", "4"), B)]),
        *([claim("a", consumedCapacity={"shares": "3"}), claim("b")], [], (5, 5, 4, "")),
    ),
    "several claims of a device of others": (
        *(node("n"), [slices(device("a", allowMultipleAllocations=True))]),
        *([claim("a"), claim("a")], [], (1, 1, 1, "")),
    ),
    "shares that are no number": (node("n"), [slices(shared("a", [])), *[]], [], [], (1, 1, 0, "")),
    "parts that exclude each other": (
        *(node("n"), [slices(part("whole"), part("half-0", TAINT), part("half-1"))]),
        *([claim("half-0"), claim("half-1")], [], (1, 1, 1, "")),
    ),
    "an older generation": (
        *(node("n"), [slices(A, B, generation=1), slices(A, generation=2), slices(B)], [], []),
        (1, 1, 0, ""),
    ),
    "a pool of two slices": (node("n"), [slices(A, of=2), slices(B, of=2)], [], [], (2, 2, 0, "")),
    "an incomplete pool": (
        *(node("n", gpu=(0, 2)), [slices(A, of=2)], [claim("a")], []),
        (1, 2, 1, f"pool n of {DRIVER} is incomplete: 1 of 2 slices"),
    ),
    "an incomplete pool without devices": (
        *(node("n"), [slices(pool=BY_POOL, of=2)], [], []),
        (0, 0, 0, f"pool {BY_POOL} of {DRIVER} is incomplete: 1 of 2 slices"),
    ),
    "two pools": (node("n"), [slices(A), slices(A, pool="m")], [claim("a")], [], (2, 2, 1, "")),
    "a claim of what is gone": (
        *(node("n"), [slices(A)], [claim("a"), claim("b")], []),
        (1, 1, 2, "1 more held than there are"),
    ),
    "a device of one node of a slice of many": (
        *(node("n"), [slices(device("a", nodeName="n"), nodeName=None)], [], []),
        (1, 1, 0, ""),
    ),
    "slices of a node that is gone": (
        *(node("n", gpu=(1, 1)), [slices(A, nodeName="gone", pool="gone")], [], []),
        (1, 1, 0, ""),
    ),
    "a claim without an allocation": (
        *(node("n", gpu=(1, 1)), [], [{"spec": {}, "status": None}], []),
        (1, 1, 0, ""),
    ),
}


def rows(run: Run, *words: str) -> list[Any]:
    document = json.loads(run("--output=json", *words)[1])
    assert [] == document["unknown"]
    return [tuple(each.values()) for each in document["nodes"]]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_device_is_counted_once(script: Script, run: Run, case: Any) -> None:
    found, offered, claims, pods, (healthy, total, held, problem) = case
    dra = {"deviceclasses": [device_class(CLASS)], "resourceslices": offered}
    script.otherwise = having([found], pods, **dra, resourceclaims=claims)
    (row,) = rows(run)
    drivers = [] if not offered or "gone" in str(offered) else [DRIVER]
    assert (GPU, "n", healthy, total, held, False, problem, drivers) == row
    assert (3 if problem else 0) == run("--check")[0]


def consuming(name: str, eighths: str, profile: str = "", *taints: Object, **more: Any) -> Object:
    counters = {"counterSet": name.partition("-")[0], "counters": {"eighths": {"value": eighths}}}
    attributes = {
        "type": {"string": "gpu"},
        **({"profile": {"string": profile}} if profile else {}),
    }
    return {
        "name": name,
        "attributes": attributes,
        "consumesCounters": [{**counters, **more}],
        "taints": [*taints],
    }


def divided(*devices: Object, of: int = 2, **more: Any) -> Sequence[Object]:
    sets = [{"name": one, "counters": {"eighths": {"value": "8"}}} for one in ("g0", "g1")]
    found = slices(of=of, sharedCounters=sets, **more)
    del found["spec"]["devices"]
    return [slices(*devices, of=of, **more), found]


WHOLES = [consuming("g0", "8"), consuming("g1", "8")]
HALVES = [consuming(f"{of}-half-{n}", "4", "half") for of in ("g0", "g1") for n in (0, 1)]
IN_GROUPS = [
    consuming("g0-a", "1", "a", compatibilityGroups=["x"]),
    consuming("g0-b", "1", "b", compatibilityGroups=["y"]),
    consuming("g1-b", "1", "b", compatibilityGroups=["y"]),
]


@pytest.mark.parametrize(
    ("devices", "claims", "held", "parts"),
    [
        ([*WHOLES, *HALVES], [], 0, "whole: 0 held, 2 possible; half: 0 made, 4 possible"),
        (
            [*WHOLES, *HALVES],
            [claim("g0-half-1"), claim("g1")],
            2,
            "whole: 1 held, 0 possible; half: 1 made, 1 possible",
        ),
        (
            [*WHOLES, *HALVES],
            [claim("g0-half-1", adminAccess=True), claim("gone")],
            1,
            "whole: 0 held, 2 possible; half: 0 made, 4 possible",
        ),
        (
            [
                consuming("g0", "8", "", HELD),
                *HALVES[:2],
                consuming("g1-half-0", "4", "half", TAINT),
            ],
            [],
            0,
            "whole: 1 held, 0 possible; half: 0 made, 0 possible",
        ),
        (IN_GROUPS, [claim("g0-a")], 1, "a: 1 made, 0 possible; b: 0 made, 1 possible"),
    ],
)
def test_what_is_left_of_each_profile_is_counted_by_counters(
    script: Script, run: Run, devices: Any, claims: Any, held: int, parts: str
) -> None:
    dra = {"deviceclasses": [device_class(CLASS)], "resourceslices": divided(*devices)}
    script.otherwise = having([node("n")], **dra, resourceclaims=claims)
    out = run()[1]
    assert f"\n\n{GPU}: {parts}\n" in out
    document = json.loads(run("--output=json")[1])
    (row,), (one,) = document["nodes"], document["resources"]
    assert (held, row["profiles"]) == (row["held"], one["profiles"])
    assert {"made", "free", "blocked", "possible"} == {*next(iter(row["profiles"].values()))}


def test_parts_of_several_nodes_are_added_and_those_of_an_incomplete_pool_are_not_counted(
    script: Script, run: Run
) -> None:
    several = [*divided(*HALVES), *divided(*HALVES, nodeName="m", pool="m")]
    missing = divided(*HALVES, pool="o", of=3)
    dra = {"deviceclasses": [device_class(CLASS)], "resourceslices": [*several, *missing]}
    claims = [claim("g0-half-0"), claim("g0-half-0", pool="m", where="m")]
    script.otherwise = having([node("n"), node("m")], **dra, resourceclaims=claims)
    assert f"\n\n{GPU}: half: 2 made, 6 possible\n" in run()[1]
    assert f"\n\n{GPU}: half: 1 made, 3 possible\n" in run("--node=m")[1]


def test_counters_that_are_no_numbers_make_a_slice_one_of_another_form(
    script: Script, run: Run
) -> None:
    odd = [consuming("g0", "1.5"), consuming("g0", "8")]
    odd[1]["consumesCounters"][0]["counters"]["eighths"] = {}
    for one in odd:
        script.otherwise = having([node("n")], resourceslices=divided(one))
        assert "unknown: 1 of 2 resourceslices, which have another form" in run()[1]


def named(name: str, **attributes: Object) -> Object:
    return {"name": name, "attributes": attributes}


@pytest.mark.parametrize(
    ("classes", "found", "name"),
    [
        ([CLASS], A, GPU),
        ([f" {CLASS} "], device("a", attributes={"gpu.example.com/type": {"string": "gpu"}}), GPU),
        (["device.driver == 'gpu.example.com'"], named("a"), GPU),
        ([CLASS], named("a", type={"string": "mig"}), DRIVER),
        ([CLASS.replace('"gpu"', "true")], named("a", type={"bool": True}), GPU),
        ([CLASS.replace('"gpu"', "7")], named("a", type={"int": 7}), GPU),
        (["device.driver == 'other.example.com'"], A, DRIVER),
        (["device.driver.startsWith('gpu')"], A, DRIVER),  # that is not understood
        ([CLASS.replace("&&", "||")], A, DRIVER),
        (["true"], A, DRIVER),
        ([], named("a", resource={"string": GPU}), GPU),
        ([], named("a", resource={"string": "\x1b[31m/x"}), DRIVER),
        ([], named("a", resource={"string": f"{GPU}/part"}), GPU),
    ],
)
def test_devices_count_as_the_resource_of_their_class_their_own_or_their_driver(
    script: Script, run: Run, classes: Sequence[str], found: Object, name: str
) -> None:
    given = [device_class(*classes), device_class(CLASS, resource="x"), {"metadata": {}}]
    script.otherwise = having([node("n")], deviceclasses=given, resourceslices=[slices(found)])
    assert [name] == [row[0] for row in rows(run)]


def test_devices_of_no_node_in_particular_have_a_row_of_their_own(script: Script, run: Run) -> None:
    offered = [slices(A, B, **NOWHERE)]
    script.otherwise = having([node("n")], resourceslices=offered, resourceclaims=[claim("a")])
    assert [(DRIVER, "", 2, 2, 1, False, "", [DRIVER])] == rows(run)
    assert [DRIVER, "-", "2", "2", "1", "-"] == run()[1].splitlines()[1].split()
    assert [] == rows(run, "--node=n")


def test_a_claim_of_an_alternative_counts_as_its_class(script: Script, run: Run) -> None:
    given = claim("b", request="r/second")
    each = [{"name": "first"}, {"name": "second", "deviceClassName": "gpu"}]
    given["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": each}]
    dra = {"deviceclasses": [device_class(CLASS)], "resourceclaims": [given]}
    script.otherwise = having([node("n", gpu=(0, 1))], **dra)
    assert [(GPU, "n", 1, 1, 1, False, "", [])] == rows(run)


@pytest.mark.parametrize(
    ("denied", "row"),
    [
        ("deviceclasses", ["2", "2", "1", "-"]),
        ("resourceslices", ["1", "2", "1", "1", "unhealthy,", "unless", "DRA", "has", "them"]),
        ("resourceclaims", ["2", "2", "-", "-"]),
    ],
)
def test_what_may_not_be_read_of_dra_is_unknown(
    script: Script, run: Run, denied: str, row: list[str]
) -> None:
    own = {"resource": {"string": GPU}}
    offered = [slices(device("a", attributes=own), device("b", attributes=own))]
    lists: dict[str, Any] = {"deviceclasses": [], "resourceslices": offered}
    lists |= {"resourceclaims": [claim("b", pool=BY_POOL, request="x")]}
    if denied != "resourceslices":
        lists["resourceclaims"] = [claim("b", request="x")]
    script.otherwise = having([node("n", gpu=(0, 2))], **{**lists, denied: FORBIDDEN})
    out = run()[1]
    assert [GPU, "n", *row] == out.splitlines()[1].split()
    assert f"as far as {denied} say: needs list {denied}.resource.k8s.io: the API server" in out


ALONE = "resource example.com/gpu, unless DRA has them"


@pytest.mark.parametrize(
    ("given", "words", "status", "text"),
    [
        (node("n", gpu=(1, 2)), [], 4, "1 unhealthy, unless DRA has them"),
        (node("n", gpu=(2, 2)), [], 0, "2 of 2 healthy"),
        (node("n"), ["--resource=example.com/gpu"], 4, f"missing: {ALONE}"),
        (node("n"), [], 4, "1 more held than there are, unless DRA has them"),
        (node("n", gpu=(1, 2)), ["--node=other", "--node=n"], 3, "missing: node other"),
        (node("n", ready="False", gpu=(1, 2)), [], 3, "; 1 unhealthy, unless DRA has them"),
    ],
)
def test_without_a_right_what_dra_may_have_is_not_wrong_for_certain(
    script: Script, run: Run, given: Object, words: list[str], status: int, text: str
) -> None:
    claims = [claim("b", request="x")] if "more held" in text else []
    script.otherwise = having([given], resourceslices=FORBIDDEN, resourceclaims=claims)
    found, out, _ = run("--check", *words)
    assert status == found
    assert text in out
    assert 0 == run(*words)[0]


@pytest.mark.parametrize(
    "strange", [{}, {"spec": None}, {"spec": {"driver": 1}}, slices({"name": "x", "taints": [1]})]
)
def test_an_object_of_another_form_hides_no_other(script: Script, run: Run, strange: Any) -> None:
    dra: Any = {"resourceslices": [strange, slices(A)], "resourceclaims": [{"status": 1}]}
    script.otherwise = having([node("n")], **dra)
    out = run()[1]
    assert [DRIVER, "n", "1", "1", "0", "-"] == out.splitlines()[1].split()
    assert "unknown: 1 of 2 resourceslices, which have another form\n" in out
    assert "unknown: 1 of 1 resourceclaims, which have another form\n" in out


def test_an_api_server_that_fails_is_named(script: Script, run: Run) -> None:
    script.otherwise = having([node("n", gpu=(1, 1))], resourceslices=Answer(410, "too old"))
    out = run()[1]
    assert "as far as resourceslices say: the API server answers 410: too old\n" in out
