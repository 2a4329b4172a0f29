"""What the kubelet says about what pods hold, and what becomes of what it cannot say."""

from collections.abc import Callable, Iterable, Iterator
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


def test_what_pods_hold_is_asked_of_all_and_of_some(
    kubelet: Kubelet, service: PodResources, calls: list[tuple[str, str]]
) -> None:
    plugin_pod = ("default", PLUGIN_POD.name)
    with kubelet.running(ScriptedPlugin("a", sick("c"))) as node:
        node.wait_for(RESOURCE, {"a"}, {"c"})
        node.kubelet.run(Pod.of("door", main={RESOURCE: 1}))
        listed = service.list()
        assert {(RESOURCE, "a")} == service.allocatable(), "what is healthy, held or not"
        found = service.get([DOOR, ("default", "gone"), plugin_pod])
    hold = Hold(RESOURCE, "a", *DOOR, "main")
    assert frozenset({hold}) == listed.holds == found.holds
    assert {DOOR, plugin_pod} == listed.pods
    assert ({"a"}, True) == (listed.of(RESOURCE), listed.complete)
    assert ({"a": [hold]}, {}) == (listed.holders(RESOURCE), listed.holders("example.com/other"))
    assert [("List", "OK"), ("GetAllocatableResources", "OK")] == calls[:2]
    assert [("Get", "NOT_FOUND"), ("Get", "OK"), ("Get", "OK")] == sorted(calls[2:])


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
    asks: list[Callable[[], Holdings]] = [service.list, lambda: service.get([DOOR])]
    for ask in asks:
        with pytest.raises(KubeletUnavailableError, match=rf"kubelet\.sock: {text}$"):
            ask()


def test_nothing_is_known_where_the_directory_is_not_mounted(tmp_path: Path) -> None:
    service = PodResources(tmp_path / "nowhere" / "kubelet.sock", lambda _method, _code: None)
    listed = service.list()
    assert (Holdings(), None) == (listed, listed.of(RESOURCE))


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


def test_an_answer_that_cannot_be_read_or_is_too_long_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = tmp_path / "kubelet.sock"
    answers = [b"\xff\xfe", b"\xff\xfe", *(bytes(17_000_000 + more) for more in range(2))]
    long = "List: the answer is longer than 16777216 bytes"  # whatever the length is
    with answering(socket, answers) as service:
        asks: list[tuple[Callable[[], Holdings], str]] = [
            (service.list, "List: the answer cannot be read"),
            (lambda: service.get([DOOR]), "Get: the answer cannot be read"),
            (service.list, long),
            (service.list, long),
        ]
        for ask, text in asks:
            with pytest.raises(KubeletUnavailableError) as raised:
                ask()
            assert f"{socket}: {text}" == str(raised.value)
    assert [] == caplog.records
