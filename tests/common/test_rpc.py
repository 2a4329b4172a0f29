from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from patience import PATIENCE

SERVICE = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
LIST = pb.ListAndWatchResponse(devices=[pb.Device(ID="a", health="Healthy")])


class Implementation:
    """Two of the service's methods, by their names."""

    def GetDevicePluginOptions(self, request: pb.Empty, _context: Any) -> pb.DevicePluginOptions:  # noqa: N802
        assert pb.Empty() == request
        return pb.DevicePluginOptions(pre_start_required=True)

    def ListAndWatch(self, _request: pb.Empty, context: grpc.ServicerContext) -> Iterator[bytes]:  # noqa: N802
        yield LIST.SerializeToString()
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")


@pytest.fixture(scope="module")
def calls() -> Iterator[Any]:
    """The callables of a client of ``Implementation``."""
    workers = ThreadPoolExecutor(2)
    service = rpc.service(SERVICE, Implementation(), encoded=frozenset({"ListAndWatch"}))
    server = grpc.server(workers, handlers=[service])
    with TemporaryDirectory(prefix="rpc") as directory:  # paths of sockets must be short
        socket = Path(directory) / "socket"
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        with rpc.connect(socket) as channel:
            yield rpc.calls(channel, SERVICE)
        server.stop(None).wait(PATIENCE)
    workers.shutdown()


def test_a_client_can_call_every_method_of_the_service(calls: Any) -> None:
    assert [
        "Allocate",
        "GetDevicePluginOptions",
        "GetPreferredAllocation",
        "ListAndWatch",
        "PreStartContainer",
    ] == sorted(calls)
    answer = calls["GetDevicePluginOptions"](pb.Empty(), timeout=PATIENCE)
    assert pb.DevicePluginOptions(pre_start_required=True) == answer
    with pytest.raises(grpc.RpcError) as raised:  # it is not written
        calls["Allocate"](pb.AllocateRequest(), timeout=PATIENCE)
    assert "UNIMPLEMENTED: Method not found!" == rpc.status_text(raised.value)


def test_what_is_encoded_already_is_sent_as_it_is(calls: Any) -> None:
    stream = calls["ListAndWatch"](pb.Empty(), timeout=PATIENCE)
    assert LIST == next(stream)
    with pytest.raises(grpc.RpcError) as raised:
        next(stream)
    assert "RESOURCE_EXHAUSTED: enough" == rpc.status_text(raised.value)


def test_an_attempt_that_failed_makes_no_other_connection_wait(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    # So long that who shares the connection of the attempt that failed has no answer in time.
    wait = {"initial_reconnect_backoff_ms": 120_000, "max_reconnect_backoff_ms": 120_000}
    with rpc.connect(socket, **wait) as early, rpc.connect(socket, **wait) as late:
        with pytest.raises(grpc.RpcError):
            rpc.calls(early, SERVICE)["GetDevicePluginOptions"](pb.Empty(), timeout=PATIENCE)
        workers = ThreadPoolExecutor(1)
        server = grpc.server(workers, handlers=[rpc.service(SERVICE, Implementation())])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        answer = rpc.calls(late, SERVICE)["GetDevicePluginOptions"](pb.Empty(), timeout=PATIENCE)
        server.stop(None).wait(PATIENCE)
        workers.shutdown()
    assert answer.pre_start_required
