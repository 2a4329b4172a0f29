"""Upstream's scenarios of test/e2e_node/podresources_test.go, with the gopher plugin's devices.

There they are one case per policy of the CPU manager. What they demand of CPUs is not carried over.
"""

from contextlib import suppress

import grpc
import pytest

from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin_testing.simulator import Container, Pod
from kubelets.plugin_node import PluginNode
from patience import eventually

GOPHER = "example.com/gopher"
Listed = list[tuple[str, str, list[str]]]


def start(node: PluginNode, name: str, count: int = 0) -> tuple[Pod, Listed]:
    """Run a pod, and return it with what is to be listed of it."""
    pod = Pod.of(name, cnt={GOPHER: count} if count else {})
    assert node.kubelet.run(pod)
    return pod, [(name, "cnt", sorted(node.kubelet.held(pod).get("cnt", {}).get(GOPHER, ())))]


def got(node: PluginNode, name: str) -> Listed:
    request = pb.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
    pod = node.ask("Get", request).pod_resources
    return [
        (pod.name, one.name, [i for d in one.devices for i in d.device_ids])
        for one in pod.containers
    ]


def test_pods_are_listed_with_and_without_devices_as_they_come_and_go(gophers: PluginNode) -> None:
    """should return the expected responses"""
    assert [] == gophers.listed()
    with pytest.raises(grpc.RpcError, match="pod test in namespace default not found"):
        got(gophers, "test")
    plain, expected = start(gophers, "pod-00")
    other, more = start(gophers, "pod-01")
    assert expected + more == gophers.listed()
    holder, held = start(gophers, "pod-02", 1)
    assert (expected, held) == (got(gophers, "pod-00"), got(gophers, "pod-02"))
    assert sorted(expected + more + held) == sorted(gophers.listed())
    last, rest = start(gophers, "pod-03", 1)
    assert sorted(expected + more + held + rest) == sorted(gophers.listed())
    gophers.kubelet.delete(holder)
    assert sorted(expected + more + rest) == sorted(gophers.listed())
    for pod in (plain, other, last):
        gophers.kubelet.delete(pod)
    assert [] == gophers.listed()


def test_all_healthy_devices_are_allocatable(gophers: PluginNode) -> None:
    """should return the expected responses"""
    start(gophers, "p", 1)
    found = gophers.ask("GetAllocatableResources", pb.AllocatableResourcesRequest()).devices
    assert [(GOPHER, ["gary"]), (GOPHER, ["gina"])] == sorted(
        (one.resource_name, list(one.device_ids)) for one in found
    )


def test_sidecars_are_listed_and_init_containers_are_not(gophers: PluginNode) -> None:
    """should return the expected responses"""
    one = Container("init-00", {GOPHER: 1})
    sidecar = Container("restartable-init-00", {GOPHER: 1}, restarts_always=True)
    for pod in (
        Pod("pod-00", [Container("regular-00")], [one]),
        Pod("pod-01", [Container("regular-00")], [sidecar]),
    ):
        assert gophers.kubelet.run(pod)
    listed = {(pod, container): len(ids) for pod, container, ids in gophers.listed()}
    assert {
        ("pod-00", "regular-00"): 0,
        ("pod-01", "restartable-init-00"): 1,
        ("pod-01", "regular-00"): 0,
    } == listed
    assert [1, 0] == [len(ids) for _, _, ids in got(gophers, "pod-01")]


def test_a_pod_that_has_ended_is_not_listed_and_leaves_its_device(gophers: PluginNode) -> None:
    """should account for resources of pods in terminal phase"""
    pod, _ = start(gophers, "ended", 2)
    gophers.kubelet.terminate(pod)
    assert [] == gophers.listed()
    start(gophers, "next", 2)


def test_devices_without_topology_have_none_before_and_after_a_restart(
    gophers: PluginNode,
) -> None:
    """should return proper podresources the same as before the restart of kubelet"""
    found = gophers.ask("GetAllocatableResources", pb.AllocatableResourcesRequest()).devices
    assert [False, False] == [one.HasField("topology") for one in found]
    _, expected = start(gophers, "pod-01", 1)
    assert expected == gophers.listed()
    gophers.kubelet.restart()
    gophers.wait(2, 2)
    assert expected == gophers.listed()


def test_whoever_lists_in_a_loop_is_throttled_and_the_plugin_bears_it(gophers: PluginNode) -> None:
    """should hit throttling when calling podresources List in a tight loop"""
    _, expected = start(gophers, "p", 1)

    def hurry() -> None:
        for _ in range(500):
            gophers.ask("List", pb.ListPodResourcesRequest())

    with pytest.raises(grpc.RpcError, match="rejected by rate limit"):
        hurry()

    def is_listed() -> bool:
        with suppress(grpc.RpcError):
            return expected == gophers.listed()
        return False

    eventually(is_listed, "the end of the throttling")
    eventually(lambda: not gophers.host.troubles(), lambda: f"{gophers.host.troubles()}")
    gophers.wait(2, 2)
