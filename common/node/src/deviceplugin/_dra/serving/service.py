"""The service of a DRA driver, which the kubelet calls to prepare claims and to undo that."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc

from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claims.preparing import Preparing
from deviceplugin._dra.claims.record import RecordedDevice
from deviceplugin._platform import rpc
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.hooks import reason_of
from deviceplugin._telemetry.metrics import FAILED, OK, Metrics
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.proto.dra import CALL_TIMEOUT
from deviceplugin.proto.dra import dra_v1_pb2 as pb
from deviceplugin.proto.dra import dra_v1beta1_pb2 as beta_pb

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_SERVICES: Final = (pb.DESCRIPTOR, beta_pb.DESCRIPTOR)
_PREPARE, _UNPREPARE = "prepare", "unprepare"
_UNKNOWN: Final = DevicePluginError("the call failed")
_RESERVE: Final = 5.0
"""Seconds of a call that are left for everything but hooks."""


@dataclass(eq=False, repr=False)
class DraPlugin:
    """The methods of the DRAPlugin services: v1beta1 is, on the wire, v1 without shares."""

    driver: str
    preparing: Preparing
    metrics: Metrics
    clock: Clock = MONOTONIC

    def __post_init__(self) -> None:
        self._problems = Problems(log)
        for method in (_PREPARE, _UNPREPARE):  # so that the first failure is an increase
            for code in (OK, FAILED):
                self.metrics.claim_calls.labels(self.driver, method, code)

    def handlers(self) -> "list[grpc.GenericRpcHandler[Any, Any]]":
        return [rpc.service(one.services_by_name["DRAPlugin"], self) for one in _SERVICES]

    # The service, in the order of the protocol.

    def NodePrepareResources(  # noqa: N802
        self, request: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        time_left = self._time_left(context)

        def left() -> float:
            return time_left() if context.is_active() else 0.0  # nobody waits for the answer

        answers = {}
        for claim, found in self._outcomes(_PREPARE, self.preparing.prepare, request.claims, left):
            if isinstance(found, DevicePluginError):
                reason = self._failed(claim, "claim not prepared", found)
                answers[claim.uid] = pb.NodePrepareResourceResponse(error=reason)
            else:
                devices = [_device(one) for one in found]
                answers[claim.uid] = pb.NodePrepareResourceResponse(devices=devices)
        return pb.NodePrepareResourcesResponse(claims=answers)

    def NodeUnprepareResources(  # noqa: N802
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        answers, left = {}, self._time_left(context)
        do = self.preparing.unprepare
        for claim, error in self._outcomes(_UNPREPARE, do, request.claims, left):
            reason = "" if error is None else self._failed(claim, "claim not released", error)
            answers[claim.uid] = pb.NodeUnprepareResourceResponse(error=reason)
        return pb.NodeUnprepareResourcesResponse(claims=answers)

    # What the methods share.

    def _time_left(self, context: grpc.ServicerContext) -> Callable[[], float]:
        # The kubelet's time began when it called, and this call may have waited for a worker.
        seconds = min(CALL_TIMEOUT, context.time_remaining())
        end = self.clock.now() + seconds - _RESERVE
        return lambda: end - self.clock.now()

    def _outcomes(
        self,
        method: str,
        do: Callable[[Sequence[Claim], Callable[[], float]], Mapping[str, _T | DevicePluginError]],
        messages: Iterable[pb.Claim],
        left: Callable[[], float],
    ) -> Iterator[tuple[Claim, _T | DevicePluginError]]:
        """Yield each claim with what ``do`` returned for it, and count that."""
        claims = [Claim(one.namespace, one.name, one.uid) for one in messages]
        outcomes: Mapping[str, _T | DevicePluginError] = {}
        begin = self.clock.now()
        try:
            outcomes = do(claims, left)
        finally:
            seconds = self.clock.now() - begin
            for one in claims:
                failed = isinstance(outcomes.get(one.uid, _UNKNOWN), DevicePluginError)
                code = FAILED if failed else OK
                self.metrics.claim_seconds.labels(self.driver, method).observe(seconds)
                self.metrics.claim_calls.labels(self.driver, method, code).inc()
        for one in claims:
            found = outcomes[one.uid]
            if not isinstance(found, DevicePluginError):
                self._problems.over(one.uid)
            yield one, found

    def _failed(self, claim: Claim, event: str, error: DevicePluginError) -> str:
        reason = reason_of(error)
        # The kubelet tries again every few seconds, and whenever the pod changes.
        if self._problems.say(
            claim.uid, event, cause=error.__cause__, claim=str(claim), error=reason
        ):
            self.metrics.events.add(event, detail=f"{claim}: {reason}")
        return reason


def _device(one: RecordedDevice) -> pb.Device:
    return pb.Device(
        request_names=[one.request],
        pool_name=one.pool,
        device_name=one.name,
        cdi_device_ids=one.cdi_names,
        share_id=one.share or None,
    )
