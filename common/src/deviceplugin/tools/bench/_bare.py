"""A minimal device plugin with the same libraries, for comparison with ours.

``python -m deviceplugin.tools.bench._bare --directory DIR`` imports what the framework imports,
serves the files of a directory over gRPC and metrics over HTTP, and registers once. It watches
nothing, checks nothing, and does not survive a restart of the kubelet.
"""

import argparse
import logging
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import inotify_simple  # noqa: F401 - as the framework does
import prometheus_client
import tenacity  # noqa: F401 - as the framework does

from deviceplugin._platform import rpc
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

_SOCKET = "bare.sock"
_RESOURCE = "bench.example/bare"
_SERVICES = pb.DESCRIPTOR.services_by_name


class _Bare:
    # ruff: noqa: ARG002, N802 - the names and arguments are gRPC's

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def GetDevicePluginOptions(self, request: object, context: object) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions()

    def ListAndWatch(
        self, request: object, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        over = threading.Event()
        context.add_callback(over.set)
        names = sorted(path.name for path in self._directory.iterdir())
        yield pb.ListAndWatchResponse(
            devices=[pb.Device(ID=name, health="Healthy") for name in names]
        )
        over.wait()

    def Allocate(self, request: Any, context: object) -> pb.AllocateResponse:
        return pb.AllocateResponse(
            container_responses=[
                pb.ContainerAllocateResponse(envs={"BARE": ",".join(each.devices_ids)})
                for each in request.container_requests
            ]
        )


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    options = parser.parse_args()
    logging.basicConfig()
    plugin_dir = Path(os.environ["DP_PLUGIN_DIR"])
    server = grpc.server(ThreadPoolExecutor(max_workers=16))
    server.add_generic_rpc_handlers(
        [rpc.service(_SERVICES["DevicePlugin"], _Bare(options.directory))]
    )
    server.add_insecure_port(f"unix:{plugin_dir / _SOCKET}")
    server.start()
    if (address := os.environ.get("DP_HTTP_ADDRESS", "off")) != "off":
        host, _, port = address.rpartition(":")
        prometheus_client.start_http_server(int(port), host)
    with grpc.insecure_channel(f"unix:{plugin_dir / 'kubelet.sock'}") as channel:
        request = pb.RegisterRequest(version="v1beta1", endpoint=_SOCKET, resource_name=_RESOURCE)
        rpc.calls(channel, _SERVICES["Registration"])["Register"](request, timeout=5)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.stop(0).wait()


if __name__ == "__main__":
    main()
