"""The health of devices, from the driver's stream to the status of pods."""

import pytest

from deviceplugin.proto.dra import HEALTH, V1
from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin_testing.simulator import (
    Container,
    ContainerClaim,
    ExtendedClaim,
    KubeletConfig,
    Pod,
    PodClaim,
    RequestMapping,
    ResourceHealth,
    StubError,
)
from deviceplugin_testing.simulator._dra.plugins import HEALTH_V1
from kubelets.equipped import Kubelet, result
from patience import eventually

DEVICE = ("pool", "device")


def run(kubelet: Kubelet, name: str = "p") -> Pod:
    pod = kubelet.claiming(name)
    assert kubelet.run(pod).options
    return pod


def shown(kubelet: Kubelet, pod: Pod) -> tuple[str, str]:
    """Return health and message of the pod's only device."""
    (entry,) = kubelet.dra.health(pod)["main"]["claim:claim"]
    return entry.health, entry.message


def test_a_report_is_shown_in_the_status_and_pokes_the_pod(kubelet: Kubelet) -> None:
    stub, pod = kubelet.prepared()
    assert ("Unknown", "") == shown(kubelet, pod)
    stub.report({DEVICE: "Healthy"})
    kubelet.wait(lambda: shown(kubelet, pod) == ("Healthy", ""))
    stub.report({DEVICE: "Unhealthy"}, message="ECC error: 3")
    kubelet.wait(lambda: shown(kubelet, pod) == ("Unhealthy", "ECC error: 3"))
    stub.report({DEVICE: "odd"})
    kubelet.wait(lambda: shown(kubelet, pod) == ("Unknown", ""))
    assert [frozenset({pod.uid})] * 3 == kubelet.take_pokes()
    stub.report({DEVICE: "Unhealthy"}, message="x" * 1025)
    kubelet.wait(lambda: shown(kubelet, pod) == ("Unhealthy", "x" * 1021 + "..."))


def test_a_report_without_news_pokes_nobody(kubelet: Kubelet) -> None:
    stub, pod = kubelet.prepared()
    stub.on_prepare = lambda claim: stub.devices(claim, "unreported")
    run(kubelet, "another")
    stub.report({DEVICE: "Healthy"})
    kubelet.wait(lambda: shown(kubelet, pod)[0] == "Healthy")
    kubelet.take_pokes()
    stub.report({DEVICE: "Healthy", ("pool", "other"): "Healthy"})
    stub.report({("pool", "other"): "Unhealthy"})
    stub.report({DEVICE: "Unhealthy"})
    kubelet.wait(lambda: shown(kubelet, pod)[0] == "Unhealthy")
    assert [frozenset({pod.uid})] == kubelet.take_pokes()


@pytest.mark.parametrize(("timeout", "seconds"), [(0, 30), (-5, 30), (7, 7)])
def test_a_report_that_is_not_repeated_does_not_hold(
    kubelet: Kubelet, timeout: int, seconds: int
) -> None:
    stub, pod = kubelet.prepared()
    stub.report({DEVICE: "Healthy"}, timeout=timeout)
    kubelet.wait(lambda: shown(kubelet, pod)[0] == "Healthy")
    kubelet.clock.advance(seconds)
    assert "Healthy" == shown(kubelet, pod)[0]
    kubelet.clock.advance(0.1)
    assert "Unknown" == shown(kubelet, pod)[0]
    kubelet.take_pokes()
    stub.report({("pool", "other"): "Healthy"})  # which makes the kubelet notice
    kubelet.wait(lambda: [frozenset({pod.uid})] == kubelet.take_pokes())


def test_a_stream_that_ends_is_taken_anew_after_5_s(kubelet: Kubelet) -> None:
    stub, pod = kubelet.prepared()
    stub.report({DEVICE: "Healthy"})
    kubelet.wait(lambda: shown(kubelet, pod)[0] == "Healthy")
    stub.end_streams()
    kubelet.wait(lambda: shown(kubelet, pod)[0] == "Unknown")
    kubelet.sync_after(4.9)
    assert 0 == stub.streams
    kubelet.sync_after(0.1)
    kubelet.wait(lambda: shown(kubelet, pod)[0] == "Healthy")


def test_a_driver_is_asked_for_health_even_if_it_does_not_register_that(kubelet: Kubelet) -> None:
    stub = kubelet.driver(services=["v1.DRAPlugin"])
    eventually(lambda: stub.streams == 1)
    stub.failing["NodeWatchResources"] = StubError("no")
    stub.end_streams()
    eventually(lambda: stub.streams == 0)

    def asked_again() -> bool:
        kubelet.clock.advance(5)
        kubelet.sync()
        return stub.calls.count("NodeWatchResources") > 1

    eventually(asked_again)


NEXT = KubeletConfig(version="1.37", watch_interval=None, sync_interval=None)


@pytest.mark.parametrize("config", [NEXT])
@pytest.mark.parametrize(
    ("services", "asked"),
    [([], ""), ([HEALTH], HEALTH), ([HEALTH, HEALTH_V1], HEALTH_V1)],
)
def test_from_1_37_a_driver_is_asked_for_the_health_that_it_registers(
    kubelet: Kubelet, services: list[str], asked: str
) -> None:
    stub = kubelet.driver(services=[V1, *services])
    assert kubelet._process
    ((instance,),) = kubelet._process.dra.drivers.all.values()
    assert asked == instance.health
    eventually(lambda: stub.streams == (1 if asked == HEALTH else 0))


@pytest.mark.parametrize(
    "config", [KubeletConfig(version="1.35", watch_interval=None, sync_interval=None)]
)
def test_before_1_36_no_driver_is_asked_for_health(kubelet: Kubelet) -> None:
    stub, pod = kubelet.prepared()
    assert 0 == stub.calls.count("NodeWatchResources")
    assert {} == kubelet.dra.health(pod)


# As upstream's TestUpdateAllocatedResourcesStatus of DRA.
def test_devices_with_the_same_first_cdi_name_are_shown_as_one(kubelet: Kubelet) -> None:
    stub = kubelet.driver()

    def answer(claim: pb.Claim) -> pb.NodePrepareResourceResponse:
        given = stub.devices(claim, "a", "b", "c")
        given.devices[1].cdi_device_ids.append(given.devices[0].cdi_device_ids[0])
        return given

    stub.on_prepare = answer
    stub.report({("pool", "a"): "Healthy", ("pool", "b"): "Unhealthy"})
    pod = run(kubelet)
    uid = kubelet.claims.claim("default", "p")["metadata"]["uid"]
    expected = [
        ResourceHealth(f"x.io/claim={uid}", "Healthy"),
        ResourceHealth("x.io/pool/c", "Unknown"),
    ]
    kubelet.wait(lambda: expected == kubelet.dra.health(pod)["main"]["claim:claim"])


def test_requests_are_shown_apart_and_claims_for_limits_are_not(kubelet: Kubelet) -> None:
    stub = kubelet.driver()
    stub.on_prepare = lambda claim: stub.devices(claim, "device", request="r")
    container = Container(
        "main", {"x.io/dev": 1}, claims=[ContainerClaim("c", "r/sub"), ContainerClaim("c", "s")]
    )
    extended = ExtendedClaim("e", [RequestMapping("main", "x.io/dev", "r")])
    pod = Pod("p", [container], claims=[PodClaim("c", "c")], extended=extended)
    for name in "ce":
        kubelet.give(name, pod, results=[result(request="r")], uid=name)
    assert kubelet.run(pod).options
    assert {"main": {"claim:c/r/sub": [ResourceHealth("x.io/claim=c", "Unknown")]}} == (
        kubelet.dra.health(pod)
    )
