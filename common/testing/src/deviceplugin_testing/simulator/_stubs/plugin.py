"""A plugin whose answers can all be set, for tests of a kubelet."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import grpc

from deviceplugin._platform import rpc
from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as watcher_pb
from deviceplugin.proto.v1beta1 import HEALTHY, KUBELET_SOCKET, VERSION
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator._stubs.scripted import ScriptedService

Devices = Mapping[str, str] | Iterable[str | pb.Device]
"""Device id to health, or ids of healthy devices, or whole messages."""


def _list(devices: Devices) -> list[pb.Device]:
    if isinstance(devices, Mapping):
        return [pb.Device(ID=id_, health=health) for id_, health in devices.items()]
    return [
        pb.Device(ID=device, health=HEALTHY) if isinstance(device, str) else device
        for device in devices
    ]


def _answer_envs(ids: list[str]) -> pb.AllocateResponse:
    container = pb.ContainerAllocateResponse(envs={"DEVICES": ",".join(ids)})
    return pb.AllocateResponse(container_responses=[container])


def _prefer_first(
    request: pb.ContainerPreferredAllocationRequest,
) -> pb.PreferredAllocationResponse:
    ids = [*request.must_include_deviceIDs, *sorted(request.available_deviceIDs)]
    chosen = list(dict.fromkeys(ids))[: request.allocation_size]
    answer = pb.ContainerPreferredAllocationResponse(deviceIDs=chosen)
    return pb.PreferredAllocationResponse(container_responses=[answer])


_DEVICE_PLUGIN = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
_REGISTRATION = pb.DESCRIPTOR.services_by_name["Registration"]
_WATCHER_REGISTRATION = watcher_pb.DESCRIPTOR.services_by_name["Registration"]

_WORKERS = 32
"""Each open stream needs one."""

_STOP_GRACE = 0.05
"""Seconds for streams to end by themselves; gRPC complains on standard error about the others."""


class StubPlugin(ScriptedService):
    """A scripted device plugin for one resource.

    By default, Allocate answers with the variable ``DEVICES``, and GetPreferredAllocation prefers
    the first ids in sorted order.

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
        super().__init__(
            watcher_pb.PluginInfo(type="DevicePlugin", name=resource, supported_versions=[VERSION])
        )
        self.options = options or pb.DevicePluginOptions()
        self.on_allocate: Callable[[list[str]], pb.AllocateResponse] = _answer_envs
        self.on_prefer: Callable[
            [pb.ContainerPreferredAllocationRequest], pb.PreferredAllocationResponse
        ] = _prefer_first
        self.allocated: list[list[str]] = []
        """The ids of each Allocate call, sorted."""
        self.preferred: list[pb.ContainerPreferredAllocationRequest] = []
        self.pre_started: list[list[str]] = []
        self.resource = resource
        self.socket = directory / name
        """The path of its socket."""
        self._list = _list(devices)
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

    def update(self, devices: Devices) -> None:
        """Send this list on all streams, and as the first one on later streams."""
        with self._changed:
            self._list = _list(devices)
            self._send()

    # What the kubelet calls

    def GetDevicePluginOptions(  # noqa: N802 - the wire's name
        self, _request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        """Answer with ``options``."""
        return self._answer("GetDevicePluginOptions", context, lambda: self.options)

    def ListAndWatch(  # noqa: N802 - the wire's name
        self, _request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        """Send the list, and each new one, until ``end_streams`` or until the kubelet is gone."""
        return self._stream(
            "ListAndWatch", context, -1, lambda: pb.ListAndWatchResponse(devices=self._list)
        )

    def GetPreferredAllocation(  # noqa: N802 - the wire's name
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        """Answer as ``on_prefer`` does for the first container."""
        container = request.container_requests[0]
        self.preferred.append(container)
        return self._answer("GetPreferredAllocation", context, lambda: self.on_prefer(container))

    def Allocate(  # noqa: N802 - the wire's name
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        """Answer as ``on_allocate`` does for the first container."""
        ids = sorted(request.container_requests[0].devices_ids)
        self.allocated.append(ids)
        return self._answer("Allocate", context, lambda: self.on_allocate(ids))

    def PreStartContainer(  # noqa: N802 - the wire's name
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        """Record the devices."""
        self.pre_started.append(sorted(request.devices_ids))
        return self._answer("PreStartContainer", context, pb.PreStartContainerResponse)
