"""What only a real node goes through: an upgrade, and a reboot that reorders its hardware."""

import pytest

from homes.case import cases
from homes.cluster.home import Cluster
from homes.cluster.workload import devices, is_running, started, told_devices, wait_holders
from homes.home import Plugin, offered

CASES = cases()
MOST = 8
"""Pods with a device each: hardware can have more shares than a node has pods."""
each = pytest.mark.parametrize(
    "plugin",
    [
        pytest.param(case.plugin, marks=getattr(pytest.mark, name), id=name)
        for name, case in CASES.items()
    ],
)


def install(cluster: Cluster, plugin: Plugin, *, before: bool = False) -> tuple[str, int]:
    cluster.install(plugin, before=before)
    return offered(cluster, plugin)


@each
def test_an_upgrade_and_the_way_back_leave_pods_what_they_hold(
    cluster: Cluster, plugin: Plugin
) -> None:
    cluster.need("before")
    resource, count = install(cluster, plugin, before=True)
    cluster.run("keeper", resource, 1)
    keeper = cluster.pod("keeper")
    name = keeper["metadata"]["name"]
    held = wait_holders(cluster.here, resource, [name])[name]
    assert held == set(told_devices(keeper, resource)) or not [*told_devices(keeper, resource)]
    ids = {one["id"] for one in devices(cluster.here, resource)}
    old = cluster.here.image()
    for before in (False, True, False):
        assert (resource, count) == install(cluster, plugin, before=before)
        assert before == (old == cluster.here.image())
        assert ids == {one["id"] for one in devices(cluster.here, resource)}
        assert held == wait_holders(cluster.here, resource, [name])[name]
        if count > 1:
            other = f"other-{'old' if before else 'new'}"
            cluster.run(other, resource, count - 1)
            beside = cluster.pod(other)["metadata"]["name"]
            assert ids - held == wait_holders(cluster.here, resource, [beside])[beside]
            cluster.delete(other)
            cluster.wait_gone(other)
        now = cluster.pod("keeper")
        assert is_running(now)
        assert started(keeper) == started(now)


@each
def test_a_reboot_gives_each_pod_the_device_that_it_is_told(
    cluster: Cluster, plugin: Plugin
) -> None:
    cluster.need("reboot")
    case = CASES[plugin.name]
    resource, count = install(cluster, plugin)
    workers = cluster.deploy("worker", resource, min(count, MOST))
    before = workers.wait_running()
    files = f"{cluster.here.folder}/files"
    # In another order, and one more.
    meanwhile = f"rm {files}/gary && touch {files}/adam {files}/zoe" if plugin.files else ""
    cluster.reboot(meanwhile)
    there = count + bool(plugin.files or case.rebooted)
    cluster.wait_allocatable(resource, there)
    workers.scale(min(there, MOST))
    pods = workers.wait_running(before)
    names = [pod["metadata"]["name"] for pod in pods]
    held = wait_holders(cluster.here, resource, names)
    ids = {one["id"] for one in devices(cluster.here, resource) if one["healthy"]}
    assert [1] * len(pods) == [*map(len, held.values())]
    assert min(len(ids), MOST) == len(set().union(*held.values()) & ids)
    for pod in pods:
        name = pod["metadata"]["name"]
        assert [*told_devices(pod, resource)] in ([], [*held[name]])
        given = cluster.given(name)
        case.look(given)
        if case.identify is not None:
            case.identify(given)
