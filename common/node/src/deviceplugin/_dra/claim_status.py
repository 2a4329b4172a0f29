"""The status of prepared devices in their claims: whether each is healthy, and why not.

It is written after the kubelet has its answer, so no pod waits for it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol

from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claims.reading import ClaimReader
from deviceplugin._dra.claims.record import Record
from deviceplugin._dra.serving.health import DeviceHealth, cut
from deviceplugin._platform.api_errors import (
    ApiServerError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Bucket, Waiter
from deviceplugin.kit.log import Problems
from deviceplugin.proto.dra import MAX_HEALTH_MESSAGE

log = logging.getLogger(__name__)

_TOGETHER: Final = 0.1
"""Seconds in which changes become one write for each claim."""
_BUSY: Final = 5.0
"""Most seconds that writes wait for calls that are under way."""
_MESSAGES: Final = 300.0
"""Seconds until a claim is written again of which only messages have changed: some count."""
_CHECK: Final = 600.0
"""Seconds between checks whether somebody has changed what was written, of one claim each time: a
watch would be one of all claims of the cluster, and would need the right to read them."""
_FIRST_WAIT: Final = 1.0
_LAST_WAIT: Final = 60.0
_REFUSED: Final = 540.0
"""Seconds that are added after a refusal: all nodes may lack the right, and for ever."""
_SPREAD: Final = 5.0
"""Seconds within which many nodes whose writes fail together write again."""
_BURST: Final = 50
_REFILL: Final = 1.0
"""Seconds until one more claim is read or written after a burst of them."""
_ADVICE: Final = (
    "; if a right is missing, apply the ClusterRole, its binding and the policies of the component "
    "dra, or set claim-status to false"
)
_GATE: Final = "the API server drops it: enable the feature gate DRAResourceClaimDeviceStatus"

Place = tuple[str, str, str]
"""The pool, the name and the share of a device."""
Condition = Mapping[str, str]
Wanted = Mapping[Place, Sequence[Condition]]
Object = Mapping[str, Any]

_READY: Final = {"type": "Ready", "status": "True", "reason": "Prepared", "message": ""}
_HEALTHY: Final = {"healthy": "True", "unhealthy": "False", "unknown": "Unknown"}


class ClaimStore(ClaimReader, Protocol):
    """Reads claims, and writes the status of their devices."""

    def edit_status(self, claim: Claim, operations: Sequence[dict[str, Any]], /) -> Object:
        """Change the status of ``claim`` by a JSON patch; return the claim."""


class _Known(NamedTuple):
    """What a claim said when it was last read or written, and when that was."""

    wanted: Wanted
    at: float


@dataclass(eq=False, repr=False)
class ClaimStatus:
    """Keeps the status of devices in prepared claims. ``run`` is its thread."""

    driver: str
    _: KW_ONLY
    records: Callable[[], Mapping[str, Record]]
    """Returns the records that are this process's to report, by uid."""
    health: Callable[[], Sequence[DeviceHealth]]
    claims: ClaimStore
    is_busy: Callable[[], bool] = bool
    """Returns whether pods wait for claims to be prepared."""
    count: Callable[[bool], None] = lambda _succeeded: None
    """Called for each write."""
    clock: Clock = MONOTONIC

    def __post_init__(self) -> None:
        self._waiter = Waiter(self.clock)
        self.stop, self.poke = self._waiter.end, self._waiter.poke
        """Ends ``run``, or has it check soon."""
        self._backoff = Backoff(_FIRST_WAIT, _LAST_WAIT, full_jitter=True, spread=_SPREAD)
        self._bucket = Bucket(_BURST, _REFILL, self.clock)
        self._known: dict[str, _Known] = {}
        self._failed_at: dict[str, float] = {}
        self._check_at = self.clock.now() + _CHECK
        self._problems = Problems(log)
        self._may_write = False
        """Whether a claim was written, so that the right is there."""
        self._failing: int | None = None
        """The status of the error that was reported, until it is over."""

    def run(self) -> None:
        """Write until stopped. What is written stays: another process goes on with it."""
        while not self._waiter.is_over():
            self._waiter.until_poked(_MESSAGES)
            self._waiter.pause_while(self.is_busy, _TOGETHER, _BUSY)
            if not self._waiter.is_over():
                self.check()

    def check(self) -> None:
        """Write what has changed, until something fails; then wait."""
        prepared = {uid: one for uid, one in self.records().items() if one.state == "prepared"}
        report = self.health() if prepared else ()
        health = {(one.pool, one.device): _conditions(one) for one in report}
        wanted = {uid: _wanted(one, health) for uid, one in prepared.items()}
        self._known = {uid: one for uid, one in self._known.items() if uid in wanted}
        self._failed_at = {uid: at for uid, at in self._failed_at.items() if uid in wanted}
        due = self._due(wanted)
        for uid in due:
            if self._waiter.is_over() or not self._may_ask():
                return
            if self.records().get(uid) is not prepared[uid]:
                continue  # it was released meanwhile, or prepared again, which pokes
            try:
                self._settle(prepared[uid].claim, wanted[uid])
            except ApiServerError as error:
                self._failed(uid, error)
                return
            self._known[uid] = _Known(wanted[uid], self.clock.now())
            self._failed_at.pop(uid, None)
        if due:
            self._succeeded()

    def _due(self, wanted: Mapping[str, Wanted]) -> Sequence[str]:
        """Return the claims to write now, in order."""
        now = self.clock.now()
        due = [uid for uid, one in wanted.items() if self._is_due(self._known.get(uid), one, now)]
        if not due and self._known and now >= self._check_at:
            self._check_at = now + _CHECK
            due = [min(self._known, key=lambda uid: self._known[uid].at)]
        return sorted(due, key=lambda uid: self._place_in_line(uid, now))

    def _place_in_line(self, uid: str, now: float) -> tuple[int, float]:
        """Return the order: changed claims, new ones, failed ones, and those of the last minute."""
        if known := self._known.get(uid):  # a device that flaps holds up no other claim
            return (0 if now >= known.at + _LAST_WAIT else 3), known.at
        failed_at = self._failed_at.get(uid)
        return (1, 0.0) if failed_at is None else (2, failed_at)

    def _is_due(self, known: _Known | None, wanted: Wanted, now: float) -> bool:
        if known is None or known.wanted == wanted:
            return known is None
        return _statuses(known.wanted) != _statuses(wanted) or now >= known.at + _MESSAGES

    def _may_ask(self) -> bool:
        """Return whether a claim may be written now; else wait until one may."""
        if wait := self._bucket.wait():
            self._waiter.pause(wait)
            self._waiter.poke()  # much can have changed meanwhile
            return False
        self._bucket.take()
        return True

    def _settle(self, claim: Claim, wanted: Wanted) -> None:
        """Write ``wanted`` into ``claim``, unless it is there or can never be."""
        try:
            self._update(claim, self.claims.get(claim.namespace, claim.name), wanted)
        except NotFoundError:
            pass  # a claim that is gone is released soon
        except (LookupError, TypeError, AttributeError) as error:
            self._refused(claim, repr(error))
        except ApiServerError as error:
            is_first = claim.uid not in self._failed_at  # it may be of what has changed meanwhile
            if is_first or not self._may_write or not _is_refusal(error):
                raise
            self._refused(claim, error)

    def _update(self, claim: Claim, found: Object, wanted: Wanted) -> None:
        metadata, status = found["metadata"], found.get("status") or {}
        if metadata["uid"] != claim.uid:
            return
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        allocated = {_place(one) for one in results if one["driver"] == self.driver}
        new = {place: one for place, one in wanted.items() if place in allocated}
        if changes := edits(status.get("devices") or [], self.driver, new):
            # Another version is a conflict.
            only = {"op": "replace", "path": "/metadata/resourceVersion"}
            self._write(claim, [{**only, "value": metadata["resourceVersion"]}, *changes])

    def _write(self, claim: Claim, changes: Sequence[dict[str, Any]]) -> None:
        succeeded = False
        try:
            kept = self.claims.edit_status(claim, changes)
            succeeded = self._may_write = True
        finally:
            self.count(succeeded)
        if not (kept.get("status") or {}).get("devices"):
            self._refused(claim, _GATE)

    def _refused(self, claim: Claim, error: object) -> None:
        self._problems.say("refused", "claim status refused", claim=str(claim), error=str(error))

    def _failed(self, uid: str, error: ApiServerError) -> None:
        """Report ``error``, unless the claim has just changed once; then wait."""
        self._known.pop(uid, None)
        has_changed = isinstance(error, ConflictError) and uid not in self._failed_at
        self._failed_at[uid] = self.clock.now()
        is_refused = _is_refusal(error) and not self._may_write
        if not has_changed and error.status != self._failing:
            self._failing = error.status
            text = f"{error}{_ADVICE if is_refused else ''}"
            self._problems.say("status", "claim status not written", error=text)
        wait = error.after + self._backoff.next_wait() + (_REFUSED if is_refused else 0)
        self._waiter.pause(wait)
        self._waiter.poke()

    def _succeeded(self) -> None:
        self._backoff.reset()
        if self._failing is not None:
            self._failing = None
            self._problems.over("status")
            log.info("claim status written again", extra={"driver": self.driver})


def _is_refusal(error: ApiServerError) -> bool:
    """Return whether a right may be missing: of what policies refuse, it is said to be invalid."""
    is_token = error.status == HTTPStatus.UNAUTHORIZED
    return isinstance(error, ForbiddenError | InvalidError) and not is_token


def edits(before: Sequence[Object], driver: str, wanted: Wanted) -> list[dict[str, Any]]:
    """Return how ``status.devices`` gets what is ``wanted`` of the devices of ``driver``.

    The rest is not even written again: an API server takes an entry of another driver, whose
    ``data`` were formatted, for a change. Of ours, conditions and fields that others have added are
    kept. The time of a condition changes with its status only.
    """
    left = dict(wanted)
    made = []
    for index, one in enumerate(before):
        conditions = left.pop(_place(one), None) if one["driver"] == driver else None
        if conditions is not None and (new := _entry(one, conditions)) != one:
            made.append({"op": "replace", "path": f"/status/devices/{index}", "value": new})
    added = [_entry(_new(driver, place), conditions) for place, conditions in left.items()]
    if added and not before:
        return [{"op": "add", "path": "/status/devices", "value": added}]
    return made + [{"op": "add", "path": "/status/devices/-", "value": one} for one in added]


def _entry(before: Object, wanted: Sequence[Condition]) -> Object:
    given = before.get("conditions") or []
    by_type = {one["type"]: one for one in given}
    ours = {one["type"]: _timed(by_type.get(one["type"], {}), one) for one in wanted}
    conditions = [ours.pop(one["type"], one) for one in given]
    return {**before, "conditions": [*conditions, *ours.values()]}


def _timed(before: Condition, condition: Condition) -> Condition:
    if before.get("status") == condition["status"]:
        return {**before, **condition}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**condition, "lastTransitionTime": now}


def _new(driver: str, place: Place) -> Object:
    pool, device, share = place
    own = {"driver": driver, "pool": pool, "device": device}
    return {**own, "shareID": share} if share else own


def _place(one: Object) -> Place:
    return one["pool"], one["device"], one.get("shareID") or ""


def _wanted(record: Record, health: Mapping[tuple[str, str], Sequence[Condition]]) -> Wanted:
    # A device without health was released meanwhile.
    return {
        (one.pool, one.name, one.share): health[one.pool, one.name]
        for one in record.given
        if (one.pool, one.name) in health
    }


def _conditions(one: DeviceHealth) -> Sequence[Condition]:
    said = {"status": _HEALTHY[one.status], "reason": one.status.capitalize()}
    message = cut(one.message, MAX_HEALTH_MESSAGE)
    return _READY, {"type": "Healthy", **said, "message": message}


def _statuses(wanted: Wanted) -> object:
    return {place: [one["status"] for one in found] for place, found in wanted.items()}
