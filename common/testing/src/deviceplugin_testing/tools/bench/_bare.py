"""The least device plugin that grpcio and our messages allow, for comparison with ours.

``python .../_bare.py DIRECTORY`` imports grpcio and the generated messages, and nothing else of the
framework. It serves the files of the directory, registers once with the kubelet of
``DP_PLUGIN_DIR``, and waits for SIGTERM. It has no settings, metrics or HTTP, watches nothing,
checks nothing, and does not survive a restart of the kubelet. All that our plugins take above it is
the framework's.
"""

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

_SOCKET: Final = "bare.sock"
_RESOURCE: Final = "bench.example/bare"
_MESSAGES: Final = "proto/v1beta1/deviceplugin_pb2.py"
"""In the framework. Importing it by its name would import the framework."""


def _messages() -> Any:
    framework = importlib.util.find_spec("deviceplugin")  # only found, not imported
    if framework is None or framework.origin is None:
        raise ImportError("deviceplugin")
    path = os.path.join(os.path.dirname(framework.origin), _MESSAGES)  # noqa: PTH118, PTH120
    spec = importlib.util.spec_from_file_location("deviceplugin_pb2", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Bare:
    # ruff: noqa: ARG002 - the arguments are gRPC's

    def __init__(self, directory: str, messages: Any) -> None:
        self._directory = directory
        self._messages = messages

    def options(self, request: object, context: object) -> Any:
        return self._messages.DevicePluginOptions()

    def list(self, request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        over = threading.Event()
        context.add_callback(over.set)
        device = self._messages.Device
        names = sorted(os.listdir(self._directory))  # noqa: PTH208 - no pathlib
        yield self._messages.ListAndWatchResponse(
            devices=[device(ID=name, health="Healthy") for name in names]
        )
        over.wait()

    def allocate(self, request: Any, context: object) -> Any:
        return self._messages.AllocateResponse(
            container_responses=[
                self._messages.ContainerAllocateResponse(envs={"BARE": ",".join(each.devices_ids)})
                for each in request.container_requests
            ]
        )


def _encode(message: Any) -> Any:
    return message.SerializeToString()


def _method(make: Callable[..., Any], behaviour: Callable[..., Any], request: Any) -> Any:
    return make(behaviour, request_deserializer=request.FromString, response_serializer=_encode)


def main() -> None:
    """Serve until SIGTERM."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - this program and its argument
        sys.exit("usage: _bare.py DIRECTORY")
    pb = _messages()
    bare = _Bare(sys.argv[1], pb)
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    methods = {
        "GetDevicePluginOptions": _method(unary, bare.options, pb.Empty),
        "ListAndWatch": _method(stream, bare.list, pb.Empty),
        "Allocate": _method(unary, bare.allocate, pb.AllocateRequest),
    }
    directory = os.environ["DP_PLUGIN_DIR"]
    handler = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)
    server = grpc.server(ThreadPoolExecutor(max_workers=16), [handler])
    server.add_insecure_port(f"unix:{directory}/{_SOCKET}")
    server.start()
    with grpc.insecure_channel(f"unix:{directory}/kubelet.sock") as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=_encode,
            response_deserializer=pb.Empty.FromString,
        )
        request = pb.RegisterRequest(version="v1beta1", endpoint=_SOCKET, resource_name=_RESOURCE)
        register(request, timeout=5)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.stop(0).wait()


if __name__ == "__main__":
    main()
