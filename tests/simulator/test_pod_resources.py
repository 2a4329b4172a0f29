"""The pod resources API."""

import threading
from typing import Any, cast

import grpc
import inotify_simple
import pytest

from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as plugin_pb
from deviceplugin_testing.simulator import Behaviour, Container, Pod
from deviceplugin_testing.simulator._podresources import TokenBucket
from kubelets.equipped import Kubelet, R, near


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


# As upstream's TestListPodResourcesV1.
def test_all_active_pods_are_listed_with_or_without_devices(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a"])
    assert {} == listed(kubelet)
    kubelet.admitted("with", main={R: 1}, other={})
    kubelet.admitted("without", main={})
    expected = {"with": {"main": [(R, "a", [])], "other": []}, "without": {"main": []}}
    assert expected == listed(kubelet)


# As upstream's TestListPodResourcesUsesOnlyActivePodsV1.
def test_pods_that_have_ended_are_not_listed(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a"])
    pod = kubelet.admitted()
    assert not kubelet.admit(Pod.of("rejected", main={R: 1}))
    kubelet.terminate(pod)
    assert {} == listed(kubelet)


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


def test_a_device_near_two_nodes_is_listed_once_for_each(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=[near("a", 0, 1)])
    kubelet.admitted()
    assert {"p": {"main": [(R, "a", [0]), (R, "a", [1])]}} == listed(kubelet)


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


# As upstream's TestGetPodResourcesV1.
def test_one_pod_can_be_asked_for(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a"])
    assert kubelet.admit(Pod("p", [Container("main", {R: 1})], namespace="ns"))
    request = pb.GetPodResourcesRequest(pod_name="p", pod_namespace="ns")
    found = kubelet.agent["Get"](request).pod_resources
    assert ("p", "ns") == (found.name, found.namespace)
    assert [(R, "a", [])] == entries(found.containers[0].devices)


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
    stub = kubelet.plugin(devices=["a", "b"])
    answer = stub.on_allocate
    during: list[list[str]] = []

    def allocate(ids: list[str]) -> plugin_pb.AllocateResponse:
        during.append(list(listed(kubelet)))
        return answer(ids)

    stub.on_allocate = allocate
    pod = Pod("p", [Container("app", {R: 1})], [Container("side", {R: 1}, restarts_always=True)])
    outcome = kubelet.admit(pod)
    assert [["p"], ["p"]] == during
    assert outcome.devices["app"][R] | outcome.devices["side"][R] == {"a", "b"}


@pytest.mark.parametrize(
    ("behaviour", "given"), [(Behaviour.v1_36(), "b"), (Behaviour.fixed(), "a")]
)
def test_listing_during_allocate_lets_a_device_be_given_away_twice(
    kubelet: Kubelet, given: str
) -> None:
    prefers = plugin_pb.DevicePluginOptions(get_preferred_allocation_available=True)
    stub = kubelet.plugin(devices=["a", "b"], options=prefers)
    kubelet.tick()
    finished = kubelet.admitted("finished")
    holder = Pod.of("holder", main={R: 1})
    stub.hold("Allocate")
    admitting = threading.Thread(target=kubelet.admit, args=(holder,))
    admitting.start()
    stub.wait(lambda: len(stub.allocated) == 2)
    kubelet.terminate(finished)
    listed(kubelet)
    stub.release()
    admitting.join()
    assert [["a"], ["b"]] == stub.allocated
    answer = plugin_pb.ContainerPreferredAllocationResponse(deviceIDs=["b"])
    stub.on_prefer = lambda _: plugin_pb.PreferredAllocationResponse(container_responses=[answer])
    outcome = kubelet.admit(Pod.of("second", main={R: 1}))
    assert {"main": {R: {given}}} == outcome.devices


def test_the_socket_is_moved_into_place(kubelet: Kubelet) -> None:
    kubelet.stop()
    with inotify_simple.INotify() as inotify:
        flags = inotify_simple.flags
        inotify.add_watch(kubelet.pod_resources_socket.parent, flags.CREATE | flags.MOVED_TO)
        kubelet.start()
        (event,) = inotify.read(timeout=0)
    assert (flags.MOVED_TO, "kubelet.sock") == (event.mask, event.name)


def test_the_plugin_directorys_socket_is_created(kubelet: Kubelet) -> None:
    kubelet.plugin()
    kubelet.stop()
    with inotify_simple.INotify() as inotify:
        flags = inotify_simple.flags
        inotify.add_watch(kubelet.plugin_dir, flags.CREATE | flags.DELETE | flags.MOVED_TO)
        kubelet.start()
        events = [(event.mask, event.name) for event in inotify.read(timeout=0)]
    *deleted, last = events
    assert {(flags.DELETE, "kubelet.sock"), (flags.DELETE, "stub.sock")} == set(deleted)
    assert (flags.CREATE, "kubelet.sock") == last
