"""The DevicePlugin service of a resource, which the kubelet calls."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

import grpc
import grpc.aio

from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._inventory import allocating
from deviceplugin._inventory.validation import natural_key
from deviceplugin._kubelet.offer import Offer
from deviceplugin._kubelet.streams import MAX_STREAMS, Streams
from deviceplugin._platform import hooks as _hooks
from deviceplugin._platform.event_loop import call_hook, in_thread
from deviceplugin._platform.hooks import reason_of
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import (
    AllocationError,
    DevicePluginError,
    UnhealthyDeviceError,
    UnknownDeviceError,
)
from deviceplugin.model import Device
from deviceplugin.plugin import overrides
from deviceplugin.proto.v1beta1 import PRE_START_TIMEOUT
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

log = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_ALLOCATE_TIMEOUT: Final = 10.0
"""Seconds. It is short because the whole node waits for the answer."""
_PREFER_TIMEOUT: Final = 1.0
"""Seconds. It is short because the node waits for the answer, which is only a preference."""


class Servicer:
    """The methods of the DevicePlugin service, with the names of the protocol.

    ``news`` is called when a stream opens or ends. Only hooks of plugins take time, with a limit.
    """

    def __init__(
        self,
        offer: Offer,
        *,
        admission: HoldingsTracker,
        hooks: _hooks.Hooks,
        metrics: Metrics,
        news: Callable[[], None],
    ) -> None:
        self.options = offer.options
        """Those that the kubelet is told at the registration. If it has restarted, it may have lost
        what pods hold, and is kept from these devices by preferring others."""
        if admission.held(offer.resource.name):
            self.options = self.options._replace(prefer=True)
        self._offer = offer
        self._resource = resource = offer.resource
        self._admission = admission
        self._hooks = hooks
        self._metrics = metrics
        self._news = news
        self.streams = Streams(offer, self._report_streams)
        self.begun = 0
        """Number of calls that have begun. It needs no lock, because only its growth matters."""
        # They are looked up once, and not in each call.
        self._seconds = metrics.allocation_seconds.labels(resource.name)
        self._allocated = metrics.allocations.labels(resource.name, "OK")
        metrics.streams.labels(resource.name).set(0)

    @property
    def up_to_date(self) -> bool:
        return self.streams.up_to_date and self.has_latest_options

    @property
    def has_latest_options(self) -> bool:
        """Whether the kubelet has the options of now. Being asked for a preference does no harm."""
        now = self._offer.options
        return self.options in {now, now._replace(prefer=True)}

    # The service, in the order of the protocol.

    async def GetDevicePluginOptions(  # noqa: N802
        self, _request: pb.Empty, _context: Context
    ) -> pb.DevicePluginOptions:
        self.begun += 1
        return pb.DevicePluginOptions(
            pre_start_required=self.options.pre_start,
            get_preferred_allocation_available=self.options.prefer,
        )

    async def ListAndWatch(self, _request: pb.Empty, context: Context) -> None:  # noqa: N802
        self.begun += 1
        await _in_thread("watch", partial(self._admission.watched, self._resource.name))
        try:
            served = await self.streams.serve(context.write)
        except grpc.aio.BaseError as error:  # the client is gone, and gRPC has not noticed yet
            raise asyncio.CancelledError from error
        if not served:
            fields = {"resource": self._resource.name}
            await _report(lambda: log.warning("stream refused", extra=fields))
            reason = f"{MAX_STREAMS} streams are open already"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)

    async def Allocate(self, request: pb.AllocateRequest, context: Context) -> pb.AllocateResponse:  # noqa: N802
        self.begun += 1
        begin = time.perf_counter()
        try:
            answer = pb.AllocateResponse(
                container_responses=[
                    await self._allocate(each.devices_ids) for each in request.container_requests
                ]
            )
        except DevicePluginError as error:
            self._seconds.observe(time.perf_counter() - begin)
            await self._refuse("allocation", error, context)
        # The kubelet need not wait for it.
        count = partial(self._count_allocation, request, time.perf_counter() - begin)
        asyncio.get_running_loop().call_soon(count)
        return answer

    async def GetPreferredAllocation(  # noqa: N802
        self, request: pb.PreferredAllocationRequest, _context: Context
    ) -> pb.PreferredAllocationResponse:
        self.begun += 1
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=await self._prefer(container))
                for container in request.container_requests
            ]
        )

    async def PreStartContainer(  # noqa: N802
        self, request: pb.PreStartContainerRequest, context: Context
    ) -> pb.PreStartContainerResponse:
        self.begun += 1
        plugin = self._resource.plugin
        if overrides(plugin, "pre_start"):
            try:
                devices = self._find(request.devices_ids)
                limit = PRE_START_TIMEOUT - 1
                await call_hook(self._hooks, "pre_start", plugin.pre_start, devices, limit=limit)
                self._admission.check_nodes(devices, may_differ=True)
            except DevicePluginError as error:
                await self._refuse("pre-start", error, context)
        return pb.PreStartContainerResponse()

    # What the methods share.

    def _count_allocation(self, request: pb.AllocateRequest, seconds: float) -> None:
        self._seconds.observe(seconds)
        self._allocated.inc()
        for each in request.container_requests:
            ids = ", ".join(sorted(set(each.devices_ids), key=natural_key))
            self._metrics.events.add("allocated", resource=self._resource.name, device=ids)

    def _report_streams(self, number: int) -> None:
        self._metrics.streams.labels(self._resource.name).set(number)
        self._news()

    def _find(self, ids: Iterable[str]) -> list[Device]:
        known = self._resource.listed
        unique = list(set(ids))
        if len(unique) > 1:  # most requests are for one
            unique.sort(key=natural_key)
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

    async def _allocate(self, ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        plugin = self._resource.plugin
        devices = self._find_healthy(ids)
        unique = [device.id for device in devices]

        pre_starts = overrides(plugin, "pre_start")
        # The kubelet will not ask for it at the start, because of DRA.
        start_now = pre_starts and not self.options.pre_start

        def answer() -> pb.ContainerAllocateResponse:
            allocation = allocating.allocation_of(plugin, devices)
            if start_now:
                plugin.pre_start(devices)
            if start_now or not pre_starts:  # that may make nodes
                self._admission.check_nodes(devices, allocation, may_differ=start_now)
            return allocating.encode_allocation(allocation)

        loop, may_wait = asyncio.get_running_loop(), self._admission.may_wait(self._resource)
        defer = loop.call_soon_threadsafe if may_wait else loop.call_soon
        admission: AbstractContextManager[object]
        admission = self._admission.admit(self._resource, unique, defer)
        if may_wait:
            admission = await _entered(admission)
        with admission:
            if allocating.has_own_allocate(plugin) or start_now:
                hook = allocating.hook_of(plugin)
                response = await call_hook(self._hooks, hook, answer, limit=_ALLOCATE_TIMEOUT)
            else:
                response = _hooks.call(answer)
        return response

    async def _prefer(self, request: pb.ContainerPreferredAllocationRequest) -> list[str]:
        """Return a valid answer, whatever the plugin's hook returns."""
        size = request.allocation_size
        available = sorted(set(request.available_deviceIDs), key=natural_key)
        required = sorted(set(request.must_include_deviceIDs), key=natural_key)
        avoided = self._admission.avoided(self._resource.name)
        free = [i for i in available if i in required or i not in avoided]
        wish = await self._wish(free if len(free) >= size else available, required, size)
        offered = {*available, *required}
        answer = dict.fromkeys(itertools.chain(required, filter(offered.__contains__, wish)))
        answer.update(dict.fromkeys((*free, *available)))
        return list(answer)[: max(size, len(required))]

    async def _wish(self, available: list[str], required: list[str], size: int) -> list[str]:
        plugin, known = self._resource.plugin, self._resource.listed
        if not overrides(plugin, "prefer"):
            return []

        def prefer() -> list[str]:
            devices = [[known[i] for i in ids if i in known] for ids in (available, required)]
            return [device.id for device in plugin.prefer(devices[0], devices[1], size)]

        try:
            return await call_hook(self._hooks, "prefer", prefer, limit=_PREFER_TIMEOUT)
        except DevicePluginError as error:
            fields = {"resource": self._resource.name, "error": str(error)}
            cause = error.__cause__
            await _report(
                lambda: log.warning(
                    "prefer() failed, using default order", extra=fields, exc_info=cause
                )
            )
            return []

    async def _refuse(self, what: str, error: DevicePluginError, context: Context) -> NoReturn:
        resource = self._resource.name
        if isinstance(error, AllocationError) and not error.resource:
            error.resource = resource
        code = status_code(error)
        reason = reason_of(error)
        if what == "allocation":
            self._metrics.allocations.labels(resource, code.name).inc()
        self._metrics.events.add("request refused", resource=resource, detail=reason)
        fields = {"resource": resource, "request": what, "code": code.name, "error": reason}
        cause = error.__cause__
        await _report(lambda: log.warning("request refused", extra=fields, exc_info=cause))
        await context.abort(code, f'invalid {what} request for "{resource}": {reason}')


async def _entered(admission: AbstractContextManager[None]) -> AbstractContextManager[object]:
    """Enter ``admission`` in a thread, and return a context that leaves it."""
    entered = ExitStack()
    await in_thread("admission", partial(entered.enter_context, admission))
    return entered


async def _report(log_it: Callable[[], None]) -> None:
    """Call ``log_it`` in a thread, because whoever reads the log may keep it waiting."""
    await _in_thread("log", log_it)


async def _in_thread(name: str, call: Callable[[], None]) -> None:
    try:
        await in_thread(name, call)
    except _hooks.HookFailedError:  # the node has no thread left
        call()


def status_code(error: DevicePluginError) -> grpc.StatusCode:
    by_class = {
        UnknownDeviceError: grpc.StatusCode.NOT_FOUND,
        UnhealthyDeviceError: grpc.StatusCode.FAILED_PRECONDITION,
        AllocationError: grpc.StatusCode.FAILED_PRECONDITION,
        _hooks.HookTimeoutError: grpc.StatusCode.DEADLINE_EXCEEDED,
    }
    codes = (code for kind, code in by_class.items() if isinstance(error, kind))
    return next(codes, grpc.StatusCode.INTERNAL)
