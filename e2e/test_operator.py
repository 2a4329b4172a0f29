"""The operator on a real cluster: what it refuses, rolls back, outlives and leaves."""

import pytest

from homes.cluster.installed_operator import RESOURCE, InstalledOperator

pytestmark = [
    pytest.mark.operator,
    pytest.mark.timeout(1200),  # roll-outs with a deadline, and a kubelet that reports each 10 s
]
QUICK = {"deadline": "25s"}
"""A roll-out that fails soon: a kubelet needs 10 s to report fewer devices."""


def test_what_is_wrong_is_refused_before_a_pod_is_touched(operator: InstalledOperator) -> None:
    operator.have(3)
    before = operator.plugin_pods()
    for settings, said in (
        ({"number-devics": 3}, 'unknown field "spec.simulated.number-devics"'),
        ({"number-devices": "many"}, "spec.simulated.number-devices"),
        ({"http-address": "off"}, 'unknown field "spec.simulated.http-address"'),
    ):
        with pytest.raises(AssertionError, match=said):
            operator.apply(settings)
    with pytest.raises(AssertionError, match="fpga: is for plugin fpga"):
        operator.apply({}, fpga={})
    operator.apply({"number-devices": 3, "profile": "nonsense"})
    message = operator.wait_message("Accepted", "nonsense")
    assert "spec.simulated: " in message
    assert ("False", "InvalidSettings") == operator.condition("Accepted")[:2]
    assert "True" != operator.condition("Ready")[0]
    assert before == operator.plugin_pods()
    assert 3 == operator.node.allocatable(RESOURCE)


@pytest.mark.parametrize("left", [1, 0])
def test_a_change_that_loses_devices_is_rolled_back_and_pods_keep_theirs(
    operator: InstalledOperator, left: int
) -> None:
    operator.have(3)
    operator.hold_a_device("keeper")
    operator.apply({"number-devices": left}, rollout=QUICK)
    message = operator.wait_message("Degraded", "; rolled back to ")
    assert f"{operator.node.name}: {RESOURCE} 3 -> {left} after 25 s" in message
    operator.wait_allocatable(3)
    assert ("False", "RolloutFailed") == operator.condition("Ready")[:2]
    assert operator.is_running("keeper")
    operator.release_device("keeper")


def test_an_image_that_is_missing_halts_where_that_is_asked_for_and_is_rolled_back_else(
    operator: InstalledOperator,
) -> None:
    operator.have(3)
    missing = "registry.invalid/nothing:1"
    halt = {**QUICK, "onFailure": "Halt"}
    operator.apply({"number-devices": 3}, image=missing, rollout=halt)
    assert "its pod is not ready after 25 s" in operator.wait_message("Degraded", "; halted")
    operator.have(3)
    operator.apply({"number-devices": 3}, image=missing, rollout=QUICK)
    operator.wait_message("Degraded", "; rolled back to ")
    operator.wait_allocatable(3)


def test_the_fleet_shows_what_the_object_offers_and_pods_hold(operator: InstalledOperator) -> None:
    operator.have(4)
    operator.hold_a_device("holder")
    assert [RESOURCE, operator.node.name, "4", "4", "1", "-"] == operator.fleet()
    operator.release_device("holder")


def test_plugins_outlive_the_operator_and_the_next_one_takes_them_over(
    operator: InstalledOperator,
) -> None:
    operator.have(3)
    before = operator.plugin_pods()
    operator.remove_operator()
    assert before == operator.plugin_pods()
    assert 3 == operator.node.allocatable(RESOURCE)
    operator.install_operator()
    operator.apply({"number-devices": 3}, rollout={"maxUnavailable": 1})
    operator.wait(lambda: operator.condition("Ready")[0] == "True", "the object to be Ready")
    assert before == operator.plugin_pods()


def test_nothing_is_left_after_the_operator_is_uninstalled(operator: InstalledOperator) -> None:
    operator.have(2)
    operator.remove()
    assert [] == operator.left()
    operator.install()
    operator.have(2)
