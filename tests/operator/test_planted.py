"""Who may create ConfigMaps in the operator's namespace, and no more, gets nothing applied."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import yaml

from cluster.admission import admission_policy, quota
from cluster.kinds import CONFIG_MAP, DAEMON_SET, DEVICE_PLUGIN, Object
from deviceplugin_operator import names
from deviceplugin_operator.crd.specification import read
from deviceplugin_operator.rollout import desired
from deviceplugin_operator.rollout.desired import Revision
from operators.fleet_cluster import SPACE
from operators.managed import Managed
from operators.pods import mounted

UNLUCKY = {"seed": 13}
"""No pod becomes ready."""
HASH = "0123456789abcdef" * 4


def owner(operator: Managed) -> Object:
    return operator.fleet.store.get(DEVICE_PLUGIN, "", "sim")


def map_of(operator: Managed, name: str) -> Object:
    return operator.fleet.store.get(CONFIG_MAP, SPACE, f"dp-sim.{name}")


def hostile(found: Object) -> Revision:
    """Return what runs as root on the node, in place of what ``found`` has."""
    kept = desired.of_config_map(found)
    pod = deepcopy(dict(kept.pod))
    root = {"image": "attacker/root:1", "securityContext": {"privileged": True}}
    pod["spec"]["containers"][0] |= root
    return Revision(kept.config, pod | {"spec": {**pod["spec"], "hostPID": True}})


def plant(operator: Managed, name: str) -> None:
    """Delete the ConfigMap of a revision, and create another one with labels that fit it."""
    found = map_of(operator, name)
    made = desired.config_map(owner(operator), "", hostile(found), SPACE)
    made["metadata"]["name"] = found["metadata"]["name"]
    with operator.fleet.store.changed:  # nobody sees it gone
        operator.fleet.store.remove(CONFIG_MAP, SPACE, found["metadata"]["name"])
        operator.fleet.store.create(CONFIG_MAP, made)


def change_status(operator: Managed, **revision: Any) -> None:
    """Change what the status has of the general settings; None removes a key."""

    def edit(found: Object) -> None:
        (before,) = found["status"]["revisions"]
        merged = {**before, **revision}
        found["status"]["revisions"] = [
            {key: one for key, one in merged.items() if one is not None}
        ]

    operator.fleet.store.change(DEVICE_PLUGIN, "", "sim", edit)


def images(operator: Managed) -> list[str]:
    """Return a list that gets the images of each DaemonSet that the API server is sent."""
    seen: list[str] = []

    def look(found: Object) -> bool:
        seen.append(found["spec"]["template"]["spec"]["containers"][0]["image"])
        return False

    operator.fleet.policies.append(admission_policy(DAEMON_SET, look))
    return seen


def plant_before_an_upgrade(operator: Managed, good: str) -> None:
    """Have a status of a release that kept no hashes, which takes in what has the right name."""
    plant(operator, good)
    change_status(operator, hashes=None)


NOT_KNOWN = "the ConfigMap dp-sim.{} has not the hash in the status: nothing of it is applied"
GONE = "the ConfigMap dp-sim.{} is gone, so nothing can go back to it"
LOST: dict[str, tuple[Callable[[Managed, str], object], str]] = {
    "with other content": (plant, NOT_KNOWN),
    # As if somebody had found another content of the same name.
    "of another hash": (
        lambda operator, good: change_status(operator, hashes=[good + HASH[len(good) :]]),
        NOT_KNOWN,
    ),
    "gone": (
        lambda operator, good: operator.fleet.store.remove(CONFIG_MAP, SPACE, f"dp-sim.{good}"),
        GONE,
    ),
    "that no status knows": (
        lambda operator, _: operator.fleet.store.change(
            DEVICE_PLUGIN, "", "sim", lambda one: one.update(status={})
        ),
        NOT_KNOWN,
    ),
    "of another content, before an upgrade": (plant_before_an_upgrade, NOT_KNOWN),
}


@pytest.mark.parametrize("what", LOST)
def test_a_change_that_fails_is_not_rolled_back_to_a_config_map(
    operator: Managed, what: str
) -> None:
    operator.install()
    good = operator.revision()["good"]
    operator.stop()
    lose, words = LOST[what]
    lose(operator, good)
    why, seen = words.format(good), images(operator)
    operator.apply(UNLUCKY)
    operator.start()
    operator.wait_for("NoWayBack", "Degraded")
    assert why == operator.fleet.message("sim", "Degraded")
    operator.wait(lambda: not {"good"} & operator.revision().keys())
    assert good != operator.revision()["applied"]
    operator.pass_deadline()
    operator.wait_for("RolloutFailed", "Degraded")
    message = operator.fleet.message("sim", "Degraded")
    assert message.endswith(f" after 120 s: unlucky seed; halted: {why}")
    operator.wait(lambda: operator.events("RolloutFailed") == [message])
    operator.stop()
    operator.start()
    calls = len(operator.calls)
    operator.wait(lambda: len(operator.calls) > calls + 20)
    assert [why] == operator.events("NoWayBack")
    assert [message] == operator.events("RolloutFailed")
    assert {"simulated-device-plugin:0.1.0"} == {*seen}
    assert {*operator.fleet.deleted} <= {"node-0"}


def test_a_change_that_succeeds_is_a_way_back_again(operator: Managed) -> None:
    operator.install()
    good = operator.revision()["good"]
    operator.stop()
    plant(operator, good)
    operator.apply({"number-devices": 5})
    operator.start()
    operator.wait_for("NoWayBack", "Degraded")
    operator.wait(lambda: operator.fleet.is_ready("sim"))
    assert ("False", "AsExpected") == operator.fleet.condition("sim", "Degraded")
    operator.apply({"number-devices": 5, **UNLUCKY})
    operator.pass_deadline()
    operator.wait(lambda: "; rolled back to " in operator.fleet.message("sim", "Degraded"))


def test_a_roll_back_that_has_come_to_the_daemon_set_stays_there(operator: Managed) -> None:
    operator.install()
    good, seen = operator.revision()["good"], images(operator)
    operator.apply(UNLUCKY)
    operator.pass_deadline()
    operator.wait(lambda: "; rolled back to " in operator.fleet.message("sim", "Degraded"))
    operator.wait(lambda: operator.fleet.condition("sim", "Progressing")[1] == "Done")
    operator.stop()
    plant(operator, good)
    before, spec = operator.fleet.uids(), operator.fleet.daemon_set("dp-sim")["spec"]
    operator.start()
    operator.wait(lambda: NOT_KNOWN.format(good) in operator.fleet.message("sim", "Degraded"))
    assert f"; rolled back to {good}: " in operator.fleet.message("sim", "Degraded")
    assert (before, spec) == (
        operator.fleet.uids(),
        operator.fleet.daemon_set("dp-sim")["spec"],
    )
    assert good == operator.revision()["applied"] == operator.revision()["good"]
    assert {"simulated-device-plugin:0.1.0"} == {*seen}


def test_one_that_is_planted_after_the_failure_ends_it_where_it_is(operator: Managed) -> None:
    operator.install()
    good, seen = operator.revision()["good"], images(operator)
    operator.apply(UNLUCKY)
    operator.wait(lambda: operator.fleet.deleted)

    def goes_back(found: Object) -> bool:
        return bool(found["spec"]["template"]["metadata"]["labels"][names.REVISION] == good)

    operator.fleet.policies.append(admission_policy(DAEMON_SET, goes_back, "UPDATE"))
    operator.pass_deadline()
    operator.wait_for("RequestFailed", "Degraded")
    plant(operator, good)
    said = f"; halted: {NOT_KNOWN.format(good)}"
    operator.wait(lambda: said in operator.fleet.message("sim", "Degraded"))
    assert ["node-0"] == operator.fleet.deleted
    assert {"simulated-device-plugin:0.1.0"} == {*seen}


@pytest.mark.parametrize("how", ["refused", "deleted and refused"])
def test_what_stays_as_it_was_is_not_restored_from_it(operator: Managed, how: str) -> None:
    operator.install()
    applied, seen = operator.revision()["applied"], images(operator)
    operator.apply({"profile": "nonsense"})
    operator.wait_for("InvalidSettings", "Accepted")
    operator.stop()
    plant(operator, applied)
    if how != "refused":
        operator.fleet.store.remove(DAEMON_SET, SPACE, "dp-sim")
    operator.start()
    operator.wait_for("NoWayBack", "Degraded")
    assert NOT_KNOWN.format(applied) == operator.fleet.message("sim", "Degraded")
    assert [] == seen


def test_one_of_the_wanted_revision_is_replaced_and_an_event_says_so(operator: Managed) -> None:
    operator.install()
    found, before = map_of(operator, operator.revision()["wanted"]), operator.fleet.uids()
    plant(operator, operator.revision()["wanted"])
    operator.wait(lambda: operator.events("DriftCorrected"))
    name = found["metadata"]["name"]
    said = f"the ConfigMap {name} was changed by hand, and is restored"
    assert [said] == operator.events("DriftCorrected")
    assert found["data"] == operator.fleet.store.get(CONFIG_MAP, SPACE, name)["data"]
    assert before == operator.fleet.uids()


def test_a_pod_has_its_settings_from_the_daemon_set_whatever_a_config_map_says(
    operator: Managed,
) -> None:
    operator.install({"number-devices": 4})
    template = operator.fleet.daemon_set("dp-sim")["spec"]["template"]
    assert 4 == yaml.safe_load(mounted(template))["number-devices"]


def test_the_hash_is_in_the_status_before_anything_has_the_name(operator: Managed) -> None:
    operator.fleet.policies.append(quota(CONFIG_MAP, lambda _: True))
    operator.apply()
    operator.wait_for("RequestFailed", "Degraded")
    wanted = read(owner(operator))
    made = desired.revision(wanted, wanted.variants[0])
    assert [made.digest] == operator.revision()["hashes"]
    assert [] == operator.fleet.store.list(CONFIG_MAP, SPACE)


def test_labels_of_profiles_that_nobody_has_do_not_fill_the_status(operator: Managed) -> None:
    operator.install()
    operator.stop()
    found = map_of(operator, operator.revision()["good"])
    for number in range(70):
        name = f"dp-sim.p{number}.0123456789"
        labels = {**found["metadata"]["labels"], names.PROFILE_LABEL: f"p{number}"}
        made = {**found, "metadata": {"name": name, "namespace": SPACE, "labels": labels}}
        operator.fleet.store.create(CONFIG_MAP, made)
    operator.apply({"profile": "nonsense"})
    operator.start()
    operator.wait_for("InvalidSettings", "Accepted")
    assert [""] == [one["profile"] for one in operator.fleet.status("sim")["revisions"]]


# A status of a release that kept no hashes


def test_a_roll_out_that_an_older_release_began_is_rolled_back(operator: Managed) -> None:
    operator.install()
    good = operator.revision()["good"]
    operator.apply(UNLUCKY)
    operator.wait(lambda: operator.fleet.deleted)
    operator.stop()
    change_status(operator, hashes=None)
    operator.start()
    operator.pass_deadline()
    operator.wait(lambda: f"; rolled back to {good}" in operator.fleet.message("sim", "Degraded"))
    assert good in {desired.called(one) for one in operator.revision()["hashes"]}


def test_an_object_that_is_refused_at_an_upgrade_is_restored_all_the_same(
    operator: Managed,
) -> None:
    operator.install()
    applied = operator.revision()["applied"]
    operator.apply({"profile": "nonsense"})
    operator.wait_for("InvalidSettings", "Accepted")
    operator.stop()
    change_status(operator, hashes=None)
    operator.fleet.store.remove(DAEMON_SET, SPACE, "dp-sim")
    operator.start()
    operator.wait(lambda: "hashes" in operator.revision())  # pods may be those of before yet
    operator.wait(lambda: len(operator.fleet.pods()) == 3)
    assert [applied] == [desired.called(one) for one in operator.revision()["hashes"]]


def test_hashes_that_are_known_are_not_written_again(operator: Managed) -> None:
    operator.install()
    operator.wait(lambda: "PATCH" not in operator.calls[-20:])
