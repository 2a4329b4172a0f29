"""What becomes of objects: roll-outs, failures, drift, conflicts, on a fleet of nodes."""

import threading
from typing import Any

import pytest

from cluster.kinds import CONFIG_MAP, DAEMON_SET, DEVICE_PLUGIN, NODE, POD, Object
from deviceplugin_operator import names
from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.observed import OWNERS
from deviceplugin_operator.rollout import desired
from operators.fleet_cluster import SPACE
from operators.managed import DEADLINE, Managed
from operators.pods import RESOURCE, Life, as_configured, is_ready

UNLUCKY = 13
"""The seed with which no pod of a fleet becomes ready."""


def container(daemon_set: Object) -> Any:
    return daemon_set["spec"]["template"]["spec"]["containers"][0]


def have_more_logged(daemon_set: Object) -> None:
    container(daemon_set)["env"].append({"name": "DP_LOG_LEVEL", "value": "debug"})


def test_an_object_becomes_a_daemon_set_and_its_devices_are_in_the_status(
    operator: Managed,
) -> None:
    operator.install({"number-devices": 1000})
    amounts = operator.fleet.store.get(NODE, "", "node-0")["status"]["allocatable"]
    assert "1k" == amounts[RESOURCE]
    status = operator.fleet.status("sim")
    assert {"desired": 3, "updated": 3, "ready": 3} == status["nodes"]
    assert "simple-device 3000/3000" == status["devices"]
    resource = {"name": RESOURCE, "healthy": 3000, "total": 3000, "nodes": 3}
    assert [resource] == status["resources"]
    daemon_set = operator.fleet.daemon_set("dp-sim")
    assert "simulated-device-plugin:0.1.0" == container(daemon_set)["image"]
    assert "device-plugin" == daemon_set["spec"]["template"]["spec"]["serviceAccountName"]
    for one in (daemon_set, *operator.fleet.store.list(CONFIG_MAP, SPACE)):
        assert "sim" == one["metadata"]["ownerReferences"][0]["name"]
    owner = operator.fleet.store.get(DEVICE_PLUGIN, "", "sim")
    assert not {"finalizers", "annotations"} & owner["metadata"].keys()


def test_a_bad_change_touches_one_node_and_is_rolled_back(operator: Managed) -> None:
    operator.install()
    before = operator.fleet.uids()
    operator.apply({"seed": UNLUCKY})
    operator.pass_deadline()
    operator.wait_for("RolloutFailed", "Degraded")
    operator.wait(lambda: operator.fleet.condition("sim", "Progressing")[1] == "Done")
    assert "node-0: its pod is not ready after 120 s: unlucky seed" in operator.fleet.message(
        "sim", "Degraded"
    )
    assert ("False", "RolloutFailed") == operator.fleet.condition("sim", "Ready")
    after = operator.fleet.uids()
    assert {"node-0"} == {node for node in before if before[node] != after[node]}
    assert all(map(is_ready, operator.fleet.pods().values()))
    revision = operator.revision()
    assert revision["applied"] == revision["good"] != revision["refused"] == revision["wanted"]
    operator.wait(lambda: operator.events("RolloutFailed"))


def test_a_change_that_renames_the_resource_is_rolled_back_unless_that_is_allowed(
    operator: Managed,
) -> None:
    operator.install({"number-devices": 4})
    renamed: dict[str, Any] = {"number-devices": 4, "resource": "example.com/other"}
    operator.apply(renamed)
    operator.pass_deadline(ready=True)
    operator.wait_for("RolloutFailed", "Degraded")
    assert f"node-0: {RESOURCE} 4 -> 0 after 120 s" in operator.fleet.message("sim", "Degraded")
    operator.wait(lambda: "rolled back" in operator.fleet.message("sim", "Degraded"))
    operator.wait(lambda: operator.fleet.status("sim")["nodes"]["ready"] == 3)
    allowed = {"allowFewerDevices": True}
    operator.fleet.apply("sim", plugin="simulated", simulated=renamed, rollout=allowed)
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    operator.wait(lambda: operator.fleet.status("sim")["devices"] == "other 12/12")


def test_a_roll_back_is_under_way_until_every_node_has_its_pod_back(operator: Managed) -> None:
    operator.install()
    operator.apply({"seed": UNLUCKY})
    operator.wait(lambda: operator.fleet.deleted)
    operator.fleet.behave = lambda _node, _config: Life(ready=False, said="no luck")
    operator.pass_deadline()
    operator.wait_for("RolloutFailed", "Degraded")
    operator.wait(lambda: len(operator.fleet.deleted) == 2)
    assert "; rolling back to " in operator.fleet.message("sim", "Degraded")
    operator.fleet.behave = as_configured
    for pod in operator.fleet.store.list(POD, SPACE):
        if not is_ready(pod):
            operator.fleet.store.remove(POD, SPACE, pod["metadata"]["name"])
    operator.wait(lambda: "; rolled back to " in operator.fleet.message("sim", "Degraded"))


def test_while_an_object_is_refused_its_devices_are_counted_and_its_daemon_set_is_kept(
    operator: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    operator.install({"number-devices": 4})
    before, good = operator.fleet.uids(), operator.fleet.daemon_set("dp-sim")["spec"]
    operator.apply({"profile": "nonsense"})
    operator.wait_for("InvalidSettings", "Accepted")
    assert "spec.simulated: profile: 'nonsense' is not" in operator.fleet.message("sim", "Accepted")
    assert ("False", "InvalidSettings") == operator.fleet.condition("sim", "Ready")
    assert 3 == operator.fleet.status("sim")["nodes"]["ready"]
    assert "simple-device 12/12" == operator.fleet.status("sim")["devices"]
    operator.wait(lambda: operator.events("InvalidSettings"))

    operator.fleet.store.change(DAEMON_SET, SPACE, "dp-sim", have_more_logged)
    operator.wait(lambda: operator.fleet.daemon_set("dp-sim")["spec"] == good)
    operator.wait(lambda: operator.events("DriftCorrected"))
    assert ("False", "InvalidSettings") == operator.fleet.condition("sim", "Accepted")
    assert before == operator.fleet.uids()
    assert 1 == [one.message for one in caplog.records].count("object refused")
    operator.fleet.store.remove(DAEMON_SET, SPACE, "dp-sim")
    operator.wait(lambda: operator.fleet.store.exists(DAEMON_SET, SPACE, "dp-sim"))
    assert good == operator.fleet.daemon_set("dp-sim")["spec"]
    operator.install({"number-devices": 4})


def test_a_paused_object_that_is_refused_is_left_alone(operator: Managed) -> None:
    operator.install()
    settings = {"profile": "nonsense"}
    operator.fleet.apply("sim", plugin="simulated", simulated=settings, paused=True)
    operator.wait_for("InvalidSettings", "Accepted")

    operator.fleet.store.change(DAEMON_SET, SPACE, "dp-sim", have_more_logged)
    seen = operator.fleet.asked.count(OWNERS)
    operator.wait(lambda: operator.fleet.asked.count(OWNERS) > seen + 5)
    assert [] == operator.events("DriftCorrected")


def test_ready_is_never_true_for_a_spec_that_was_not_yet_applied(operator: Managed) -> None:
    operator.install()
    operator.stop()
    operator.apply({"number-devices": 9})
    assert ("", "") == operator.fleet.condition("sim", "Ready")  # what kubectl wait looks at
    operator.start()
    operator.wait(lambda: operator.fleet.is_ready("sim"))


@pytest.mark.parametrize("operator", [6], indirect=True)
def test_an_operator_that_is_killed_again_and_again_ends_the_same(operator: Managed) -> None:
    operator.install()
    operator.apply({"number-devices": 5})
    for number in range(1, 5):
        operator.wait(lambda number=number: len(operator.fleet.deleted) >= number)  # type: ignore[misc]
        operator.stop()
        operator.start()
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    assert 6 == len(operator.fleet.deleted) == len({*operator.fleet.deleted})
    assert 1 == operator.fleet.most_away


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its end
@pytest.mark.parametrize("writes", [1, 2, 3])
@pytest.mark.parametrize("seed", [1, UNLUCKY], ids=["good", "bad"])
def test_an_operator_that_is_killed_after_each_of_its_writes_ends_the_same(
    operator: Managed, writes: int, seed: int
) -> None:
    operator.install()
    before = operator.fleet.uids()
    operator.stop()
    operator.apply({"number-devices": 5, "seed": seed})
    lives = 0

    def is_over() -> bool:
        operator.ahead += seed == UNLUCKY  # as long as nothing is ready in time
        wanted = ("Done", "Progressing") if seed == UNLUCKY else ("Ready", "Ready")
        return operator.fleet.condition("sim", wanted[1])[1] == wanted[0]

    while not is_over():
        life = operator.start(writes)
        operator.wait(lambda life=life: life.problem() or is_over())  # type: ignore[misc]
        operator.stop()
        lives += 1
    assert lives > 2
    after = operator.fleet.uids()
    touched = {node for node in before if before[node] != after[node]}
    assert ({"node-0"} if seed == UNLUCKY else {*before}) == touched
    assert 1 == operator.fleet.most_away


def test_what_somebody_changes_by_hand_is_as_before_and_restarts_nothing(
    operator: Managed,
) -> None:
    operator.install()
    before, good = operator.fleet.uids(), operator.fleet.daemon_set("dp-sim")["spec"]

    def edit(found: Object) -> None:
        spec = found["spec"]["template"]["spec"]
        spec["containers"].append({"name": "evil", "image": "evil"})
        have_more_logged(found)
        container(found)["securityContext"]["privileged"] = True
        container(found)["image"] = "other"
        spec["tolerations"] = []
        found["spec"]["template"]["metadata"]["labels"]["other"] = "a"

    operator.fleet.store.change(DAEMON_SET, SPACE, "dp-sim", edit)
    operator.wait(lambda: operator.fleet.daemon_set("dp-sim")["spec"] == good)
    operator.wait(lambda: operator.events("DriftCorrected"))
    assert before == operator.fleet.uids()

    def relabel(found: Object) -> None:
        found["metadata"]["labels"][names.PLUGIN] = "other"

    def label() -> str:
        return str(operator.fleet.daemon_set("dp-sim")["metadata"]["labels"][names.PLUGIN])

    operator.fleet.store.change(DAEMON_SET, SPACE, "dp-sim", relabel)
    operator.wait(lambda: label() == "simulated")
    (found,) = operator.fleet.store.list(CONFIG_MAP, SPACE)
    operator.fleet.store.remove(CONFIG_MAP, SPACE, found["metadata"]["name"])
    operator.wait(lambda: operator.fleet.store.list(CONFIG_MAP, SPACE))
    (again,) = operator.fleet.store.list(CONFIG_MAP, SPACE)
    assert found["data"] == again["data"]
    assert before == operator.fleet.uids()


def test_an_object_that_is_deleted_takes_everything_with_it_without_the_operator(
    operator: Managed,
) -> None:
    operator.install()
    operator.stop()
    operator.fleet.store.delete(DEVICE_PLUGIN, "", "sim")
    operator.wait(lambda: not operator.fleet.pods())
    assert [] == operator.fleet.store.list(CONFIG_MAP, SPACE)


def test_of_two_objects_for_one_node_the_younger_waits(operator: Managed) -> None:
    operator.install(name="a-first")
    before = operator.fleet.uids()
    operator.apply({"number-devices": 1}, "b-second")
    operator.wait_for("Conflict", "Accepted", "b-second")
    message = operator.fleet.message("b-second", "Accepted")
    assert "DevicePlugin a-first already covers nodes: node-0, node-1, node-2" == message
    assert before == operator.fleet.uids()
    operator.fleet.store.delete(DEVICE_PLUGIN, "", "a-first")
    operator.wait(lambda: operator.fleet.is_ready("b-second"))


def test_nodes_have_the_settings_of_their_profile_and_change_it_with_the_label(
    operator: Managed,
) -> None:
    operator.fleet.label("node-2", size="big")
    spec = {
        "plugin": "simulated",
        "profileLabel": "size",
        "profiles": {"big": {"simulated": {"number-devices": 7}}},
    }
    operator.fleet.apply("sim", **spec)
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 11/11")
    operator.fleet.label("node-0", size="big")
    operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 16/16")
    del spec["profiles"], spec["profileLabel"]
    operator.fleet.apply("sim", **spec)
    operator.wait(lambda: not operator.fleet.store.exists(DAEMON_SET, SPACE, "dp-sim.big"))
    operator.wait(lambda: operator.fleet.status("sim").get("nodes", {}).get("ready") == 3)


def test_one_profile_changes_after_the_other(operator: Managed) -> None:
    operator.fleet.label("node-2", size="big")
    spec: dict[str, Any] = {
        "plugin": "simulated",
        "profileLabel": "size",
        "profiles": {"big": {"simulated": {"env-prefix": "BIG"}}},
    }
    operator.fleet.apply("sim", **spec)
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    operator.fleet.apply("sim", **spec, simulated={"number-devices": 5})
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 15/15")
    assert ["node-0", "node-1", "node-2"] == operator.fleet.deleted
    assert 1 == operator.fleet.most_away


def test_nothing_is_changed_for_an_object_that_is_paused(operator: Managed) -> None:
    operator.install()
    before = operator.fleet.uids()
    settings = {"number-devices": 5}
    operator.fleet.apply("sim", plugin="simulated", simulated=settings, paused=True)
    operator.wait_for("Paused")
    assert before == operator.fleet.uids()
    operator.install(settings)


def test_no_devices_are_not_ready(operator: Managed) -> None:
    operator.apply({"number-devices": 0}, "zero")
    operator.wait_for("NoDevices", name="zero")


def test_an_object_without_nodes_costs_nothing_while_nothing_happens(
    operator: Managed,
) -> None:
    operator.fleet.apply("none", plugin="simulated", nodeSelector={"no": "node"})
    operator.wait_for("NoNodes", name="none")
    seen = len(operator.fleet.asked)
    operator.wait(lambda: operator.fleet.asked[seen:].count(OWNERS) > 9)
    assert {OWNERS, "daemonsets", "configmaps", "nodes"} == {*operator.fleet.asked[seen:]}
    operator.fleet.label("node-1", no="node")
    operator.wait(lambda: operator.fleet.is_ready("none"))


def test_a_node_that_leaves_amid_a_roll_out_and_comes_back_is_not_late(operator: Managed) -> None:
    operator.fleet.label("node-0", zone="a")
    operator.fleet.apply("sim", plugin="simulated", nodeSelector={"zone": "a"})
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    operator.fleet.behave = lambda _node, _config: Life(ready=False, said="slow")
    slow = {"number-devices": 5}
    operator.fleet.apply("sim", plugin="simulated", simulated=slow, nodeSelector={"zone": "a"})
    operator.wait(lambda: operator.fleet.deleted)
    operator.fleet.label("node-0", zone="b")
    operator.wait_for("NoNodes")
    operator.ahead += DEADLINE
    operator.fleet.behave = as_configured
    operator.fleet.label("node-0", zone="a")
    operator.wait(lambda: operator.fleet.is_ready("sim"))


def test_a_pod_that_cannot_run_from_the_start_is_said_and_nothing_is_tried(
    operator: Managed,
) -> None:
    operator.apply({"seed": UNLUCKY})
    operator.wait(lambda: len(operator.fleet.pods()) == 3)
    operator.pass_deadline()
    operator.wait_for("RolloutFailed", "Degraded")
    assert "unlucky seed; halted" in operator.fleet.message("sim", "Degraded")
    operator.install()


def test_a_node_that_is_not_ready_is_named_and_skipped_and_a_new_one_counts(
    operator: Managed,
) -> None:
    operator.install()
    operator.fleet.set_ready("node-1", ready=False)
    operator.apply({"number-devices": 5})
    operator.wait(lambda: "skipped: node-1" in operator.fleet.message("sim", "Progressing"))
    operator.fleet.node("node-9")
    operator.wait(lambda: operator.fleet.deleted == ["node-0", "node-2"])
    operator.fleet.set_ready("node-1", ready=True)
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 20/20")
    assert ["node-0", "node-2", "node-1"] == operator.fleet.deleted


def test_unhealthy_devices_are_in_the_status_by_node(operator: Managed) -> None:
    operator.install()

    def ill(found: Object) -> None:
        found["status"]["allocatable"][RESOURCE] = "1"

    operator.fleet.store.change(NODE, "", "node-1", ill)
    operator.wait(lambda: operator.fleet.status("sim")["problems"])
    problem = {"node": "node-1", "resource": RESOURCE, "healthy": 1, "total": 2}
    assert [problem] == operator.fleet.status("sim")["problems"]
    assert "simple-device 5/6" == operator.fleet.status("sim")["devices"]


@pytest.mark.slow
def test_only_the_last_few_revisions_and_the_hashes_of_what_may_come_back_are_kept(
    operator: Managed,
) -> None:
    for number in range(2, 8):
        operator.install({"number-devices": number})
    operator.wait(lambda: len(operator.fleet.store.list(CONFIG_MAP, SPACE)) <= 4)
    found = operator.revision()
    assert [found["good"]] == [desired.called(one) for one in found["hashes"]]
    operator.apply({"number-devices": 7, "seed": UNLUCKY})
    operator.pass_deadline()
    operator.wait(lambda: "; rolled back to " in operator.fleet.message("sim", "Degraded"))
    found = operator.revision()
    both = {found["good"], found["wanted"]}
    assert both == {desired.called(one) for one in found["hashes"]}


@pytest.mark.slow
def test_a_server_that_is_away_is_waited_for(operator: Managed) -> None:
    operator.install()
    before = operator.fleet.uids()
    operator.fleet.away.set()
    operator.apply({"number-devices": 5})
    seen = len(operator.calls)
    operator.wait(lambda: len(operator.calls) > seen + 1)
    assert before == operator.fleet.uids()
    operator.fleet.away.clear()
    operator.wait(lambda: operator.fleet.is_ready("sim"))


@pytest.mark.slow
def test_what_a_store_has_that_was_restored_from_a_backup_is_believed(operator: Managed) -> None:
    operator.install()
    store = operator.fleet.store
    with store.changed:
        objects, version = (
            {kind: dict(found) for kind, found in store._objects.items()},
            store.version,
        )
    operator.install({"number-devices": 5})
    for number in range(300):  # so that it does not come to these versions again
        operator.fleet.label("node-0", zone=f"lost-{number}")
    controller = operator.controller
    assert controller is not None
    operator.wait(lambda: controller.fleet.matching({"zone": "lost-299"}))
    with store.changed:
        store._objects = objects
        del store._history[version - store._forgotten :]
    operator.fleet.answering.cut_watches()
    operator.wait(lambda: not controller.fleet.matching({"zone": "lost-299"}))
    operator.install({"number-devices": 7})
    operator.wait(lambda: operator.fleet.status("sim")["devices"] == "simple-device 21/21")
    assert store.version < version + 300


@pytest.mark.slow
def test_the_time_without_a_server_does_not_count_against_a_node(operator: Managed) -> None:
    """No kubelet can report meanwhile, and each needs a moment afterwards."""
    operator.install()
    operator.fleet.behave = lambda _node, _config: Life(ready=False, said="starts")
    operator.apply({"number-devices": 5})
    operator.wait(lambda: operator.fleet.deleted)

    def since() -> float:
        return progress_note.read(operator.fleet.daemon_set("dp-sim")).taken["node-0"].since

    before, controller = since(), operator.controller
    assert controller is not None
    operator.fleet.away.set()
    operator.wait(lambda: "sim" in controller._failing)
    operator.ahead += 5 * DEADLINE
    operator.fleet.away.clear()
    operator.wait(lambda: since() > before + 4 * DEADLINE)
    assert "False" == operator.fleet.condition("sim", "Degraded")[0]
    assert ["node-0"] == operator.fleet.deleted
    operator.pass_deadline()
    operator.wait_for("RolloutFailed", "Degraded")


def test_an_operator_that_cannot_list_or_has_lost_a_thread_says_so(
    operator: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = operator.controller
    assert controller is not None
    operator.install()
    assert "" == controller.problem()
    monkeypatch.setattr("deviceplugin_operator.controller.DEAF", -1.0)
    assert "no complete list from the API server for" in controller.problem()
    monkeypatch.undo()
    controller.queue.close()
    operator.wait(lambda: controller.problem() == "the thread work has stopped")
    assert threading.active_count() > 1


def test_a_watch_that_does_not_show_what_lists_do_is_a_problem(
    operator: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = operator.controller
    assert controller is not None
    operator.install()  # by lists alone: there is no kopf here
    assert "" == controller.problem()
    monkeypatch.setattr("deviceplugin_operator.observed.LATE", -1.0)
    assert "the watch of deviceplugins misses changes that a list shows" == controller.problem()
    found = operator.fleet.store.get(DEVICE_PLUGIN, "", "sim")
    controller.event(OWNERS, "MODIFIED", found)
    assert "deviceplugins" not in controller.problem()
    operator.fleet.store.delete(DEVICE_PLUGIN, "", "sim")
    operator.wait(lambda: controller.problem() == "")  # no watch shows what is gone
