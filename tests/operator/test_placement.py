"""Where pods of a DaemonSet may be, and what is kept of the devices there."""

from typing import Any

import pytest

from deviceplugin_operator.observed.fleet import NodeFacts
from deviceplugin_operator.reconciling import devices
from deviceplugin_operator.reconciling.status import Outcome
from deviceplugin_operator.rollout import placement
from deviceplugin_operator.rollout.placement import REQUIRED
from deviceplugin_operator.rollout.step import Progress, Taken

A = "example.com/a"
GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def node(name: str = "n", count: int = 4, *, ready: bool = True, **more: Any) -> NodeFacts:
    taints = tuple(more.pop("taints", ()))
    return NodeFacts(name, more, ready, {A: count}, {A: count}, taints=taints)


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
    assert fits == bool(placement.covered([{"spec": spec}], [node(zone="a")]))


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
    assert fits == bool(placement.covered([{"spec": {"tolerations": tolerations}}], [tainted]))


def test_what_daemon_sets_tolerate_anyway_and_what_is_only_preferred_keeps_no_pod_away() -> None:
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "gpu", "effect": "PreferNoSchedule"},
    ]
    assert placement.covered([{"spec": {}}], [node(taints=taints)])


def daemon_set(*, ready: int = 1) -> dict[str, Any]:
    counts = {
        "desiredNumberScheduled": 1,
        "updatedNumberScheduled": ready,
        "numberReady": ready,
    }
    metadata = {"labels": {"deviceplugin.dev/profile": ""}}
    return {"metadata": metadata, "spec": {"template": {"spec": {}}}, "status": counts}


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
