"""What runs beside a plugin on a cluster: Events of its devices, and evictions from dead ones."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from homes.case import cases
from homes.cluster.home import Cluster
from homes.cluster.session import Session
from homes.cluster.workload import Workload, started, wait_holders

NODE = "--node=$(NODE_NAME)"
LABELS = "app.kubernetes.io/component=device-plugin,app.kubernetes.io/name="
PODS = "--namespace=$(NAMESPACE)"
PATIENCE = "--patience=2m"
"""The shortest that there is."""
EPOCH = datetime.fromtimestamp(0, UTC)
BESIDE = ("events", "evict")
SIMULATED = replace(
    cases()["simulated"].plugin,
    devices=5,
    environment={"NUMBER_DEVICES": "5", "DP_CONTROL_SOCKET": "/dev/shm/control.sock"},
    components=BESIDE,
    arguments={
        "events": [NODE],
        "evict": [f"--selector={LABELS}simulated-device-plugin", PODS, "--evict", PATIENCE],
    },
)
GOPHER = replace(
    cases()["gopher"].plugin,
    components=BESIDE,
    arguments={
        "events": [NODE],
        "evict": [f"--selector={LABELS}gopher-device-plugin", PODS, PATIENCE],
    },
)


@pytest.mark.simulated
@pytest.mark.gopher
def test_pods_are_evicted_from_dead_devices_as_far_as_they_may_be(
    cluster: Cluster, session: Session
) -> None:
    watching = Cluster(session)
    try:
        watched, pod = die_where_it_is_only_said(watching)
        dead, noticed = die_where_pods_are_evicted(cluster)
        assert logged(watching, "pod would be evicted", name_of(pod))
        assert started(pod) == started(*watched.wait_running())
        # What one plugin is allowed does not go with another's.
        watching.uninstall()
        control(cluster, "recover", *dead)
        wait_told(cluster, noticed, "DeviceHealthy", SIMULATED.resource)
        cluster.uninstall()
    except BaseException:
        watching.fail()
        raise
    finally:
        watching.close()


def die_where_it_is_only_said(home: Cluster) -> tuple[Workload, dict[str, Any]]:
    """Have a gopher vanish under a pod, which is not to go, and return that."""
    home.install(GOPHER)
    home.add_file("gary")
    home.add_file("gina")
    resource, _ = home.offer(GOPHER)
    watched = home.deploy("watched", resource, 1)
    (pod,) = watched.wait_running()
    (held,) = wait_holders(home.here, resource, [name_of(pod)])[name_of(pod)]
    home.remove_file(held)
    home.wait_allocatable(resource, 1)
    return watched, pod


def die_where_pods_are_evicted(home: Cluster) -> tuple[set[str], datetime]:
    """Have devices die under two pods of one Deployment, a guarded one and a bare one.

    Returns the devices and when that was noticed, once all but the last were evicted.
    """
    home.install(SIMULATED)
    resource, _ = home.offer(SIMULATED)
    spare, guarded = home.deploy("spare", resource, 2), home.deploy("guarded", resource, 1)
    guarded.guard()
    home.run("bare", resource, 1)
    bare, (kept,) = home.pod("bare"), guarded.wait_running()
    names = {*map(name_of, [*spare.wait_running(), kept, bare])}
    dead = set[str]().union(*wait_holders(home.here, resource, names).values())
    assert 4 == len(dead)
    reason = f"too hot for {home.here.namespace}"  # Events of an hour ago are there, too.
    control(home, "unhealthy", *dead, "--reason", reason)
    noticed = wait_told(home, EPOCH, "DeviceUnhealthy", resource, reason)
    home.here.wait(
        lambda: logged(home, "pod eviction failed", "disruption budget", name_of(kept)),
        "the PodDisruptionBudget to hold an eviction off",
    )
    assert started(kept) == started(*guarded.wait_running())
    guarded.unguard()
    evicted = wait_evicted(home, 3)
    assert evicted[0] - noticed > timedelta(seconds=100)
    assert all(later - one >= timedelta(seconds=59) for one, later in pairwise(evicted))
    assert not names & {name_of(pod) for one in (spare, guarded) for pod in one.pods()}
    assert logged(home, "pod exempt from eviction", "no controller", name_of(bare))
    assert started(bare) == started(home.pod("bare"))
    return dead, noticed


def name_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def control(home: Cluster, *words: str) -> None:
    """Tell the simulated plugin what happens to its devices."""
    home.here.execute("python3", "-m", "deviceplugin_simulated", "ctl", *words)


def logged(home: Cluster, *words: str) -> bool:
    """Return whether one line of what evicts has all the words."""
    return any(all(word in line for word in words) for line in home.logs("evict").splitlines())


def events(home: Cluster, namespace: str, reason: str) -> list[tuple[datetime, dict[str, Any]]]:
    """Return the Events of a namespace, the first first."""
    words = ("events", f"--namespace={namespace}", f"--field-selector=reason={reason}")
    found = home.here.kubectl.get(*words)["items"]
    dated = [(datetime.fromisoformat(one["firstTimestamp"]), one) for one in found]
    return sorted(dated, key=lambda one: one[0])


def wait_told(home: Cluster, since: datetime, reason: str, *words: str) -> datetime:
    """Wait for an Event of the node with all the words; return when it says that it was."""

    def told() -> list[datetime]:
        return [
            moment
            for moment, one in events(home, "default", reason)
            if one["involvedObject"]["name"] == home.node
            and moment >= since
            and all(word in one["message"] for word in words)
        ]

    return home.here.wait(told, f"an Event {reason} of the node")[0]


def wait_evicted(home: Cluster, count: int) -> list[datetime]:
    """Wait for the Events of so many evicted pods, and return when each was."""
    found: list[datetime] = []

    def are_evicted() -> bool:
        found[:] = [moment for moment, _ in events(home, home.here.namespace, "DeviceUnhealthy")]
        return len(found) == count

    home.here.wait(are_evicted, f"{count} pods to be evicted")
    return found
