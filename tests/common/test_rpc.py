"""Connections that share nothing. What is called by them, all tests with a kubelet see."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from patience import PATIENCE

SERVICE = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
OPTIONS = pb.DevicePluginOptions(pre_start_required=True)


class Implementation:
    """One of the service's methods, by its name."""

    def GetDevicePluginOptions(self, _request: object, _context: object) -> pb.DevicePluginOptions:  # noqa: N802
        return OPTIONS


def test_an_attempt_that_failed_makes_no_other_connection_wait(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    # So long that who shares the connection of the attempt that failed has no answer in time.
    wait = {"initial_reconnect_backoff_ms": 120_000, "max_reconnect_backoff_ms": 120_000}
    with (
        rpc.connect(socket, **wait) as early,
        rpc.connect(socket, **wait) as late,
        ThreadPoolExecutor(1) as workers,
    ):
        with pytest.raises(grpc.RpcError):
            rpc.calls(early, SERVICE)["GetDevicePluginOptions"](pb.Empty(), timeout=PATIENCE)
        server = grpc.server(workers, handlers=[rpc.service(SERVICE, Implementation())])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        calls = rpc.calls(late, SERVICE)
        assert OPTIONS == calls["GetDevicePluginOptions"](pb.Empty(), timeout=PATIENCE)
        with pytest.raises(grpc.RpcError) as raised:  # it is not written
            calls["Allocate"](pb.AllocateRequest(), timeout=PATIENCE)
        assert "UNIMPLEMENTED: Method not found!" == rpc.status_text(raised.value)
        server.stop(None).wait(PATIENCE)
