"""The DevicePlugin service of a resource, which the kubelet calls."""

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NoReturn

import grpc

from deviceplugin._inventory.encoding import encode_allocation
from deviceplugin._inventory.published import Resource
from deviceplugin._inventory.validation import allocation_problem, natural_key
from deviceplugin._kubelet.admission import Admission
from deviceplugin._platform import hooks as _hooks
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import (
    AllocationError,
    DevicePluginError,
    UnhealthyDeviceError,
    UnknownDeviceError,
)
from deviceplugin.model import Allocation, Device
from deviceplugin.plugin import Capabilities
from deviceplugin.proto.v1beta1 import PRE_START_TIMEOUT
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

log = logging.getLogger(__name__)

MAX_STREAMS: Final = 64
"""Most ListAndWatch streams at a time; the kubelet needs one."""
_ALLOCATE_TIMEOUT: Final = 10.0
"""Seconds. It is short because the whole node waits for the answer."""
_MAX_REASON: Final = 400
"""Bytes. The reason goes into the status of a pod, and into an Event of at most 1,024 bytes."""
_PREFER_TIMEOUT: Final = 1.0
"""Seconds. It is short because the node waits for the answer, which is only a preference."""


class Servicer:
    """The methods of the DevicePlugin service, with the names of the protocol.

    ``news`` is called when a stream opens or ends. All answers come from memory, except those of
    hooks that a plugin overrides; these have a time limit.
    """

    def __init__(
        self,
        resource: Resource,
        *,
        admission: Admission,
        hooks: _hooks.Hooks,
        metrics: Metrics,
        news: Callable[[], None],
    ) -> None:
        self._resource = resource
        self._admission = admission
        self._hooks = hooks
        self._metrics = metrics
        self._news = news
        self._closed = False
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._streams: set[int] = set()
        self._kubelets: int | None = None
        self._awaiting = False
        metrics.streams.labels(resource.name).set(0)

    def close(self) -> None:
        """End all streams and accept no new ones."""
        self._closed = True
        self._resource.wake()

    def expect_stream(self) -> None:
        """Treat the next stream as the kubelet's: the resource is about to be registered."""
        with self._lock:
            self._awaiting, self._kubelets = True, None

    @property
    def awaiting_stream(self) -> bool:
        """Whether the kubelet has not opened its stream since ``expect_stream``."""
        return self._awaiting

    @property
    def watched(self) -> bool:
        """Whether the kubelet's stream is open."""
        return self._kubelets in self._streams

    # The service, in the order of the protocol.

    def GetDevicePluginOptions(  # noqa: N802
        self, _request: pb.Empty, _context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        capabilities = Capabilities.of(self._resource.plugin)
        return pb.DevicePluginOptions(
            pre_start_required=capabilities.pre_start,
            get_preferred_allocation_available=capabilities.prefer,
        )

    def ListAndWatch(self, _request: pb.Empty, context: grpc.ServicerContext) -> Iterator[bytes]:  # noqa: N802
        number = self._open_stream()
        if number is None:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open already"
            )
        if not context.add_callback(lambda: self._close_stream(number)):
            self._close_stream(number)
        last = None
        while (last := self._resource.next_list(last, lambda: self._over(number))) is not None:
            yield last

    def Allocate(  # noqa: N802
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        resource = self._resource.name
        with self._metrics.allocation_seconds.labels(resource).time():
            try:
                responses = [self._allocate(c.devices_ids) for c in request.container_requests]
            except DevicePluginError as error:
                self._refuse("allocation", error, context)
        self._metrics.allocations.labels(resource, "OK").inc()
        for container in request.container_requests:
            ids = sorted(container.devices_ids, key=natural_key)
            self._metrics.events.add("allocated", resource=resource, device=", ".join(ids))
        return pb.AllocateResponse(container_responses=responses)

    def GetPreferredAllocation(  # noqa: N802
        self, request: pb.PreferredAllocationRequest, _context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=self._prefer(container))
                for container in request.container_requests
            ]
        )

    def PreStartContainer(  # noqa: N802
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        plugin = self._resource.plugin
        if Capabilities.of(plugin).pre_start:
            try:
                devices = self._find(request.devices_ids)
                self._hooks.call(
                    "pre_start", plugin.pre_start, devices, timeout=PRE_START_TIMEOUT - 1
                )
            except DevicePluginError as error:
                self._refuse("pre-start", error, context)
        return pb.PreStartContainerResponse()

    # What the methods share.

    def _open_stream(self) -> int | None:
        with self._lock:
            if len(self._streams) >= MAX_STREAMS:
                log.warning("stream refused", extra={"resource": self._resource.name})
                return None
            number = next(self._numbers)
            self._streams.add(number)
            if self._awaiting:
                self._awaiting, self._kubelets = False, number
        self._report_streams()
        return number

    def _close_stream(self, number: int) -> None:
        with self._lock:
            self._streams.discard(number)
        self._report_streams()
        self._resource.wake()

    def _over(self, number: int) -> bool:
        return self._closed or number not in self._streams

    def _report_streams(self) -> None:
        self._metrics.streams.labels(self._resource.name).set(len(self._streams))
        self._news()

    def _find(self, ids: Iterable[str]) -> list[Device]:
        known = self._resource.devices
        unique = sorted(set(ids), key=natural_key)
        if unknown := [device_id for device_id in unique if device_id not in known]:
            raise UnknownDeviceError(
                f"unknown device: {', '.join(unknown)}",
                resource=self._resource.name,
                device_ids=unknown,
            )
        return [known[device_id] for device_id in unique]

    def _find_healthy(self, ids: Iterable[str]) -> list[Device]:
        devices = self._find(ids)
        if unhealthy := [device for device in devices if not device.health]:
            raise UnhealthyDeviceError(
                "unhealthy device: " + ", ".join(f"{d.id} ({d.health.reason})" for d in unhealthy),
                resource=self._resource.name,
                device_ids=[device.id for device in unhealthy],
            )
        return devices

    def _allocate(self, ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        plugin = self._resource.plugin
        devices = self._find_healthy(ids)

        def answer() -> pb.ContainerAllocateResponse:
            allocation = plugin.allocate(devices)
            if not isinstance(allocation, Allocation):
                raise TypeError(f"allocate() must return an Allocation, not {allocation!r}")
            if problem := allocation_problem(allocation):
                raise TypeError(f"allocate() returned what cannot be used: {problem}")
            return encode_allocation(allocation)

        with self._admission.admit(self._resource, [device.id for device in devices]):
            if not Capabilities.of(plugin).allocate:
                return _hooks.call(answer)
            return self._hooks.call("allocate", answer, timeout=_ALLOCATE_TIMEOUT)

    def _prefer(self, request: pb.ContainerPreferredAllocationRequest) -> list[str]:
        """Return a valid answer, whatever the plugin's hook returns."""
        size = request.allocation_size
        available = sorted(set(request.available_deviceIDs), key=natural_key)
        required = sorted(set(request.must_include_deviceIDs), key=natural_key)
        wish = self._wish(available, required, size)
        offered = {*available, *required}
        answer = dict.fromkeys(itertools.chain(required, filter(offered.__contains__, wish)))
        answer.update(dict.fromkeys(available))
        return list(answer)[: max(size, len(required))]

    def _wish(self, available: list[str], required: list[str], size: int) -> list[str]:
        plugin, known = self._resource.plugin, self._resource.devices
        if not Capabilities.of(plugin).prefer:
            return []

        def prefer() -> list[str]:
            devices = [[known[i] for i in ids if i in known] for ids in (available, required)]
            return [device.id for device in plugin.prefer(devices[0], devices[1], size)]

        try:
            return self._hooks.call("prefer", prefer, timeout=_PREFER_TIMEOUT)
        except DevicePluginError as error:
            log.warning(
                "prefer() failed, using default order",
                extra={"resource": self._resource.name, "error": str(error)},
                exc_info=error.__cause__,
            )
            return []

    def _refuse(
        self, what: str, error: DevicePluginError, context: grpc.ServicerContext
    ) -> NoReturn:
        resource = self._resource.name
        if isinstance(error, AllocationError) and not error.resource:
            error.resource = resource
        code = status_code(error)
        reason = reason_of(error)
        text = f'invalid {what} request for "{resource}": {reason}'
        if what == "allocation":
            self._metrics.allocations.labels(resource, code.name).inc()
        self._metrics.events.add("request refused", resource=resource, detail=reason)
        log.warning(
            "request refused",
            extra={"resource": resource, "request": what, "code": code.name, "error": reason},
            exc_info=error.__cause__,
        )
        context.abort(code, text)


def reason_of(error: DevicePluginError) -> str:
    """Return the message of ``error`` for the kubelet: one short line of UTF-8, never empty."""
    raised = error.__cause__ if isinstance(error, _hooks.HookFailedError) else error
    if _text(raised) in {"", "None"}:  # the message of an error number may be None
        return f"{type(raised).__name__} was raised without a message"
    encoded = _text(error).encode(errors="replace")
    if len(encoded) <= _MAX_REASON:
        return encoded.decode()
    return f"{encoded[: _MAX_REASON - len('...')].decode(errors='ignore')}..."


def _text(error: BaseException | None) -> str:
    """Return the start of the message of ``error`` on one line; empty if it has none to give."""
    try:
        return " ".join(_hooks.call(str, error)[: 4 * _MAX_REASON].split())
    except DevicePluginError:
        return ""


def status_code(error: DevicePluginError) -> grpc.StatusCode:
    """Return the gRPC code of ``error`` for the kubelet."""
    by_class = {
        UnknownDeviceError: grpc.StatusCode.NOT_FOUND,
        UnhealthyDeviceError: grpc.StatusCode.FAILED_PRECONDITION,
        AllocationError: grpc.StatusCode.FAILED_PRECONDITION,
        _hooks.HookTimeoutError: grpc.StatusCode.DEADLINE_EXCEEDED,
    }
    codes = (code for kind, code in by_class.items() if isinstance(error, kind))
    return next(codes, grpc.StatusCode.INTERNAL)
