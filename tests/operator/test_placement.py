"""Where pods of a DaemonSet may be, and what is kept and said of the devices there."""

import json
from typing import Any

import pytest

from deviceplugin import ConfigError
from deviceplugin.apiserver import ApiServer
from deviceplugin_operator.crd.specification import Wanted, read
from deviceplugin_operator.fleet import Fleet, NodeFacts
from deviceplugin_operator.reconciling import devices
from deviceplugin_operator.reconciling.conflicts import conflict
from deviceplugin_operator.reconciling.status import Outcome, Reported, status
from deviceplugin_operator.rollout import desired
from deviceplugin_operator.rollout.desired import REQUIRED
from deviceplugin_operator.rollout.step import Progress, Taken

A = "example.com/a"
GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def node(name: str = "n", count: int = 4, *, ready: bool = True, **more: Any) -> NodeFacts:
    taints = tuple(more.pop("taints", ()))
    labels = {"kubernetes.io/os" if key == "os" else key: one for key, one in more.items()}
    return NodeFacts(name, labels, ready, {A: count}, {A: count}, taints=taints)


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    found = [{"matchExpressions": one} for one in terms]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": found}}}}


def one_of(key: str, *values: str, how: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": how, "values": [*values]}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (affinity([one_of("zone", "a", "b")]), True),
        (affinity([one_of("zone", "b")]), False),
        (affinity([one_of("zone", "b")], [one_of("zone", "a")]), True),
        (affinity([one_of("zone", "a"), one_of("size", "big")]), False),
        (affinity([one_of("size", "big", how="NotIn")]), True),
        (affinity([one_of("zone", "a", how="NotIn")]), False),
    ],
)
def test_a_pod_is_where_selector_and_affinity_let_it_be(spec: dict[str, Any], fits: bool) -> None:
    assert fits == bool(desired.covered([{"spec": spec}], [node(zone="a")]))


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "gpu", "operator": "Exists"}], True),
        ([{"key": "other", "operator": "Exists"}], False),
        ([{"key": "gpu", "value": "yes"}], True),
        ([{"key": "gpu", "value": "no"}], False),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}], True),
    ],
)
def test_a_pod_is_where_it_tolerates_each_taint(
    tolerations: list[dict[str, str]], fits: bool
) -> None:
    tainted = node(taints=[GPU])
    assert fits == bool(desired.covered([{"spec": {"tolerations": tolerations}}], [tainted]))


def test_what_daemon_sets_tolerate_anyway_and_what_is_only_preferred_keeps_no_pod_away() -> None:
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "gpu", "effect": "PreferNoSchedule"},
    ]
    assert desired.covered([{"spec": {}}], [node(taints=taints)])


def daemon_set(*, ready: int = 1) -> dict[str, Any]:
    counts = {"updatedNumberScheduled": ready, "numberReady": ready}
    return {
        "metadata": {"labels": {"deviceplugin.dev/profile": ""}},
        "spec": {"template": {"spec": {}}},
        "status": {"desiredNumberScheduled": 1, **counts},
    }


def at(state: str = "Done", **more: Any) -> Outcome:
    progress = Progress(**{"target": "r", "good": "r", "resources": (A,), **more})
    return Outcome("", "r", progress, state, "", daemon_set()["status"])


@pytest.mark.parametrize(
    ("outcome", "facts", "ready", "kept"),
    [
        (at(), node(count=4), 1, {"n": {A: 4}}),
        (at(), node(count=1), 1, {"n": {A: 1}}),  # a device is broken
        (at(), node(count=0), 1, {}),  # all are
        (at(), node(count=0), 0, {"n": {A: 2}}),  # its pod is away, perhaps
        (at(), node(count=9, ready=False), 1, {"n": {A: 2}}),
        (at(taken={"n": Taken()}), node(count=1), 1, {"n": {A: 2}}),
        (at(restoring=True), node(count=1), 1, {"n": {A: 2}}),
        (at("Progressing"), node(count=1), 1, {"n": {A: 2}}),
        (at("Held"), node(count=3), 1, {"n": {A: 3}}),
        (at(good="other"), node(count=1), 1, {"n": {A: 2}}),
    ],
)
def test_of_a_node_is_kept_what_it_had_in_the_last_good_state(
    outcome: Outcome, facts: NodeFacts, ready: int, kept: object
) -> None:
    before = {"n": {A: 2}}
    assert kept == devices.baseline(before, [outcome], [daemon_set(ready=ready)], [facts])


SIMULATED: Any = {"plugin": "simulated"}
BIG = {
    "plugin": "simulated",
    "profileLabel": "size",
    "profiles": {"big": {"simulated": {"resource": "example.com/big"}}},
}
NODES = "nodes: n0, n1, n2"


def zoned(zone: str) -> Any:
    return {**SIMULATED, "nodeSelector": {"zone": zone}}


def offering(*resources: str) -> Any:
    return {"plugin": "custom", "image": "i", "custom": {"resources": [*resources]}}


def an_object(name: str, spec: Any, status: Any = None) -> Any:
    return {"metadata": {"name": name, "creationTimestamp": "t"}, "spec": spec, "status": status}


INVALID = {"simulated": {"profile": "x"}}
NO_RDMA = {"plugin": "rdma", "rdma": {"resourceList": []}}
BEHIND = {"revisions": [{"applied": "a", "wanted": "b"}]}
NOWHERE = zoned("nowhere")


@pytest.mark.parametrize(
    ("older", "younger", "said"),
    [
        (SIMULATED, SIMULATED, f"covers {NODES}"),
        (zoned("a"), zoned("b"), ""),
        (zoned("a"), SIMULATED, "covers nodes: n0"),
        (NO_RDMA, {"plugin": "generic", "generic": {"devices": []}}, ""),
        (
            SIMULATED,
            offering("example.com/*"),
            f"offers example.com/simple-device on {NODES}",
        ),
        (SIMULATED, offering("example.com/another"), ""),
        (BIG, offering("example.com/big"), "offers example.com/big on nodes: n1"),
        (offering(), offering(), f"offers i on {NODES}"),  # an image each
        # One that is invalid, or not applied yet, keeps its nodes.
        (SIMULATED | INVALID, SIMULATED, f"covers {NODES}"),
        (zoned("a") | INVALID, zoned("b"), ""),
        (SIMULATED | INVALID, offering("example.com/simple-device"), ""),
        ({"plugin": "custom"}, offering("example.com/a"), ""),  # it has no image
        (an_object("a", NOWHERE, BEHIND), SIMULATED, "covers nodes: n2"),
        (NOWHERE, SIMULATED, ""),
        (an_object("z", SIMULATED), SIMULATED, ""),  # it is the younger one
    ],
)
def test_a_younger_object_conflicts_with_an_older_one(older: Any, younger: Any, said: str) -> None:
    fleet = Fleet(ApiServer("http://nowhere"))
    fleet._nodes.items = {
        one.name: one
        for one in (
            node("n0", zone="a", os="linux"),
            node("n1", zone="b", size="big", os="linux"),
            node("n2", os="linux"),
        )
    }
    older = older if "metadata" in older else an_object("a", older)
    try:
        asked: Wanted | None = read(older)
    except ConfigError:
        asked = None
    own = an_object("b", younger)
    found = conflict(
        own, read(own), [(older, asked), (own, None)], fleet, lambda _: [fleet._nodes.items["n2"]]
    )
    assert (f"DevicePlugin a already {said}" if said else "") == found


BUILT = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
PROFILES: dict[str, Any] = {
    "profileLabel": "example.com/profile",
    "profiles": {"many": {"gopher": {"variable": "Many"}}},
}


def required(profile: str, **spec: Any) -> list[Any]:
    """Return what the pods of a profile require of nodes."""
    wanted = read({"metadata": {"name": "x"}, "spec": {"plugin": "gopher", **spec}})
    (variant,) = (one for one in wanted.variants if one.profile == profile)
    affinity = desired.revision(wanted, variant).pod["spec"]["affinity"]
    assert "podAntiAffinity" in affinity
    if "nodeAffinity" not in affinity:
        return []
    (term,) = affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    found: list[Any] = term["matchExpressions"]
    return found


def test_our_images_run_on_the_architectures_that_they_are_built_for() -> None:
    assert [BUILT] == required("")


@pytest.mark.parametrize(("profile", "operator"), [("", "NotIn"), ("many", "In")])
def test_a_profile_narrows_that_further(profile: str, operator: str) -> None:
    first, second = required(profile, **PROFILES)
    assert BUILT == first
    assert (operator, ["many"]) == (second["operator"], second["values"])


def test_an_image_of_ones_own_may_be_for_others() -> None:
    assert [] == required("", image="registry.example.com/mine:1")
    (own,) = required("many", image="registry.example.com/mine:1", **PROFILES)
    assert ["many"] == own["values"]


def test_of_thousands_of_bad_nodes_the_status_names_the_worst() -> None:
    nodes = [
        NodeFacts(f"node-{number:04}", {}, True, {A: 8}, {A: number % 8}) for number in range(5000)
    ]
    found = status({"metadata": {"generation": 1}}, Reported([], nodes, [A]), "now")
    assert (20, 4980) == (len(found["problems"]), found["problemsLeftOff"])
    assert {0} == {one["healthy"] for one in found["problems"]}
    healthy = sum(number % 8 for number in range(5000))
    assert f"a {healthy}/40000" == found["devices"]
    assert len(json.dumps(found)) < 10_000
