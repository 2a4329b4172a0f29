"""A plugin whose answers can all be set, for tests of a kubelet."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as watcher_pb
from deviceplugin.proto.v1beta1 import KUBELET_SOCKET, VERSION
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._stubs.plugin_service import Devices, StubService

_DEVICE_PLUGIN = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
_REGISTRATION = pb.DESCRIPTOR.services_by_name["Registration"]
_WATCHER_REGISTRATION = watcher_pb.DESCRIPTOR.services_by_name["Registration"]

_WORKERS = 32
"""Each open stream needs one."""

_STOP_GRACE = 0.05
"""Seconds for streams to end by themselves; gRPC complains on standard error about the others."""


class StubPlugin(StubService):
    """A scripted device plugin for one resource.

    ``with StubPlugin(...) as plugin: ...`` serves and registers. It does nothing by itself: it does
    not register again, for example. In the kubelet's plugins_registry it need not register, because
    it also answers the plugin watcher's calls.
    """

    def __init__(
        self,
        directory: Path,
        resource: str,
        devices: Devices = (),
        *,
        name: str = "stub.sock",
        options: pb.DevicePluginOptions | None = None,
    ) -> None:
        """Make a plugin that will listen on ``name`` in ``directory``.

        Args:
            directory: The kubelet's plugin directory, or its plugins_registry.
            resource: Name to register.
            devices: Ids of healthy devices, or id to health, or whole messages.
            name: File name of the socket.
            options: The answer to GetDevicePluginOptions.
        """
        super().__init__(resource, devices, options)
        self.resource = resource
        self.socket = directory / name
        """The path of its socket."""
        self._server: grpc.Server | None = None
        self._executor: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self.start()
        self.register()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve, without registering."""
        self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix=self.socket.name)
        services = [rpc.service(_DEVICE_PLUGIN, self), rpc.service(_WATCHER_REGISTRATION, self)]
        self._server = grpc.server(self._executor, handlers=services)
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def register(
        self,
        *,
        version: str = VERSION,
        endpoint: str | None = None,
        timeout: float | None = 15.0,
    ) -> None:
        """Call Register on the kubelet's socket; raise ``grpc.RpcError`` if the kubelet refuses."""
        request = pb.RegisterRequest(
            version=version,
            endpoint=self.socket.name if endpoint is None else endpoint,
            resource_name=self.resource,
        )
        with rpc.connect(self.socket.with_name(KUBELET_SOCKET)) as channel:
            rpc.calls(channel, _REGISTRATION)["Register"](request, timeout=timeout)

    def stop(self) -> None:
        """End streams, cancel other calls, and remove the socket. Idempotent."""
        if self._server is None or self._executor is None:
            return
        if not self.holding:
            self.end_streams()
        stopped = self._server.stop(None if self.holding else _STOP_GRACE)
        self.release()
        self.end_streams()
        stopped.wait()
        self._executor.shutdown()
        self._server = self._executor = None
