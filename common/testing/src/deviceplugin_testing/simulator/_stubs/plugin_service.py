"""The calls that a stub plugin answers, and the methods that control its answers."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import grpc

from deviceplugin.proto.pluginregistration import pluginregistration_pb2 as watcher_pb
from deviceplugin.proto.v1beta1 import HEALTHY, VERSION
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


class StubService(ScriptedService):
    """Answers calls as configured, and records them.

    By default, Allocate answers with the variable ``DEVICES``, and GetPreferredAllocation prefers
    the first ids in sorted order.
    """

    def __init__(
        self, resource: str, devices: Devices, options: pb.DevicePluginOptions | None
    ) -> None:
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
        self._list = _list(devices)
        self._version = 0
        self._ended = 0
        self._streams = 0

    @property
    def streams(self) -> int:
        """Number of open ListAndWatch streams."""
        with self._changed:
            return self._streams

    # Control

    def update(self, devices: Devices) -> None:
        """Send this list on all streams, and as the first one on later streams."""
        with self._changed:
            self._list = _list(devices)
            self._version += 1
            self._changed.poke()

    def end_streams(self) -> None:
        """Return from every open ListAndWatch."""
        with self._changed:
            self._ended += 1
            self._changed.poke()

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
        with self._changed:
            self._streams += 1
            sent, ended = -1, self._ended
            self._note("ListAndWatch", context)
        context.add_callback(self._changed.poke)
        try:
            while (sent := self._next(sent, ended, context)) >= 0:
                self._fail("ListAndWatch", context)
                yield pb.ListAndWatchResponse(devices=self._list)
        finally:
            with self._changed:
                self._streams -= 1
                self._changed.poke()

    def _next(self, sent: int, ended: int, context: grpc.ServicerContext) -> int:
        """Wait for a list after ``sent`` and return its version, or -1 if the stream is over."""
        self._changed.until(
            lambda: self._has_news(sent) or ended != self._ended or not context.is_active()
        )
        with self._changed:
            return self._version if self._has_news(sent) else -1

    def _has_news(self, sent: int) -> bool:
        return sent != self._version and "ListAndWatch" not in self._held

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
