"""Protocols: a switch is rolled out, and goes back, without a device that nobody offers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from cluster.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEVICE_CLASS,
    POD,
    RESOURCE_SLICE,
    Object,
)
from deviceplugin_operator import names, rights
from deviceplugin_operator.crd.specification import Rollout, read
from deviceplugin_operator.fleet import NodeFacts
from deviceplugin_operator.rollout import desired
from deviceplugin_operator.rollout.step import Member, Pod, Progress, Taken, next_step
from deviceplugin_operator.slices import NOTHING, offered
from deviceplugin_operator.slices import read as slice_of
from deviceplugin_testing.simulator._control_plane.api_server.access import User
from operators.fleet_cluster import SPACE, Fleet
from operators.managed import DEADLINE, Managed
from operators.pods import RESOURCE, Life, as_configured

DRIVER = "simple-device.example.com"
NODES = ["node-0", "node-1", "node-2"]
DRA, PLUGIN = {"protocol": "dra"}, {"protocol": "device-plugin"}
OPERATOR = f"system:serviceaccount:{SPACE}:deviceplugin-operator"


def template(fleet: Fleet, name: str = "dp-sim") -> Object:
    found: Object = fleet.daemon_set(name)["spec"]["template"]
    return found


def offers(fleet: Fleet) -> list[str]:
    """Return the nodes with slices."""
    return sorted(one["spec"]["nodeName"] for one in fleet.store.list(RESOURCE_SLICE))


def switch(operator: Managed, **settings: Any) -> None:
    """Change the settings, and wait until that has reached all nodes."""
    operator.fleet.deleted.clear()
    operator.apply(settings)
    operator.wait(lambda: operator.fleet.is_ready("sim"))


def add_class(fleet: Fleet, name: str, resource: str = RESOURCE) -> None:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}}
    fleet.store.create(DEVICE_CLASS, {**head, "spec": {"extendedResourceName": resource}})


def restrict(fleet: Fleet, *groups: str) -> None:
    """Give the operator no rights but those to its own kinds, and to ``groups``."""
    all_of = {"verbs": ["*"], "apiGroups": ["", "apps", *groups], "resources": ["*"]}
    own = {**all_of, "apiGroups": [names.GROUP]}
    own["resources"] = [names.PLURAL, f"{names.PLURAL}/status"]
    head = {"metadata": {"name": "operator"}}
    role: Object = {"kind": "ClusterRole", **head, "rules": [all_of, own]}
    subject = {"kind": "ServiceAccount", "name": "deviceplugin-operator", "namespace": SPACE}
    binding: Object = {"kind": "ClusterRoleBinding", **head, "subjects": [subject]}
    binding["roleRef"] = {"name": "operator"}
    fleet.store.create(CLUSTER_ROLE, role)
    fleet.store.create(CLUSTER_ROLE_BINDING, binding)
    fleet.answering.access.grant("", User(OPERATOR))


def unrestrict(fleet: Fleet) -> None:
    def edit(found: Object) -> None:
        found["rules"] = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]

    fleet.store.change(CLUSTER_ROLE, "", "operator", edit)


def as_dra(change: Mapping[str, Any]) -> Callable[[str, Mapping[str, Any]], Life]:
    """Return what has pods with DRA be otherwise."""

    def behave(node: str, config: Mapping[str, Any]) -> Life:
        life = as_configured(node, config)
        return replace(life, **change) if life.driver else life

    return behave


def test_a_first_installation_has_what_dra_needs(operator: Managed) -> None:
    operator.install(DRA)
    fleet = operator.fleet
    spec = template(fleet)["spec"]
    assert "simulated-device-plugin" == spec["serviceAccountName"]
    volumes = {one["name"] for one in spec["volumes"]}
    assert {"driver", "plugins-registry", "cdi", "api-access"} <= volumes
    assert NODES == offers(fleet)
    assert "simple-device 6/6" == fleet.status("sim")["devices"]
    assert [] == fleet.deleted


def test_without_a_protocol_pods_have_no_token_and_the_account_without_rights(
    operator: Managed,
) -> None:
    operator.install()
    spec = template(operator.fleet)["spec"]
    assert "device-plugin" == spec["serviceAccountName"]
    assert "api-access" not in {one["name"] for one in spec["volumes"]}
    assert "DeviceClasses" not in {
        one["type"] for one in operator.fleet.status("sim")["conditions"]
    }


@pytest.mark.slow
def test_a_switch_first_makes_pods_ready_for_dra_and_then_goes_node_by_node(
    operator: Managed,
) -> None:
    operator.install()
    switch(operator, **DRA)
    assert [*NODES, *NODES] == operator.fleet.deleted
    assert NODES == offers(operator.fleet)
    assert 1 == operator.fleet.most_away
    assert "simple-device 6/6" == operator.fleet.status("sim")["devices"]


@pytest.mark.slow
def test_a_switch_there_and_back_does_not_wait_for_pods_that_hold_devices(
    operator: Managed,
) -> None:
    operator.install()
    operator.fleet.held.update({"node-0": 2, "node-1": 1})
    switch(operator, **DRA)
    assert NODES == offers(operator.fleet)
    operator.fleet.claimed.update({"node-1": 1, "node-2": 2})
    switch(operator, **PLUGIN)
    assert NODES == operator.fleet.deleted
    assert [] == offers(operator.fleet)
    assert "simple-device 3/6" == operator.fleet.status("sim")["devices"]
    operator.fleet.claimed.clear()
    switch(operator)  # without DRA at all
    assert "device-plugin" == template(operator.fleet)["spec"]["serviceAccountName"]


@pytest.mark.slow
def test_what_claims_need_is_not_taken_from_nodes_that_offer_devices_through_dra(
    operator: Managed,
) -> None:
    operator.install(DRA)
    before = operator.fleet.uids()
    more = {"rollout": {"allowFewerDevices": True}}
    operator.fleet.apply("sim", plugin="simulated", simulated={}, **more)
    operator.wait_for("RolloutFailed", "Degraded")
    said = operator.fleet.message("sim", "Degraded")
    assert "node-0, node-1, node-2: devices are offered through DRA" in said
    assert "set protocol: device-plugin" in said
    assert before == operator.fleet.uids()
    switch(operator, **PLUGIN)
    switch(operator)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"publishes": False}, "node-0: example.com/simple-device 2 -> 0 after 120 s"),
        ({"devices": 1}, "node-0: example.com/simple-device 2 -> 1 after 120 s"),
        (
            {"ready": False, "said": "protocol dra: cdi-dir: /var/run/cdi: no such directory"},
            "protocol dra: cdi-dir: /var/run/cdi: no such directory",
        ),
    ],
    ids=["no slices", "one device less", "no CDI"],
)
def test_a_canary_that_fails_goes_back_to_pods_that_know_of_claims(
    operator: Managed, change: Mapping[str, Any], said: str
) -> None:
    operator.install()
    operator.fleet.behave = as_dra(change)
    operator.apply(DRA)
    operator.wait(lambda: ["node-0", *NODES[1:], "node-0"] == operator.fleet.deleted)
    operator.pass_deadline(ready=change.get("ready", True))
    operator.wait_for("RolloutFailed", "Degraded")
    operator.wait(lambda: "rolled back" in operator.fleet.message("sim", "Degraded"))
    assert said in operator.fleet.message("sim", "Degraded")
    assert [*NODES, "node-0", "node-0"] == operator.fleet.deleted
    assert DRIVER == desired.driver(template(operator.fleet))
    assert not desired.is_dra(template(operator.fleet))


def test_a_node_that_still_offers_devices_by_the_old_protocol_is_not_done(
    operator: Managed,
) -> None:
    operator.install(PLUGIN)
    fleet = operator.fleet
    fleet.behave = as_dra({"withdraws": False})
    operator.apply(DRA)
    operator.pass_deadline(ready=True)
    operator.wait(lambda: "rolled back" in fleet.message("sim", "Degraded"))
    said = "still offered by the protocol before: example.com/simple-device 2"
    assert said in fleet.message("sim", "Degraded")


@pytest.mark.slow
@pytest.mark.parametrize("installed", [True, False])
def test_rights_that_are_missing_are_named_before_a_pod_is_touched(
    operator: Managed, *, installed: bool
) -> None:
    if installed:
        operator.install()
    fleet = operator.fleet
    restrict(fleet, "resource.k8s.io")
    operator.apply(DRA)
    operator.wait_for("RightsMissing", "Degraded")
    said = fleet.message("sim", "Degraded")
    assert f"driver {DRIVER} has no account with rights in {SPACE}" in said
    assert "kubectl get dpl sim --output yaml | kubectl exec" in said
    assert f"rights --classes {RESOURCE} - | kubectl apply -f -" in said
    operator.wait(lambda: [said] == operator.events("RightsMissing"))
    assert [] == fleet.deleted
    assert installed == bool(fleet.pods())
    owner = {"metadata": {"name": "sim"}, "spec": {"plugin": "simulated", "simulated": DRA}}
    for one in yaml.safe_load_all(rights.rendered([read(owner)], SPACE)):
        if one["kind"] in {"ClusterRole", "ClusterRoleBinding", "DeviceClass"}:
            kinds = {"ClusterRole": CLUSTER_ROLE, "ClusterRoleBinding": CLUSTER_ROLE_BINDING}
            fleet.store.create(kinds.get(one["kind"], DEVICE_CLASS), one)
    operator.wait(lambda: fleet.is_ready("sim"))
    assert NODES == offers(fleet)
    assert ("True", "OneDeviceClass") == fleet.condition("sim", "DeviceClasses")


@pytest.mark.slow
def test_an_old_cluster_is_named_before_a_pod_is_touched(operator: Managed) -> None:
    operator.install()
    operator.fleet.unknown.add(RESOURCE_SLICE)
    operator.apply(DRA)
    operator.wait_for("NoDRA", "Degraded")
    assert "Kubernetes 1.34" in operator.fleet.message("sim", "Degraded")
    assert [] == operator.fleet.deleted
    operator.fleet.unknown.clear()
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    assert NODES == offers(operator.fleet)


@pytest.mark.slow
def test_an_operator_that_may_not_read_slices_takes_nothing_that_claims_need(
    operator: Managed,
) -> None:
    operator.install(DRA)
    operator.stop()
    restrict(operator.fleet)
    operator.apply()
    operator.start()
    operator.wait_for("NoDRA", "Degraded")
    assert "apply the rights of this release" in operator.fleet.message("sim", "Degraded")
    unrestrict(operator.fleet)
    operator.wait_for("RolloutFailed", "Degraded")
    assert "offered through DRA" in operator.fleet.message("sim", "Degraded")
    assert [] == operator.fleet.deleted


@pytest.mark.slow
def test_a_switch_waits_while_slices_cannot_be_read_and_then_goes_on(operator: Managed) -> None:
    operator.install(PLUGIN)
    operator.fleet.behave = as_dra({"ready": False})
    operator.apply(DRA)
    operator.wait(lambda: ["node-0"] == operator.fleet.deleted)
    restrict(operator.fleet)
    operator.wait_for("NoDRA", "Degraded")
    operator.ahead += DEADLINE
    operator.fleet.behave = as_configured
    pod = operator.fleet.pods()["node-0"]["metadata"]["name"]
    operator.fleet.store.remove(POD, SPACE, pod)
    operator.wait(lambda: offers(operator.fleet))
    unrestrict(operator.fleet)
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    assert NODES == offers(operator.fleet)
    assert ["node-0", *NODES[1:]] == operator.fleet.deleted


def test_the_status_says_when_no_class_or_several_name_a_resource(operator: Managed) -> None:
    fleet = operator.fleet
    operator.install(DRA)
    assert ("False", "NoDeviceClass") == fleet.condition("sim", "DeviceClasses")
    said = fleet.message("sim", "DeviceClasses")
    assert said.startswith(f"no DeviceClass has extendedResourceName {RESOURCE}: kubectl get dpl")
    add_class(fleet, "first")
    operator.wait_for("OneDeviceClass", "DeviceClasses")
    add_class(fleet, "other", "example.com/other")
    add_class(fleet, "second")
    operator.wait_for("SeveralDeviceClasses", "DeviceClasses")
    said = fleet.message("sim", "DeviceClasses")
    assert f"first, second have extendedResourceName {RESOURCE}: keep one" == said
    assert fleet.is_ready("sim")


@pytest.mark.slow
def test_profiles_have_protocols_of_their_own(operator: Managed) -> None:
    fleet = operator.fleet
    fleet.label("node-1", protocol="dra")
    spec = {"plugin": "simulated", "simulated": {}, "profileLabel": "protocol"}
    fleet.apply("sim", **spec, profiles={"dra": {"simulated": DRA}})
    operator.wait(lambda: fleet.is_ready("sim"))
    assert ["node-1"] == offers(fleet)
    assert "simple-device 6/6" == fleet.status("sim")["devices"]
    # A node that leaves the profile has to release what claims hold.
    assert DRIVER == desired.driver(template(fleet))
    fleet.claimed["node-1"] = 1
    fleet.label("node-1", protocol="none")
    fleet.label("node-2", protocol="dra")
    operator.wait(lambda: ["node-2"] == offers(fleet) and fleet.is_ready("sim"))
    operator.wait(lambda: "simple-device 5/6" == fleet.status("sim")["devices"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "deleted"),
    [({}, DRA, 0), ({}, DRA, 1), ({}, DRA, 3), ({}, DRA, 4), (DRA, PLUGIN, 1), (DRA, PLUGIN, 2)],
)
def test_an_operator_that_is_killed_in_the_middle_of_a_switch_ends_the_same(
    operator: Managed, before: Mapping[str, Any], after: Mapping[str, Any], deleted: int
) -> None:
    fleet = operator.fleet
    operator.install(before)
    operator.apply(after)
    operator.wait(lambda: len(fleet.deleted) >= deleted)
    operator.stop()
    operator.start()
    operator.wait(lambda: fleet.is_ready("sim"))
    assert (NODES if after is DRA else []) == offers(fleet)
    assert NODES * (2 if after is DRA else 1) == fleet.deleted
    assert 1 == fleet.most_away


# What counts

SLICE: dict[str, Any] = {"node": "n", "driver": DRIVER, "pool": "p", "generation": 1, "of": 1}


def made(*devices: Mapping[str, Any], **more: Any) -> Object:
    place = {**SLICE, **more}
    pool = {"name": place["pool"], "generation": place["generation"]}
    spec = {"driver": place["driver"], "nodeName": place["node"], "devices": [*devices]}
    return {"spec": {**spec, "pool": {**pool, "resourceSliceCount": place["of"]}}}


def device(*taints: str, shares: str = "", resource: str = "a/b") -> Object:
    found: Object = {"attributes": {"resource": {"string": resource}}}
    found["taints"] = [{"key": one, "effect": "NoSchedule"} for one in taints]
    shared = {"allowMultipleAllocations": True, "capacity": {"shares": {"value": shares}}}
    return found | (shared if shares else {})


HELD, ILL = f"{DRIVER}/held", f"{DRIVER}/unhealthy"


def test_what_is_no_resource_is_not_taken_from_slices_into_a_command() -> None:
    odd = [device(resource=one) for one in ("", "a.b/c;d", "a.b/$(e)", "a.b/c d", "a.b/*")]
    assert {} == offered([slice_of(made(*odd))])["n"].total


@pytest.mark.parametrize(
    ("slices", "healthy", "total"),
    [
        ([made()], 0, 0),
        ([made(device(), device())], 2, 2),
        ([made(device(), device(ILL), device(HELD))], 2, 3),
        ([made(device(HELD, ILL), device("other/held"))], 0, 2),
        ([made(device(shares="4"), device(shares="2k"))], 2004, 2004),
        ([made(device(), of=2)], 0, 0),
        ([made(device(), of=2), made(device(), of=2)], 2, 2),
        ([made(device(), device()), made(device(), generation=2)], 1, 1),
        ([made(device(), device()), made(device(), generation=2, of=2)], 0, 0),
        ([made(device()), made(device(), pool="q"), made(device(), driver="x.y")], 3, 3),
        ([made(device()), made(device(), node="m"), made(device(resource="c/d"), pool="r")], 1, 1),
    ],
)
def test_devices_of_complete_pools_count(slices: list[Object], healthy: int, total: int) -> None:
    found = offered(map(slice_of, slices))["n"]
    assert (healthy, total) == (found.healthy.get("a/b", 0), found.total.get("a/b", 0))


def facts(allocatable: int, capacity: int, *slices: Object) -> NodeFacts:
    dra = offered(map(slice_of, [made(*slices)])) if slices else {}
    healthy = {"a/b": allocatable + (dra["n"].healthy.get("a/b", 0) if dra else 0)}
    total = {"a/b": capacity}
    return NodeFacts("n", {}, ready=True, total=total, healthy=healthy, dra=dra.get("n", NOTHING))


@pytest.mark.parametrize(
    ("node", "to_dra", "was_dra", "done"),
    [
        (facts(0, 4, device(), device(), device(HELD), device(HELD)), True, False, True),
        (facts(0, 4, device(), device(), device(ILL), device(HELD)), True, False, False),
        (facts(1, 4, device(), device(), device(HELD), device(HELD)), True, False, False),
        (facts(0, 4), True, False, False),
        (facts(0, 4, device(shares="1")), True, False, True),
        (facts(0, 4, device(shares="1")), True, True, False),
        (facts(4, 4), False, True, True),
        (facts(1, 4), False, True, True),
        (facts(0, 3), False, True, False),
        (facts(4, 4, device()), False, True, False),
        (facts(1, 4), False, False, False),
        (facts(0, 4, device(), device(), device()), True, True, False),
    ],
)
def test_a_node_is_done_when_nothing_is_lost_or_offered_twice(
    node: NodeFacts, *, to_dra: bool, was_dra: bool, done: bool
) -> None:
    devices = node.offers(["a/b"])
    member = Member(
        "n",
        ready=True,
        devices=devices,
        pod=Pod("p", "u", "new", ready=True),
        is_dra=to_dra,
        listed=node.listed(devices, is_dra=to_dra),
        left=node.left(devices, is_dra=to_dra),
    )
    note = Taken(1.0, {"a/b": 4}, well=True, ready=1.0, by_dra=was_dra)
    found = next_step([member], Rollout(), Progress("new", "old", taken={"n": note}), 100.0)
    assert done == (found.state == "Done")
