"""A plugin that is switched to DRA and back on a real cluster, while pods hold its devices."""

import pytest

from homes.cluster.home import Cluster
from homes.cluster.session import Session
from homes.cluster.switch_load import SwitchLoad
from homes.cluster.switched import RESOURCE, Switched

pytestmark = pytest.mark.gopher


def gopher(cluster: Cluster, name: str) -> str:
    """Run a pod as ever, and return the device that its container has."""
    return cluster.run(name, RESOURCE, 1).envs["Gopher"]


def test_a_switch_gives_each_pod_a_device_and_the_way_back_leaves_nothing(
    switched: Switched, cluster: Cluster
) -> None:
    both = {"gary", "gina"}
    switched.have(both)
    first = gopher(cluster, "first")
    assert not switched.has_a_claim("first")

    switched.begin_dra(1)
    second = gopher(cluster, "second")
    assert switched.has_a_claim("second")
    assert both == {first, second}
    assert cluster.is_running("first")

    cluster.delete("first")
    switched.wait_offered(2)
    switched.create(switched.claim("claiming"))
    assert first == switched.said("claiming")

    switched.to("device-plugin")
    switched.wait_offered(0)
    assert cluster.is_running("second")
    switched.delete("claiming")
    cluster.delete("second")
    cluster.wait_allocatable(RESOURCE, 2)
    assert gopher(cluster, "third") in both
    assert not switched.has_a_claim("third")
    switched.release()
    cluster.wait_allocatable(RESOURCE, 2)
    cluster.here.wait(lambda: switched.left() == [], "nothing to be left")


def test_slices_come_back_after_a_restart_of_the_kubelet_and_when_they_are_deleted(
    switched: Switched, cluster: Cluster, session: Session
) -> None:
    cluster.need("restart_kubelet")
    switched.have({"gary", "gina", "gus"})
    first = gopher(cluster, "first")
    switched.begin_dra(2)
    second = gopher(cluster, "second")
    started = [cluster.pod(name)["status"]["containerStatuses"] for name in ("first", "second")]

    def uids() -> set[str]:
        return {one["metadata"]["uid"] for one in switched.slices()}

    def are_back(before: set[str]) -> bool:
        """Return whether all slices are there, and none of those that were."""
        return bool(uids()) and not before & uids() and switched.offered() == 2

    before = uids()
    cluster.run_whole(session.options.restart_kubelet)
    # A kubelet that starts deletes all slices of its node.
    cluster.here.wait(lambda: are_back(before), "the slices to be published anew")
    third = gopher(cluster, "third")
    assert switched.has_a_claim("third")
    assert {"gary", "gina", "gus"} == {first, second, third}

    before = uids()
    for one in switched.slices():
        cluster.kubectl("delete", "resourceslice", one["metadata"]["name"])
    cluster.here.wait(lambda: are_back(before), "a deleted slice to be published anew")
    assert started == [
        cluster.pod(name)["status"]["containerStatuses"] for name in ("first", "second")
    ]


@pytest.mark.timeout(0)  # as many switches as one likes
@pytest.mark.parametrize("cordoned", [False, True], ids=["as-it-is", "cordoned"])
def test_no_switch_gives_a_device_to_two_pods(
    switched: Switched, session: Session, pytestconfig: pytest.Config, cordoned: bool
) -> None:
    load = SwitchLoad(switched, pytestconfig.getoption("--seed"), cordoned=cordoned)
    load.begin()
    load.run(pytestconfig.getoption("--dra-switches"))
    session.progress.say(load.summary())
    load.end()
