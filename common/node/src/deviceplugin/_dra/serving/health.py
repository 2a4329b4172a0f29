"""What the kubelet is told of the health of devices, which pods show in their status, and how."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, NamedTuple

import grpc

from deviceplugin._attribution.ownership import OfferState, Ownership
from deviceplugin._dra.claims.record import Record
from deviceplugin._dra.naming import PoolNames, former_name, names_in, pool_name
from deviceplugin._inventory.published import Resource
from deviceplugin._platform import rpc
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.model import Health
from deviceplugin.proto.dra import HEALTH_TIMEOUT, MAX_HEALTH_MESSAGE
from deviceplugin.proto.dra import dra_health_v1alpha1_pb2 as pb

log = logging.getLogger(__name__)

Status = Literal["healthy", "unhealthy", "unknown"]

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


class DeviceHealth(NamedTuple):
    """The health of one device, by its name in the slices."""

    pool: str
    device: str
    status: Status
    message: str
    """For people; empty if there is nothing to say."""


@dataclass(eq=False, repr=False)
class HealthReport:
    """The devices that claims have or may get."""

    node: str
    _: KW_ONLY
    resources: Callable[[], Mapping[str, Resource]]
    ownership: Ownership
    records: Callable[[], Mapping[str, Record]]
    discovered: Callable[[], bool]
    """Returns whether all plugins have discovered their devices at least once."""

    def __post_init__(self) -> None:
        self._stopping = False

    def stop(self) -> None:
        """From now on, report devices that need this process as unhealthy."""
        self._stopping = True

    def read(self) -> list[DeviceHealth]:
        """Return the health of all devices now, ordered by name, also of those that are gone.

        The kubelet would go on showing the last health of a claim's device.
        """
        complete = self.discovered()  # before the resources are read
        claimed = {
            (one.pool, one.name) for record in self.records().values() for one in record.devices
        }
        found = {(one.pool, one.device): one for one in self._present(claimed)}
        for place in claimed - found.keys():
            found[place] = _absent(place, complete=complete)
        return [found[place] for place in sorted(found)]

    def _present(self, claimed: Collection[tuple[str, str]]) -> Iterator[DeviceHealth]:
        for resource in self.resources().values():
            pool = pool_name(self.node, resource.name)
            stopped = self._stopping and resource.plugin.needs_process
            states = self.ownership.offered(resource)
            devices = {device_id: state.device for device_id, state in states.items()}
            names, former = names_in(devices), names_in(devices, former_name)
            places = {
                name: ids for name, ids in _places(former).items() if (pool, name) in claimed
            } | _places(names)
            shares = {one for ids in names.shared.values() for one in ids}
            for name, ids in places.items():
                # A share is known by the device that it is of, unless a claim has it by its own.
                is_known = name in names.shared or ids[0] not in shares
                if (is_known and states[ids[0]].offered) or (pool, name) in claimed:
                    yield _health(pool, name, [states[one] for one in ids], stopped=stopped)


def _places(names: PoolNames) -> dict[str, Sequence[str]]:
    return {name: (one,) for name, one in names.devices.items()} | dict(names.shared)


def _health(pool: str, name: str, states: Sequence[OfferState], *, stopped: bool) -> DeviceHealth:
    """Return the health of a device; of one that is shared, that of its healthiest share."""
    state = min(states, key=lambda one: (not one.device.health, bool(one.taint)))
    health = Health.unhealthy("its plugin has stopped") if stopped else state.device.health
    status: Status = "healthy" if health else "unhealthy"
    return DeviceHealth(pool, name, status, health.reason or state.reason)


def _absent(place: tuple[str, str], *, complete: bool) -> DeviceHealth:
    if complete:
        return DeviceHealth(*place, "unhealthy", "the device is gone")
    return DeviceHealth(*place, "unknown", "not known yet: devices are still being discovered")


class HealthStreams:
    """The methods of the DRAResourceHealth service. ``read`` returns the health of all devices.

    ``is_busy`` returns whether pods wait for claims to be prepared.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[DeviceHealth]],
        clock: Clock = MONOTONIC,
        is_busy: Callable[[], bool] = bool,
    ) -> None:
        self._read, self._is_busy = read, is_busy
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters: set[Waiter] = set()
        self._closed = False

    def handlers(self) -> "list[grpc.GenericRpcHandler[Any, Any]]":
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
            with self._lock:
                self._waiters.discard(waiter)

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
            waiter.pause_while(self._is_busy)

    def _enter(self) -> Waiter | None:
        with self._lock:
            if self._closed or len(self._waiters) >= MAX_STREAMS:
                return None
            waiter = Waiter(self._clock)
            self._waiters.add(waiter)
            return waiter


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
                message=cut(one.message, longest),
            )
            for one in devices
        ]
    )


def cut(text: str, longest: int) -> str:
    """Return ``text`` with at most ``longest`` bytes, of which the last may be dots."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= longest:
        return encoded.decode()
    return encoded[: longest - len("...")].decode(errors="ignore") + "..."
