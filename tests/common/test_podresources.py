"""What the kubelet says about what pods hold, and what becomes of what it cannot say."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from deviceplugin._attribution.podresources import (
    ClaimedDevice,
    Hold,
    Holdings,
    NoGetError,
    PodResources,
)
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin.proto.podresources import podresources_pb2 as pb
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.fixture._node import PLUGIN_POD
from deviceplugin_testing.simulator import Pod
from kubelets.pod_resources import pod_resources
from scripted_plugin import RESOURCE, ScriptedPlugin, sick

DOOR = ("default", "door")


@pytest.fixture
def calls() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def service(kubelet: Kubelet, calls: list[tuple[str, str]]) -> PodResources:
    return PodResources(
        kubelet.simulated.pod_resources_socket, lambda method, code: calls.append((method, code))
    )


def test_all_pods_and_what_they_hold_are_listed(
    kubelet: Kubelet, service: PodResources, calls: list[tuple[str, str]]
) -> None:
    with kubelet.running(ScriptedPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        node.kubelet.run(Pod.of("door", main={RESOURCE: 1}))
        before = len(calls)
        listed = service.list()
    hold = Hold(RESOURCE, "a", *DOOR, "main")
    assert frozenset({hold}) == listed.holds
    assert {DOOR, ("default", PLUGIN_POD.name)} == listed.pods
    assert ({"a"}, True) == (listed.of(RESOURCE), listed.complete)
    assert ({"a": [hold]}, {}) == (listed.holders(RESOURCE), listed.holders("example.com/other"))
    assert [("List", "OK")] == calls[before:]


def test_the_healthy_devices_are_allocatable_held_or_not(
    kubelet: Kubelet, service: PodResources, calls: list[tuple[str, str]]
) -> None:
    with kubelet.running(ScriptedPlugin("a", "b", sick("c"))) as node:
        node.wait_for(RESOURCE, {"a", "b"}, {"c"})
        node.kubelet.run(Pod.of("door", main={RESOURCE: 1}))
        assert {(RESOURCE, "a"), (RESOURCE, "b")} == service.allocatable()
    assert ("GetAllocatableResources", "OK") == calls[-1]


def test_what_containers_have_through_claims_is_told_apart(tmp_path: Path) -> None:
    claimed = pb.ClaimResource(driver_name="d.io", pool_name="n1/x", device_name="a-1")
    pod = pb.PodResources(name="door", namespace="default")
    container = pod.containers.add(name="main")
    container.devices.add(resource_name=RESOURCE, device_ids=["b"])
    container.dynamic_resources.add(
        claim_name="one", claim_namespace="default", claim_resources=[claimed]
    )
    hold = Hold(RESOURCE, "b", *DOOR, "main")
    one = ClaimedDevice("d.io", "n1/x", "a-1", "one", *DOOR, "main")
    answers = [
        pb.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString(),
        pb.GetPodResourcesResponse(pod_resources=pod).SerializeToString(),
    ]
    with answering(tmp_path / "kubelet.sock", answers) as service:
        for found in (service.list(), service.get([DOOR])):
            assert (frozenset({hold}), frozenset({one})) == (found.holds, found.claimed)


def test_single_pods_are_asked_for_and_those_that_have_gone_hold_nothing(
    kubelet: Kubelet, service: PodResources, calls: list[tuple[str, str]]
) -> None:
    with kubelet.running(ScriptedPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        node.kubelet.run(Pod.of("door", main={RESOURCE: 1}))
        found = service.get([DOOR, ("default", "gone"), ("default", PLUGIN_POD.name)])
    assert frozenset({Hold(RESOURCE, "a", *DOOR, "main")}) == found.holds
    assert [("Get", "NOT_FOUND"), ("Get", "OK"), ("Get", "OK")] == sorted(calls)


def test_nothing_is_known_where_the_directory_is_not_mounted(tmp_path: Path) -> None:
    service = PodResources(tmp_path / "nowhere" / "kubelet.sock", lambda _method, _code: None)
    listed = service.list()
    assert (Holdings(), None) == (listed, listed.of(RESOURCE))


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        (".", "no such socket"),
        ("x" * 300, "File name too long"),  # as where SELinux denies it, even to root
    ],
)
def test_a_socket_that_cannot_be_found_is_a_kubelet_that_is_not_there(
    tmp_path: Path, folder: str, text: str
) -> None:
    service = PodResources(tmp_path / folder / "kubelet.sock", lambda _method, _code: None)
    for ask in (service.list, lambda: service.get([DOOR])):
        with pytest.raises(KubeletUnavailableError, match=rf"kubelet\.sock: {text}$"):
            ask()


def test_a_kubelet_that_lists_no_pod_is_not_believed_to_know_all(
    kubelet: Kubelet, service: PodResources
) -> None:
    kubelet.simulated.restart(readmit=False)
    listed = service.list()
    assert (frozenset(), False) == (listed.holds, listed.complete)


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, "unknown method", NoGetError),
        (grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled", NoGetError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit", KubeletUnavailableError),
    ],
)
def test_a_kubelet_that_has_no_get_is_told_from_one_that_is_busy(
    tmp_path: Path,
    calls: list[tuple[str, str]],
    code: grpc.StatusCode,
    text: str,
    kind: type[Exception],
) -> None:
    def get(_request: Any, context: grpc.ServicerContext) -> None:
        context.abort(code, text)

    socket = tmp_path / "kubelet.sock"
    with pod_resources(socket, Get=get):
        service = PodResources(socket, lambda method, name: calls.append((method, name)))
        with pytest.raises(KubeletUnavailableError) as raised:
            service.get([DOOR])
    assert (kind, f"{socket}: {code.name}: {text}") == (raised.type, str(raised.value))
    assert [("Get", code.name)] == calls


@contextmanager
def answering(socket: Path, answers: Iterable[bytes]) -> Iterator[PodResources]:
    """A service whose answers are these bytes, one after the other."""
    remaining = iter(answers)

    handler: Any = grpc.unary_unary_rpc_method_handler(lambda _request, _context: next(remaining))
    handlers = dict.fromkeys(("List", "Get"), handler)
    server = grpc.server(
        ThreadPoolExecutor(1),
        [grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)],
        options=[("grpc.max_send_message_length", -1)],
    )
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield PodResources(socket, lambda _method, _code: None)
    finally:
        server.stop(None).wait()


def test_an_answer_that_cannot_be_read_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "kubelet.sock"
    with answering(socket, [b"\xff\xfe", b"\xff\xfe"]) as service:
        for method, ask in (("List", service.list), ("Get", lambda: service.get([DOOR]))):
            with pytest.raises(KubeletUnavailableError) as raised:
                ask()
            assert f"{socket}: {method}: the answer cannot be read" == str(raised.value)
    assert [] == caplog.records


def test_answers_that_are_too_long_are_all_told_in_the_same_words(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    with answering(socket, [bytes(17_000_000 + more) for more in range(2)]) as service:
        for _ in range(2):
            with pytest.raises(KubeletUnavailableError) as raised:
                service.list()
            expected = f"{socket}: List: the answer is longer than 16777216 bytes"
            assert expected == str(raised.value)
