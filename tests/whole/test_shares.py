"""Devices that pods share, by either protocol and under switches, on a whole simulated node."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.random_runs import RandomRun
from cluster.whole_node import WholeNode
from deviceplugin._dra.naming import device_name

SHARES = 4
EACH = [f"a::{number}" for number in range(SHARES)]


def in_slices(whole: WholeNode) -> dict[str, tuple[str, bool]]:
    """Return how many shares each device in slices has, and whether it has a taint."""
    return {
        device["name"]: (
            device.get("capacity", {}).get("shares", {}).get("value", ""),
            "taints" in device,
        )
        for one in whole.cluster.list("ResourceSlice")
        for device in one["spec"].get("devices", ())
    }


def wait_for_slices(whole: WholeNode, **expected: tuple[str, bool]) -> None:
    whole.step_until(lambda: in_slices(whole) == expected, f"slices with {expected}")


def run(whole: WholeNode, count: int, name: str) -> str:
    whole.step_until(lambda: len(whole.running().get(name, ())) == count, f"{count} of {name}")
    return name


def is_pending(whole: WholeNode, name: str) -> None:
    whole.step_until(lambda: whole.make.why_not(name), "the scheduler's verdict")
    assert "" == whole.make.node_of(name)


def results(whole: WholeNode, claim: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = whole.make.allocation(claim)["results"]
    return found


def offered_by_plugin(whole: WholeNode, *devices: str) -> Callable[[], bool]:
    return lambda: whole.offered_by_plugin() == [*devices]


@pytest.mark.slow
def test_pods_share_a_device_under_switches(root: Path) -> None:
    with WholeNode(root, ["a"], shares=SHARES) as whole:
        whole.step_until(lambda: whole.allocatable() == SHARES, "the device plugin")
        old = [run(whole, 1, whole.pod()) for _ in range(2)]

        whole.switch("dra")  # the shares that pods hold are not offered
        wait_for_slices(whole, a=("2", False))
        whole.step_until(lambda: whole.allocatable() == 0, "a node without devices of the plugin")
        new = [run(whole, 1, whole.pod()) for _ in range(2)]
        third = whole.pod(by_claim=True)
        is_pending(whole, third)
        assert EACH == sorted(one for found in whole.running().values() for one in found)

        whole.node.finish(old[0])
        wait_for_slices(whole, a=("3", False))
        run(whole, 1, third)
        (result,) = results(whole, third)
        assert ("a", {"shares": "1"}) == (result["device"], result["consumedCapacity"])

        for name in (old[1], *new):
            whole.node.finish(name)
        wait_for_slices(whole, a=("4", False))
        several = run(whole, 3, whole.pod(by_claim=True, shares=3))
        is_pending(whole, whole.pod(by_claim=True))

        whole.switch("device-plugin")
        wait_for_slices(whole)
        whole.node.finish(several)
        expected = [one for one in EACH if one not in whole.running()[third]]
        whole.step_until(offered_by_plugin(whole, *expected), "three shares")
        whole.node.finish(third)
        whole.step_until(offered_by_plugin(whole, *EACH), "all shares")
        run(whole, SHARES, whole.pod(SHARES))


@pytest.mark.slow
def test_shares_stay_with_their_claims_when_the_plugin_is_killed(root: Path) -> None:
    with WholeNode(root, ["a"], shares=SHARES) as whole:
        whole.switch("dra")
        wait_for_slices(whole, a=("4", False))
        first = run(whole, 2, whole.pod(by_claim=True, shares=2))
        before = whole.running()
        whole.end_plugin(9)
        whole.start_plugin()
        whole.lose_cdi_files()
        second = run(whole, 2, whole.pod(by_claim=True, shares=2))
        whole.restart_container(first)
        run(whole, 2, first)
        assert before[first] == whole.running()[first]
        assert EACH == sorted(whole.running()[first] + whole.running()[second])


@pytest.mark.slow
def test_a_cluster_that_counts_no_shares_gets_each_as_a_device(root: Path) -> None:
    gates = {"DRAConsumableCapacity": False}
    with WholeNode(root, ["a"], shares=2, feature_gates=gates) as whole:
        whole.switch("dra")
        wait_for_slices(whole, **{device_name(one): ("", False) for one in EACH[:2]})
        both = run(whole, 2, whole.pod(2))
        is_pending(whole, whole.pod())
        assert EACH[:2] == whole.running()[both]
        assert 1 == whole.log.count("shares not counted by the cluster")


def test_two_of_a_shared_device_are_shares_of_two_devices(root: Path) -> None:
    with WholeNode(root, ["a", "b"], shares=2) as whole:
        whole.switch("dra")
        wait_for_slices(whole, a=("2", False), b=("2", False))
        name = run(whole, 2, whole.pod(2))
        assert ["a::0", "b::0"] == whole.running()[name]


@pytest.mark.slow
def test_no_share_is_ever_with_two_pods(root: Path) -> None:
    with WholeNode(root, ["a", "b"], seed=1, shares=3) as whole:
        RandomRun(whole, 1).play(60)
