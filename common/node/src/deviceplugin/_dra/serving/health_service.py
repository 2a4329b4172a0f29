"""The service of a DRA driver that reports the health of devices to the kubelet."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import grpc

from deviceplugin._dra.serving.device_health import DeviceHealth, Status
from deviceplugin._platform import rpc
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.proto.dra import HEALTH_TIMEOUT, MAX_HEALTH_MESSAGE
from deviceplugin.proto.dra import dra_health_v1alpha1_pb2 as pb

log = logging.getLogger(__name__)

MAX_STREAMS: Final = 8
"""Most streams at a time; the kubelet needs one, and opens another after it has restarted."""
_AGAIN: Final = 10.0
"""Seconds until a report is sent again: the kubelet believes it for three times as long."""
_TOGETHER: Final = 0.05
"""Seconds in which changes are collected for one report."""
_MAX_MESSAGES: Final = 2_000_000
"""Most bytes of all messages in a report, of which a kubelet takes 4 MiB."""
_STATUS: Final[dict[Status, pb.HealthStatus]] = {
    "unknown": pb.HealthStatus.UNKNOWN,
    "healthy": pb.HealthStatus.HEALTHY,
    "unhealthy": pb.HealthStatus.UNHEALTHY,
}


class HealthStreams:
    """The methods of the DRAResourceHealth service. ``read`` returns the health of all devices."""

    def __init__(
        self, read: Callable[[], Sequence[DeviceHealth]], clock: Clock = MONOTONIC
    ) -> None:
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters: set[Waiter] = set()
        self._closed = False

    def handlers(self) -> "list[grpc.GenericRpcHandler[Any, Any]]":
        """Return the handler of the service."""
        return [rpc.service(pb.DESCRIPTOR.services_by_name["DRAResourceHealth"], self)]

    def poke(self) -> None:
        """Send what has changed."""
        with self._lock:
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.poke()

    def close(self) -> None:
        """Send what has changed, end all streams and accept no new ones."""
        with self._lock:
            self._closed = True
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.end()

    @property
    def open(self) -> int:
        """Number of open streams."""
        return len(self._waiters)

    def NodeWatchResources(  # noqa: N802
        self, _request: pb.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.NodeWatchResourcesResponse]:
        waiter = self._enter()
        if waiter is None:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open already"
            )
        try:
            if context.add_callback(waiter.end):
                yield from self._reports(waiter)
        finally:
            self._leave(waiter)

    def _reports(self, waiter: Waiter) -> Iterator[pb.NodeWatchResourcesResponse]:
        """Yield a report whenever it has changed, and the same one again before it is outdated."""
        last: Sequence[DeviceHealth] | None = None
        due = self._clock.now()
        while True:
            is_last = waiter.is_over()  # before the devices are read
            now, found = self._clock.now(), self._read()
            if found != last or (now >= due and not is_last):
                last, due = found, now + _AGAIN
                yield _encoded(found)
            if is_last:
                return
            waiter.until_poked(max(0.0, due - self._clock.now()))
            waiter.pause(_TOGETHER)

    def _enter(self) -> Waiter | None:
        with self._lock:
            if self._closed or len(self._waiters) >= MAX_STREAMS:
                return None
            waiter = Waiter(self._clock)
            self._waiters.add(waiter)
            return waiter

    def _leave(self, waiter: Waiter) -> None:
        with self._lock:
            self._waiters.discard(waiter)


def _encoded(devices: Sequence[DeviceHealth]) -> pb.NodeWatchResourcesResponse:
    now = int(time.time())
    longest = min(MAX_HEALTH_MESSAGE, _MAX_MESSAGES // max(1, len(devices)))
    return pb.NodeWatchResourcesResponse(
        devices=[
            pb.DeviceHealth(
                device=pb.DeviceIdentifier(pool_name=one.pool, device_name=one.device),
                health=_STATUS[one.status],
                last_updated_time=now,
                health_check_timeout_seconds=int(HEALTH_TIMEOUT),
                message=_cut(one.message, longest),
            )
            for one in devices
        ]
    )


def _cut(text: str, longest: int) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= longest:
        return encoded.decode()
    return encoded[: longest - len("...")].decode(errors="ignore") + "..."
