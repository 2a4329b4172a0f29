"""A plugin whose every answer is settable: the other side of the simulated kubelet's own tests."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from deviceplugin import _rpc
from deviceplugin.v1beta1 import HEALTHY, KUBELET_SOCKET, VERSION
from deviceplugin.v1beta1 import deviceplugin_pb2 as pb

_DEVICE_PLUGIN = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
_REGISTRATION = pb.DESCRIPTOR.services_by_name["Registration"]

_T = TypeVar("_T")

Devices = Mapping[str, str] | Iterable[str | pb.Device]
"""Device id to health, or ids of healthy devices, or whole messages."""


_WORKERS = 32
"""Each open stream takes one."""


class StubError(Exception):
    """Raised by a script to answer a call with this status."""

    def __init__(self, text: str, code: grpc.StatusCode = grpc.StatusCode.INTERNAL) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


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


class StubPlugin:
    """A scripted device plugin for one resource.

    It does exactly what it is told: nothing registers again by itself. ``on_options``,
    ``on_allocate``, ``on_prefer`` and ``on_pre_start`` may be replaced at any time; what they
    raise, the kubelet gets. Raise ``StubError`` for a chosen status.
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
            directory: The kubelet's plugin directory.
            resource: Name to register.
            devices: Ids of healthy devices, or id to health, or whole messages.
            name: File name of the socket.
            options: What GetDevicePluginOptions answers.
        """
        self.directory = directory
        self.resource = resource
        self.name = name
        self.calls: list[str] = []
        """The names of the methods called, in order."""
        self.allocated: list[list[str]] = []
        """The ids of each Allocate call, sorted."""
        self.preferred: list[pb.ContainerPreferredAllocationRequest] = []
        self.pre_started: list[list[str]] = []
        self.deadlines: dict[str, float] = {}
        """Seconds that the last call of each method was given."""
        self.on_options = lambda: options or pb.DevicePluginOptions()
        self.on_allocate: Callable[[list[str]], pb.AllocateResponse] = _answer_envs
        self.on_prefer = _prefer_first
        self.on_pre_start: Callable[[list[str]], object] = lambda _ids: None
        self._changed = threading.Condition()
        self._list = _list(devices)
        self._version = 0
        self._end: StubError | None = None
        self._ended = 0
        self._streams = 0
        self._server: grpc.Server | None = None
        self._executor: ThreadPoolExecutor | None = None

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.directory / self.name

    @property
    def streams(self) -> int:
        """How many kubelet streams are open."""
        with self._changed:
            return self._streams

    # Life

    def __enter__(self) -> Self:
        self.start()
        self.register()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Serve, without registering."""
        self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix=self.name)
        self._server = grpc.server(self._executor, handlers=self._handlers())
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def _handlers(self) -> "list[grpc.GenericRpcHandler[Any, Any]]":
        return [_rpc.service(_DEVICE_PLUGIN, self)]

    def register(
        self,
        *,
        version: str = VERSION,
        endpoint: str | None = None,
        timeout: float | None = 15.0,
    ) -> None:
        """Call Register on the kubelet's socket; ``grpc.RpcError`` as the kubelet answers."""
        request = pb.RegisterRequest(
            version=version,
            endpoint=self.name if endpoint is None else endpoint,
            resource_name=self.resource,
        )
        options = (("grpc.use_local_subchannel_pool", 1),)
        target = f"unix:{self.directory / KUBELET_SOCKET}"
        with grpc.insecure_channel(target, options=options) as channel:
            _rpc.calls(channel, _REGISTRATION)["Register"](request, timeout=timeout)

    def stop(self) -> None:
        """Stop serving at once, as a dying process would, and delete the socket. Idempotent."""
        if self._server is None or self._executor is None:
            return
        stopped = self._server.stop(None)
        self.end_streams()
        stopped.wait()
        self._executor.shutdown()
        self._server = self._executor = None

    # Script

    def update(self, devices: Devices) -> None:
        """Send this list on all streams, now and first thing on later ones."""
        with self._changed:
            self._list = _list(devices)
            self._version += 1
            self._changed.notify_all()

    def end_streams(self, error: "StubError | None" = None) -> None:
        """Return from every open ListAndWatch, or fail it with ``error``."""
        with self._changed:
            self._end = error
            self._ended += 1
            self._changed.notify_all()

    def wait(self, condition: Callable[[], object], *, timeout: float = 5.0) -> None:
        """Wait until ``condition`` holds; looked at again after every call and change."""
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise TimeoutError(f"{self.name} waited {timeout:g} s; calls were {self.calls}")

    # What the kubelet calls

    def GetDevicePluginOptions(  # noqa: N802 - the wire's name
        self, _request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        """Answer as ``on_options`` does."""
        return self._answer("GetDevicePluginOptions", context, self.on_options)

    def ListAndWatch(  # noqa: N802 - the wire's name
        self, _request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        """Send the list, and each new one, until told to end or until the kubelet is gone."""
        with self._changed:
            self._note("ListAndWatch", context)
            self._streams += 1
            sent, ended = -1, self._ended
        context.add_callback(self._notify)
        try:
            while (sent := self._next(sent, ended, context)) >= 0:
                yield pb.ListAndWatchResponse(devices=self._list)
            if self._end is not None:
                context.abort(self._end.code, self._end.text)
        finally:
            with self._changed:
                self._streams -= 1
                self._changed.notify_all()

    def _next(self, sent: int, ended: int, context: grpc.ServicerContext) -> int:
        """Wait for a list after ``sent`` and return its version, or -1 if the stream is over."""
        with self._changed:
            while sent == self._version and ended == self._ended and context.is_active():
                self._changed.wait()
            over = ended != self._ended or not context.is_active()
            return -1 if over else self._version

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
        """Do what ``on_pre_start`` does."""
        ids = sorted(request.devices_ids)
        self.pre_started.append(ids)
        self._answer("PreStartContainer", context, lambda: self.on_pre_start(ids))
        return pb.PreStartContainerResponse()

    def _answer(
        self, method: str, context: grpc.ServicerContext, behaviour: Callable[[], _T]
    ) -> _T:
        self._note(method, context)
        try:
            return behaviour()
        except StubError as error:
            context.abort(error.code, error.text)

    def _note(self, method: str, context: grpc.ServicerContext) -> None:
        with self._changed:
            self.calls.append(method)
            self.deadlines[method] = context.time_remaining()
            self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
