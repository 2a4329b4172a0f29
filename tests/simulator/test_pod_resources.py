"""The pod resources API."""

from typing import Any, cast

import grpc
import inotify_simple
import pytest

from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as plugin_pb
from deviceplugin_testing.simulator import Behaviour, Container, Pod
from deviceplugin_testing.simulator._podresources import TokenBucket
from kubelets.equipped import PREFERS, Kubelet, R, allocated, during_allocate, ids, near, preferred


def listed(kubelet: Kubelet) -> dict[str, dict[str, list[tuple[str, str, list[int]]]]]:
    """Return pod to container to (resource, id, NUMA nodes)."""
    response = kubelet.agent["List"](pb.ListPodResourcesRequest())
    return {
        pod.name: {container.name: entries(container.devices) for container in pod.containers}
        for pod in response.pod_resources
    }


def entries(devices: Any) -> list[tuple[str, str, list[int]]]:
    return [
        (each.resource_name, *each.device_ids, [node.ID for node in each.topology.nodes])
        for each in devices
    ]


# As upstream's TestListPodResourcesV1, TestListPodResourcesUsesOnlyActivePodsV1 and
# TestGetPodResourcesV1.
def test_all_active_pods_are_listed_with_or_without_devices(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=[near("a", 0, 1)])
    kubelet.terminate(kubelet.admitted("ended"))
    kubelet.admitted("with", main={R: 1}, other={})
    kubelet.admitted("without", main={})
    assert not kubelet.admit(Pod.of("rejected", main={R: 1}))
    main = [(R, "a", [0]), (R, "a", [1])]  # once for each node
    assert {"with": {"main": main, "other": []}, "without": {"main": []}} == listed(kubelet)
    request = pb.GetPodResourcesRequest(pod_name="with", pod_namespace="default")
    found = kubelet.agent["Get"](request).pod_resources
    assert ("with", "default") == (found.name, found.namespace)
    assert main == entries(found.containers[0].devices)


# As upstream's TestListPodResourcesWithInitContainersV1 and
# TestGetPodResourcesWithInitContainersV1.
def test_sidecars_are_listed_and_init_containers_are_not(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a", "b"])
    sidecar = Container("sidecar", {R: 1}, restarts_always=True)
    assert kubelet.admit(Pod("p", [Container("main")], [Container("init", {R: 1}), sidecar]))
    assert ["sidecar", "main"] == list(listed(kubelet)["p"])
    request = pb.GetPodResourcesRequest(pod_name="p", pod_namespace="default")
    shown = [container.name for container in kubelet.agent["Get"](request).pod_resources.containers]
    assert ["sidecar", "main"] == shown


# As upstream's TestAllocatableResources, TestGetAllocatableDevicesMultipleResources and
# TestGetAllocatableDevicesHealthTransition.
def test_allocatable_are_all_healthy_devices_in_use_or_not(kubelet: Kubelet) -> None:
    def allocatable() -> list[tuple[str, str, list[int]]]:
        answer = kubelet.agent["GetAllocatableResources"](pb.AllocatableResourcesRequest())
        return sorted(entries(answer.devices))

    ill = plugin_pb.Device(ID="ill", health="Unhealthy")
    stub = kubelet.plugin(devices=["a", near("b", 1), ill, near("hidden")])
    other = kubelet.plugin("x.io/other", {"a": "Unhealthy"}, name="other")
    kubelet.admitted()
    mine: list[tuple[str, str, list[int]]] = [(R, "a", []), (R, "b", [1])]
    assert mine == allocatable()
    kubelet.relist(other, "a")
    assert [*mine, ("x.io/other", "a", [])] == allocatable()
    kubelet.lose(stub)
    assert [("x.io/other", "a", [])] == allocatable()


def test_a_pod_that_is_not_there_is_an_error(kubelet: Kubelet) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        kubelet.agent["Get"](pb.GetPodResourcesRequest(pod_name="p", pod_namespace="ns"))
    call = cast("grpc.Call", raised.value)
    assert (grpc.StatusCode.UNKNOWN, "pod p in namespace ns not found") == (
        call.code(),
        call.details(),
    )
    assert {"get": 1} == kubelet.metrics.pod_resources_endpoint_errors
    assert {"get": 1, "total": 1} == kubelet.metrics.pod_resources_endpoint_requests


# As upstream's end-to-end test: tight-loop List hits the rate limit.
def test_all_clients_and_methods_share_one_rate_limit(kubelet: Kubelet) -> None:
    def hurry() -> None:
        for _ in range(500):
            kubelet.agent["List"](pb.ListPodResourcesRequest())
            kubelet.agent["GetAllocatableResources"](pb.AllocatableResourcesRequest())

    with pytest.raises(grpc.RpcError, match="rejected by rate limit") as raised:
        hurry()
    assert grpc.StatusCode.RESOURCE_EXHAUSTED == cast("grpc.Call", raised.value).code()


def test_the_rate_limit_is_100_a_second_and_10_at_once() -> None:
    now = 0.0
    bucket = TokenBucket(100, 10, lambda: now)
    assert 10 == sum(bucket.take() for _ in range(20))
    now = 0.05
    assert 5 == sum(bucket.take() for _ in range(20))
    now = 100.0
    assert 10 == sum(bucket.take() for _ in range(20))


def test_listing_takes_back_the_devices_of_finished_pods(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a"])
    pod = kubelet.admitted()
    kubelet.terminate(pod)
    kubelet.agent["GetAllocatableResources"](pb.AllocatableResourcesRequest())
    assert {"a"} == kubelet.in_use(R)
    listed(kubelet)
    assert set() == kubelet.in_use(R)


def test_a_pod_that_is_being_admitted_is_active_and_keeps_its_devices(kubelet: Kubelet) -> None:
    during: list[list[str]] = []
    during_allocate(kubelet.plugin(), lambda: during.append([*listed(kubelet)]))
    pod = Pod("p", [Container("app", {R: 1})], [Container("side", {R: 1}, restarts_always=True)])
    outcome = kubelet.admit(pod)
    assert [["p"], ["p"]] == during
    assert ids(outcome, "app") | ids(outcome, "side") == {"a", "b"}


@pytest.mark.parametrize(
    ("behaviour", "given"), [(Behaviour.v1_36(), "b"), (Behaviour.fixed(), "a")]
)
def test_listing_during_allocate_lets_a_device_be_given_away_twice(
    kubelet: Kubelet, given: str
) -> None:
    stub = kubelet.plugin(options=PREFERS)
    kubelet.tick()
    finished = kubelet.admitted("finished")

    def end_and_list() -> None:
        kubelet.terminate(finished)
        listed(kubelet)

    during_allocate(stub, end_and_list)
    kubelet.admitted("holder")
    assert [["a"], ["b"]] == stub.allocated
    stub.on_prefer = lambda _: preferred("b")
    stub.on_allocate = lambda _: allocated()
    assert {given} == ids(kubelet.admit(Pod.of("second", main={R: 1})))


def test_the_socket_is_moved_into_place_and_that_for_plugins_is_created(kubelet: Kubelet) -> None:
    kubelet.plugin()
    kubelet.stop()
    flags = inotify_simple.flags
    with inotify_simple.INotify() as inotify:
        watched = flags.CREATE | flags.DELETE | flags.MOVED_TO
        ours = inotify.add_watch(kubelet.pod_resources_socket.parent, watched)
        plugins = inotify.add_watch(kubelet.plugin_dir, watched)
        kubelet.start()
        events = [(event.wd, event.mask, event.name) for event in inotify.read(timeout=0)]
    assert {
        (plugins, flags.DELETE, "kubelet.sock"),
        (plugins, flags.DELETE, "stub.sock"),
        (plugins, flags.CREATE, "kubelet.sock"),
        (ours, flags.MOVED_TO, "kubelet.sock"),
    } == {one for one in events if one[0] == plugins or one[1] != flags.CREATE}
