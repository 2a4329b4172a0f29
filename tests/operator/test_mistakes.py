"""What becomes of an administrator's mistakes: no node loses the plugin, the status says why."""

from collections.abc import Callable
from typing import Any

import pytest

from cluster.admission import admission_policy, quota, webhook
from cluster.kinds import CONFIG_MAP, DAEMON_SET, DEVICE_PLUGIN, NAMESPACE, NODE, POD, Object
from deviceplugin.apiserver import ApiServer
from deviceplugin_operator import names
from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.fleet import Fleet
from operators.fleet_cluster import SPACE
from operators.managed import Managed
from operators.pods import RESOURCE


def has_other_image(daemon_set: Object) -> bool:
    (own,) = daemon_set["spec"]["template"]["spec"]["containers"]
    return bool(own["image"].startswith("other"))


def change(operator: Managed, **more: Any) -> None:
    operator.fleet.apply("sim", plugin="simulated", **more)


def delete_daemon_set(operator: Managed) -> None:
    """Delete it as kubectl does, and wait until its pods are gone."""
    uids = {*operator.fleet.uids().values()}
    operator.fleet.store.remove(DAEMON_SET, SPACE, "dp-sim")
    operator.wait(lambda: not uids & {*operator.fleet.uids().values()})


SLOW = webhook(
    DAEMON_SET,
    has_other_image,
    500,
    "InternalError",
    "Internal error occurred: failed calling webhook: context deadline exceeded",
)
REFUSALS = {
    "a policy": (admission_policy(DAEMON_SET, has_other_image), "'guard' denied request"),
    "a webhook with 409": (
        webhook(DAEMON_SET, has_other_image, 409, "Conflict", "denied: is in use"),
        "409: denied: is in use",
    ),
    "a webhook that is late": (SLOW, "500: Internal error occurred: failed calling webhook"),
}


@pytest.mark.parametrize("how", REFUSALS)
def test_a_change_that_the_api_server_refuses_touches_nothing_and_its_words_are_in_the_status(
    operator: Managed, how: str
) -> None:
    refuse, words = REFUSALS[how]
    operator.install()
    before, good = operator.fleet.uids(), operator.fleet.daemon_set("dp-sim")
    operator.fleet.policies.append(refuse)
    change(operator, image="other:1")
    operator.wait_for("RequestFailed", "Degraded")
    message = operator.fleet.message("sim", "Degraded")
    assert message.startswith("DaemonSet dp-sim: the API server answers ")
    assert words in message
    assert ("False", "RequestFailed") == operator.fleet.condition("sim", "Ready")
    assert "True" == operator.fleet.condition("sim", "Accepted")[0]
    assert {"desired": 3, "updated": 0, "ready": 3} == operator.fleet.status("sim")["nodes"]
    assert before == operator.fleet.uids()
    assert good["metadata"]["uid"] == operator.fleet.daemon_set("dp-sim")["metadata"]["uid"]
    operator.wait(lambda: [message] == operator.events("RequestFailed"))
    operator.fleet.policies.clear()
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    assert {"other:1"} == {
        one["spec"]["containers"][0]["image"] for one in operator.fleet.pods().values()
    }


def test_while_the_api_server_refuses_a_change_hand_edits_are_undone_and_what_is_deleted_comes_back(
    operator: Managed,
) -> None:
    operator.install()
    good = operator.fleet.daemon_set("dp-sim")["spec"]
    operator.fleet.policies.append(admission_policy(DAEMON_SET, has_other_image))
    change(operator, image="other:1")
    operator.wait_for("RequestFailed", "Degraded")

    def edit(found: Object) -> None:
        found["spec"]["template"]["spec"]["tolerations"] = []

    operator.fleet.store.change(DAEMON_SET, SPACE, "dp-sim", edit)
    operator.wait(lambda: operator.fleet.daemon_set("dp-sim")["spec"] == good)
    delete_daemon_set(operator)
    operator.wait(lambda: len(operator.fleet.pods()) == 3)
    assert good == operator.fleet.daemon_set("dp-sim")["spec"]
    operator.wait_for("RequestFailed", "Degraded")  # it is not while what was good is restored


CREATIONS = {
    "its ConfigMap": (quota(CONFIG_MAP, lambda _: True), "ConfigMap dp-sim."),
    "its DaemonSet": (quota(DAEMON_SET, lambda _: True), "DaemonSet dp-sim: "),
    "a pod's end": (admission_policy(POD, lambda _: True, "DELETE"), "Pod "),
    "its annotation": (
        admission_policy(
            DAEMON_SET, lambda one: "node-0" in one["metadata"]["annotations"][names.ROLLOUT]
        ),
        "DaemonSet dp-sim: ",
    ),
}


@pytest.mark.parametrize("what", CREATIONS)
def test_whatever_else_is_refused_is_in_the_status_and_nothing_is_lost(
    operator: Managed, what: str
) -> None:
    refuse, words = CREATIONS[what]
    operator.install()
    before = operator.fleet.uids()
    operator.fleet.policies.append(refuse)
    if what == "its DaemonSet":
        operator.fleet.store.remove(DAEMON_SET, SPACE, "dp-sim")
    operator.apply({"number-devices": 4})
    operator.wait_for("RequestFailed", "Degraded")
    assert operator.fleet.message("sim", "Degraded").startswith(words)
    assert ("False", "RequestFailed") == operator.fleet.condition("sim", "Ready")
    assert what == "its DaemonSet" or before == operator.fleet.uids()
    operator.fleet.policies.clear()
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    assert "simple-device 12/12" == operator.fleet.status("sim")["devices"]


def test_a_namespace_that_ends_is_said_and_nothing_is_shown_as_ready(operator: Managed) -> None:
    operator.install()
    operator.fleet.store.delete(NAMESPACE, "", SPACE)
    operator.fleet.store.remove(DAEMON_SET, SPACE, "dp-sim")
    operator.wait_for("RequestFailed")
    assert "because it is being terminated" in operator.fleet.message("sim", "Ready")
    assert {"desired": 0, "updated": 0, "ready": 0} == operator.fleet.status("sim")["nodes"]


def with_other_selector(operator: Managed) -> str:
    """Have a DaemonSet whose selector is not ours; return its UID."""
    operator.stop()
    found = operator.fleet.daemon_set("dp-sim")
    operator.fleet.store.remove(DAEMON_SET, SPACE, "dp-sim")
    found["spec"]["selector"]["matchLabels"][names.PLUGIN] = "simulated"
    uid = str(operator.fleet.store.create(DAEMON_SET, found)["metadata"]["uid"])

    def has_its_own_pods() -> bool:
        pods = operator.fleet.pods().values()
        owners = [one["metadata"]["ownerReferences"][0]["uid"] for one in pods]
        return owners == [uid] * 3

    operator.wait(has_its_own_pods)  # and not those of the one before
    operator.start()
    return uid


def daemon_sets(operator: Managed) -> set[str]:
    """Return the UIDs; for a moment there can be none."""
    return {one["metadata"]["uid"] for one in operator.fleet.store.list(DAEMON_SET)}


def test_a_daemon_set_with_another_selector_is_made_anew(operator: Managed) -> None:
    operator.install()
    other = with_other_selector(operator)
    operator.wait(lambda: {other} != daemon_sets(operator) != set())
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    labels = operator.fleet.daemon_set("dp-sim")["spec"]["selector"]["matchLabels"]
    assert {names.OWNER, names.PROFILE_LABEL} == labels.keys()


def test_nothing_is_deleted_whose_replacement_the_api_server_would_refuse(
    operator: Managed,
) -> None:
    operator.install()
    operator.fleet.policies.append(admission_policy(DAEMON_SET, lambda _: True))
    other = with_other_selector(operator)
    before = operator.fleet.uids()
    operator.wait_for("RequestFailed", "Degraded")
    assert other == operator.fleet.daemon_set("dp-sim")["metadata"]["uid"]
    assert before == operator.fleet.uids()


def test_what_is_refused_although_a_dry_run_was_not_leaves_the_old_one_and_is_not_tried_again(
    operator: Managed,
) -> None:
    operator.install()

    def is_ours(found: Object) -> bool:
        return names.PLUGIN not in found["spec"]["selector"]["matchLabels"]

    operator.fleet.policies.append(admission_policy(DAEMON_SET, is_ours, in_dry_run=False))
    other = with_other_selector(operator)
    operator.wait_for("RequestFailed", "Degraded")
    operator.wait(
        lambda: "its replacement was refused before" in operator.fleet.message("sim", "Degraded")
    )
    assert {other} != daemon_sets(operator) != set()
    assert 3 == len(operator.fleet.pods())


# Nodes that a change would leave without the plugin


def narrowed(operator: Managed) -> None:
    change(operator, nodeSelector={"kubernetes.io/oss": "linux"})


def for_one_node_less(operator: Managed) -> None:
    for node in ("node-0", "node-1"):
        operator.fleet.label(node, zone="a")
    change(operator, nodeSelector={"zone": "a"})


@pytest.mark.parametrize(
    ("edit", "lost"),
    [(narrowed, "node-0, node-1, node-2: "), (for_one_node_less, "node-2: ")],
)
def test_a_selector_that_leaves_nodes_without_the_plugin_is_not_applied_unless_that_is_allowed(
    operator: Managed, edit: Callable[[Managed], None], lost: str
) -> None:
    operator.install({"number-devices": 2})
    before, good = operator.fleet.uids(), operator.fleet.daemon_set("dp-sim")["spec"]
    edit(operator)
    operator.wait_for("RolloutFailed", "Degraded")
    message = operator.fleet.message("sim", "Degraded")
    assert message.startswith(f"{lost}would be without the plugin: correct spec.nodeSelector")
    assert message.endswith("; nothing was changed")
    assert ("False", "RolloutFailed") == operator.fleet.condition("sim", "Ready")
    assert "simple-device 6/6" == operator.fleet.status("sim")["devices"]
    assert {"desired": 3, "updated": 0, "ready": 3} == operator.fleet.status("sim")["nodes"]
    operator.wait(lambda: operator.events("RolloutFailed") == [message])
    assert before == operator.fleet.uids()
    assert good == operator.fleet.daemon_set("dp-sim")["spec"]
    spec = operator.fleet.store.get(DEVICE_PLUGIN, "", "sim")["spec"]
    operator.fleet.apply("sim", **spec, rollout={"allowFewerDevices": True})
    operator.wait(lambda: operator.fleet.condition("sim", "Degraded")[1] == "AsExpected")
    operator.wait(lambda: operator.events("NodesLeft") != [])
    assert f"node-2 ({RESOURCE} 2)" in operator.events("NodesLeft")[0]


@pytest.fixture
def rarely(operator: Managed) -> Managed:
    """Return an operator that has seen the nodes, and looks at them by itself no more."""
    operator.install({"number-devices": 2})
    operator.stop()
    operator.nodes_every = 3600.0
    controller = operator.start()
    operator.wait(controller.fleet.nodes)
    return operator


def test_a_change_is_judged_by_the_labels_that_nodes_were_given_before_it(rarely: Managed) -> None:
    for_one_node_less(rarely)
    rarely.wait_for("RolloutFailed", "Degraded")
    message = rarely.fleet.message("sim", "Degraded")
    assert message.startswith("node-2: would be without the plugin")
    rarely.wait(lambda: rarely.events("RolloutFailed") == [message])


def test_so_is_whether_another_object_has_these_nodes(rarely: Managed) -> None:
    rarely.fleet.label("node-1", size="big")
    rarely.fleet.apply("younger", plugin="simulated", nodeSelector={"size": "big"})
    rarely.wait_for("Conflict", "Accepted", "younger")
    message = rarely.fleet.message("younger", "Accepted")
    assert "DevicePlugin sim already covers nodes: node-1" == message
    assert not rarely.fleet.store.exists(DAEMON_SET, SPACE, "dp-younger")


def test_a_slow_look_at_nodes_does_not_replace_a_later_one(operator: Managed) -> None:
    answers: list[int] = []

    def look_again(_method: str, status: int) -> None:
        answers.append(status)
        if len(answers) == 1:
            operator.fleet.label("node-0", zone="a")
            nodes.refresh()

    nodes = Fleet(ApiServer(operator.fleet.url, count=look_again))
    nodes.refresh()
    nodes.stop()
    assert [200, 200] == answers[:2]
    assert ["node-0"] == [one.name for one in nodes.matching({"zone": "a"})]


def test_a_change_on_its_way_goes_back_when_the_next_one_would_lose_nodes(
    operator: Managed,
) -> None:
    operator.install({"number-devices": 2})
    good = operator.revision()["good"]
    operator.apply({"seed": 13})
    operator.wait(lambda: operator.fleet.deleted)
    narrowed(operator)
    operator.wait(lambda: "nothing was changed" in operator.fleet.message("sim", "Degraded"))
    operator.wait(lambda: operator.fleet.status("sim")["nodes"]["ready"] == 3)
    revision = operator.revision()
    assert good == revision["applied"] == revision["good"]


def test_nor_is_it_applied_if_the_config_map_of_the_last_good_state_was_deleted(
    operator: Managed,
) -> None:
    operator.install()
    before = operator.fleet.uids()
    operator.stop()
    (found,) = maps(operator)
    operator.fleet.store.remove(CONFIG_MAP, SPACE, found["metadata"]["name"])
    narrowed(operator)
    operator.start()
    operator.wait(lambda: "nothing was changed" in operator.fleet.message("sim", "Degraded"))
    assert before == operator.fleet.uids()


def test_an_image_of_ours_is_not_applied_where_it_cannot_run(operator: Managed) -> None:
    operator.fleet.label("node-1", **{"kubernetes.io/arch": "riscv64"})
    change(operator, image="mine:1")
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    assert 3 == len(operator.fleet.pods())
    change(operator)
    operator.wait_for("RolloutFailed", "Degraded")
    assert operator.fleet.message("sim", "Degraded").startswith("node-1: would be without")
    assert 3 == len(operator.fleet.pods())


def test_a_node_that_loses_its_label_is_no_change_of_the_object_and_an_event_names_it(
    operator: Managed,
) -> None:
    for number in range(3):
        operator.fleet.label(f"node-{number}", zone="a")
    change(operator, nodeSelector={"zone": "a"})
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    operator.wait(lambda: operator.fleet.status("sim")["baseline"])
    operator.fleet.label("node-1", zone="b")
    operator.wait(lambda: operator.events("NodesLeft"))
    said = f"nodes without the plugin that had devices: node-1 ({RESOURCE} 2)"
    assert [said] == operator.events("NodesLeft")
    assert operator.fleet.is_ready("sim")
    operator.fleet.store.remove(NODE, "", "node-0")  # that is no loss of the plugin
    operator.wait(lambda: operator.fleet.status("sim")["nodes"]["desired"] == 1)
    operator.wait(lambda: baseline(operator) == {"node-2": {RESOURCE: 2}})
    assert [said] == operator.events("NodesLeft")


def baseline(operator: Managed) -> object:
    return progress_note.baseline(operator.fleet.store.get(DEVICE_PLUGIN, "", "sim"))


def test_a_label_that_names_no_profile_is_in_the_status(operator: Managed) -> None:
    operator.fleet.label("node-2", size="bgi")
    big = {"big": {"simulated": {"number-devices": 7}}}
    change(operator, profileLabel="size", profiles=big)
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    assert ("True", "UnknownProfile") == operator.fleet.condition("sim", "Accepted")
    message = operator.fleet.message("sim", "Accepted")
    assert "the label size names no profile: general settings for node-2 (bgi)" == message
    operator.fleet.label("node-2", size="big")
    operator.wait(lambda: operator.fleet.condition("sim", "Accepted") == ("True", "Valid"))


# A DaemonSet that somebody deletes

FOUR, ONE = {"number-devices": 4}, {"number-devices": 1}


def is_back(operator: Managed) -> bool:
    """Return whether the last good state is back, and the change to one device is refused."""
    said = operator.fleet.message("sim", "Degraded")
    revision = operator.revision()
    return (
        f"{RESOURCE} 4 -> 1 after 120 s; rolled back to {revision['good']}" in said
        and revision["good"] == revision["applied"] != revision["refused"] == revision["wanted"]
        and operator.fleet.status("sim")["devices"] == "simple-device 12/12"
    )


@pytest.mark.parametrize("is_away", [False, True])
def test_a_daemon_set_that_is_deleted_amid_a_roll_out_does_not_make_fewer_devices_good(
    operator: Managed, *, is_away: bool
) -> None:
    operator.install(FOUR)
    operator.apply(ONE)
    operator.wait(lambda: operator.fleet.deleted)
    if is_away:
        operator.stop()
        operator.apply(ONE)
    delete_daemon_set(operator)
    if is_away:
        operator.start()
    operator.wait(lambda: len(operator.fleet.deleted) > 1)  # another canary is taken
    operator.pass_deadline(ready=True)
    operator.wait(lambda: is_back(operator))


def test_what_was_rolled_back_is_not_tried_again_because_its_daemon_set_was_deleted(
    operator: Managed,
) -> None:
    operator.install(FOUR)
    operator.apply(ONE)
    operator.pass_deadline(ready=True)
    operator.wait(lambda: is_back(operator))
    operator.fleet.deleted.clear()
    delete_daemon_set(operator)
    operator.wait(lambda: len(operator.fleet.pods()) == 3)
    operator.wait(lambda: is_back(operator))
    assert [] == operator.fleet.deleted


# Profiles


def sized(operator: Managed, devices: int | None, **more: Any) -> None:
    """Have two devices, and as many as given on nodes whose size is big, if at all."""
    given = {"big": {"simulated": {"number-devices": devices}}}
    with_big = {"profileLabel": "size", "profiles": given} if devices else {}
    change(operator, simulated={"number-devices": 2}, **with_big, **more)


def test_a_profile_whose_end_loses_devices_comes_back(operator: Managed) -> None:
    operator.fleet.label("node-2", size="big")
    sized(operator, 7)
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 11/11")
    sized(operator, None)
    operator.wait(lambda: not operator.fleet.store.exists(DAEMON_SET, SPACE, "dp-sim.big"))
    operator.pass_deadline(ready=True)
    operator.wait_for("RolloutFailed", "Degraded")
    assert "node-2: example.com/simple-device 7 -> 2" in operator.fleet.message("sim", "Degraded")
    operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 11/11")
    assert operator.fleet.store.exists(DAEMON_SET, SPACE, "dp-sim.big")
    sized(operator, None, rollout={"allowFewerDevices": True})
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 6/6")
    left = {one["metadata"]["labels"][names.PROFILE_LABEL] for one in maps(operator)}
    assert {""} == left


def maps(operator: Managed) -> list[Object]:
    return operator.fleet.store.list(CONFIG_MAP, SPACE)


def test_a_profile_whose_end_is_refused_keeps_its_daemon_set(operator: Managed) -> None:
    operator.fleet.label("node-2", size="big")
    sized(operator, 7)
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    before = operator.fleet.uids()
    operator.fleet.policies.append(admission_policy(DAEMON_SET, lambda _: True, "UPDATE"))
    sized(operator, None)
    operator.wait_for("RequestFailed", "Degraded")
    assert before == operator.fleet.uids()


def test_a_new_profile_with_fewer_devices_on_its_nodes_is_not_good(operator: Managed) -> None:
    operator.fleet.label("node-2", size="big")
    sized(operator, None)
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    sized(operator, 1)
    operator.wait(lambda: len(operator.fleet.deleted) == 2)
    operator.wait(lambda: operator.revision()["good"] == operator.revision()["wanted"])
    operator.pass_deadline("dp-sim.big", ready=True)
    operator.wait_for("RolloutFailed", "Degraded")
    message = operator.fleet.message("sim", "Degraded")
    assert f"profile big: node-2: {RESOURCE} 2 -> 1 after 120 s; halted" == message


def test_two_operators_at_once_end_the_same(operator: Managed) -> None:
    second = Managed(operator.fleet)
    second.start()
    try:
        operator.install(FOUR)
        operator.apply({"number-devices": 5})
        operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 15/15")
        # One that looks at an older list may replace a pod once more.
        assert {*operator.fleet.uids()} == {*operator.fleet.deleted}
        delete_daemon_set(operator)
        operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 15/15")
        operator.wait(lambda: operator.fleet.is_ready("sim"))
    finally:
        second.stop()
