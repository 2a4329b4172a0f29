"""Device plugins and DRA drivers on one node, and what one does to pods of the other."""

from typing import Any

import pytest

from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin.proto.podresources import podresources_pb2
from deviceplugin.proto.v1beta1 import deviceplugin_pb2
from deviceplugin_testing.simulator import (
    Behaviour,
    Container,
    ContainerStartError,
    ExtendedClaim,
    KubeletConfig,
    Pod,
    RequestMapping,
    double_bookings,
)
from kubelets.equipped import PRE_START, Kubelet, R, allocated, result


def by_limits(kubelet: Kubelet, name: str, *, init: bool = False) -> Pod:
    """Return a pod whose limit the scheduler satisfied by a claim of the same name."""
    extended = ExtendedClaim(name, [RequestMapping("main", R, "container-0-request-0")])
    first = [Container("first")] if init else []
    pod = Pod(name, [Container("main", {R: 1})], first, extended=extended)
    kubelet.give(name, pod, results=[result(request="container-0-request-0")], owner=pod)
    return pod


def of_node(ids: list[str]) -> deviceplugin_pb2.AllocateResponse:
    """Answer Allocate with a device node for each id."""
    paths = [f"/dev/{id_}" for id_ in ids]
    nodes = [deviceplugin_pb2.DeviceSpec(host_path=one, container_path=one) for one in paths]
    return allocated(devices=nodes, envs={"FROM": "plugin"})


# Limits that a claim satisfies.


def test_a_limit_that_a_claim_satisfies_is_not_the_plugins(kubelet: Kubelet) -> None:
    stub, other = kubelet.driver(), kubelet.plugin()
    options = kubelet.run(by_limits(kubelet, "p", init=True)).options
    got = options["main"]
    assert got
    assert options["first"] is None
    assert ({"CLAIM": "p"}, ()) == (got.envs, got.cdi_devices)
    assert [["p"]] == stub.prepared
    assert [] == other.allocated


@pytest.mark.parametrize(
    "config", [KubeletConfig(watch_interval=None, sync_interval=None, cdi_version="0.8.0")]
)
def test_a_container_can_have_devices_of_both(kubelet: Kubelet) -> None:
    kubelet.driver()
    kubelet.plugin("y.io/dev").on_allocate = of_node
    extended = ExtendedClaim("p", [RequestMapping("main", R, "r")])
    pod = Pod("p", [Container("main", {R: 1, "y.io/dev": 2})], extended=extended)
    kubelet.give("p", pod, results=[result(request="r")])
    got = kubelet.run(pod).options["main"]
    assert got
    assert {"FROM": "plugin", "CLAIM": "p"} == got.envs
    assert {"/dev/a", "/dev/b"} == {node.host_path for node in got.devices}


# T1.


def test_pre_start_of_a_plugin_prevents_pods_that_have_its_resource_from_a_claim(
    kubelet: Kubelet,
) -> None:
    kubelet.driver()
    stub = kubelet.plugin(options=PRE_START)
    pod = by_limits(kubelet, "p")
    why = "no devices found allocated in local cache for pod default/p, container main, resource "
    with pytest.raises(ContainerStartError, match=why):
        kubelet.run(pod)
    assert kubelet.pod(pod).sandbox
    kubelet.lose(stub)
    with pytest.raises(ContainerStartError, match=why):
        kubelet.start_container(pod, "main")
    kubelet.expire()
    assert kubelet.start_container(pod, "main")
    kubelet.plugin(name="back.sock", options=PRE_START)
    with pytest.raises(ContainerStartError, match=why):
        kubelet.start_container(pod, "main")
    kubelet.plugin(name="without.sock")
    assert kubelet.start_container(pod, "main")


@pytest.mark.parametrize("behaviour", [Behaviour.fixed()])
def test_once_that_is_fixed_pre_start_is_not_for_claims(kubelet: Kubelet) -> None:
    kubelet.driver()
    stub = kubelet.plugin(options=PRE_START)
    assert kubelet.run(by_limits(kubelet, "p")).options["main"]
    assert [] == stub.pre_started


# T2 and T3: see also test_claims.py.


def test_a_container_of_a_plugin_that_is_gone_cannot_come_back(kubelet: Kubelet) -> None:
    stub = kubelet.plugin(options=PRE_START)
    pod = Pod.of("p", main={R: 1})
    kubelet.run(pod)
    kubelet.exit_container(pod, "main")
    kubelet.lose(stub)
    with pytest.raises(ContainerStartError, match=r"rpc failed .* has been stopped"):
        kubelet.start_container(pod, "main")
    kubelet.restart()
    assert "UnexpectedAdmissionError" == kubelet.pod(pod).reason


# Double bookings.


def test_a_device_that_two_pods_have_is_noticed_at_the_start(kubelet: Kubelet) -> None:
    kubelet.plugin(devices=["a"]).on_allocate = of_node
    stub = kubelet.driver()

    def answer(claim: pb.Claim) -> pb.NodePrepareResourceResponse:
        given = stub.one_device(claim)
        stub.write_cdi(claim.uid, {"deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/a"}]})
        return given

    stub.on_prepare = answer
    one = Pod.of("one", main={R: 1}, other={})
    kubelet.run(one)
    assert {} == double_bookings(kubelet.pods)
    two = kubelet.claims.pod("two", "x.io", "pool", ["a"])
    kubelet.run(two)
    assert {"/dev/a": [one.uid, two.uid]} == double_bookings(kubelet.pods)
    assert {} == double_bookings(kubelet.pods, lambda _options: ())
    kubelet.exit_container(one, "main")
    assert {} == double_bookings(kubelet.pods)


# The pod resources API.


def listed(kubelet: Kubelet) -> dict[str, list[Any]]:
    """Return the claims of the container ``main``, by pod."""
    answer = kubelet.agent["List"](podresources_pb2.ListPodResourcesRequest())
    return {
        pod.name: list(pod.containers[0].dynamic_resources)
        for pod in answer.pod_resources
        if pod.containers
    }


# As upstream's TestGetDynamicResources.
def test_claims_are_listed_with_the_cdi_names_of_all_devices_before(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    stub.on_prepare = lambda _claim: pb.NodePrepareResourceResponse(
        devices=[
            pb.Device(pool_name="pool", device_name=name, cdi_device_ids=[f"x.io/c={name}"])
            for name in "ab"
        ]
    )
    pod = kubelet.claims.pod("p", "x.io", "pool", ["a", "b"])
    kubelet.admit(pod)
    assert {"p": []} == listed(kubelet)
    kubelet._live().workers.make_sandbox(kubelet.pod(pod))
    (claim,) = listed(kubelet)["p"]
    assert ("p", "default") == (claim.claim_name, claim.claim_namespace)
    assert [
        ("x.io", "pool", "a", ["x.io/c=a"]),
        ("x.io", "pool", "b", ["x.io/c=a", "x.io/c=b"]),
    ] == [
        (each.driver_name, each.pool_name, each.device_name, [one.name for one in each.cdi_devices])
        for each in claim.claim_resources
    ]


def test_claims_for_limits_are_listed_for_their_container(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    stub.on_prepare = lambda claim: pb.NodePrepareResourceResponse(
        devices=[pb.Device(pool_name="pool", device_name=claim.name, share_id="s")]
    )
    kubelet.run(by_limits(kubelet, "p"))
    kubelet.run(Pod.of("none", main={}))
    found = listed(kubelet)
    assert [] == found["none"]
    (claim,) = found["p"]
    assert ["s"] == [each.share_id for each in claim.claim_resources]
