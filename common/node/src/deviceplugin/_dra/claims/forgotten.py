"""Claims that are recorded although neither the API server nor the kubelet knows them any more.

The kubelet releases a claim by a call, and repeats that until it succeeds. It forgets claims only
if it loses its state, such as by a reset of the node. Then nobody would ever release the devices.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final

from deviceplugin._attribution.claim_holders import Claim
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._dra.claims.reading import ClaimReader
from deviceplugin._dra.claims.record import Record
from deviceplugin._platform.api_errors import NotFoundError
from deviceplugin._platform.clock import Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_SPAN: Final = 20
"""Intervals in which the kubelet, which has the driver, neither names a claim nor releases it. At
least every tenth is a list of all pods, and the kubelet repeats a failed call after 90 s at most.
"""
_AGAIN: Final = 60
"""Intervals until the API server is asked once more for the same claim."""
_TIMEOUT: Final = 30.0
"""Seconds for the hooks of a release."""


@dataclass(slots=True)
class _Doubt:
    record: Record
    since: float
    ask_at: float


@dataclass(eq=False, repr=False)
class ForgottenClaims:
    """Releases forgotten claims of ``driver``. ``run`` is its thread.

    A claim is forgotten if the API server no longer has it, or has it without these devices, and if
    a kubelet that knows its pods has not named it for a while, although it could have released it.
    """

    driver: str
    _: KW_ONLY
    records: Callable[[], Mapping[str, Record]]
    """Returns the records, by uid."""
    holdings: Callable[[], Holdings | None]
    """Returns what the kubelet said last, or None if that is not known."""
    claims: ClaimReader
    release: Callable[[Claim, Callable[[], float]], None]
    """Releases a claim; is also given what returns the seconds that are left."""
    is_registered: Callable[[], bool]
    interval: float
    """Seconds between the kubelet's answers."""
    clock: Clock

    def __post_init__(self) -> None:
        self._waiter = Waiter(self.clock)
        self._doubts: dict[str, _Doubt] = {}
        self._problems = Problems(log)

    def run(self) -> None:
        while not self._waiter.is_over():
            self._waiter.pause(self.interval)
            if not self._waiter.is_over():
                self.check()

    def stop(self) -> None:
        self._waiter.end()

    def check(self) -> None:
        """Release what is forgotten now."""
        now, records = self.clock.now(), self.records()
        named = self._named() if records else None
        if named is None:
            self._doubts = {}
            return
        doubtful = {
            uid: one
            for uid, one in records.items()
            if (one.claim.namespace, one.claim.name) not in named
        }
        before, due = self._doubts, now + _SPAN * self.interval
        self._doubts = {
            uid: before[uid]
            if uid in before and before[uid].record is one
            else _Doubt(one, now, due)
            for uid, one in doubtful.items()
        }
        for doubt in list(self._doubts.values()):
            if now >= doubt.ask_at and not self._waiter.is_over():
                doubt.ask_at = now + _AGAIN * self.interval
                self._settle(doubt.record)

    def _named(self) -> set[tuple[str, str]] | None:
        """Return the claims that containers have, or None if that is not certain."""
        holdings = self.holdings()
        if holdings is None or not (holdings.complete and holdings.pods and self.is_registered()):
            return None
        return {(one.namespace, one.claim) for one in holdings.claimed if one.driver == self.driver}

    def _settle(self, record: Record) -> None:
        try:
            if not self._is_gone(record):
                return
            self.release(record.claim, lambda: _TIMEOUT)
        except DevicePluginError as error:
            event = "forgotten claim not released"
            self._problems.say(record.claim.uid, event, claim=str(record.claim), error=str(error))
            return
        self._problems.over(record.claim.uid)
        log.warning("forgotten claim released", extra={"claim": str(record.claim)})

    def _is_gone(self, record: Record) -> bool:
        claim = record.claim
        try:
            found = self.claims.get(claim.namespace, claim.name)
        except NotFoundError:
            return True
        if (found.get("metadata") or {}).get("uid") != claim.uid:
            return True
        allocation = (found.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        allocated = {(one.get("driver"), one.get("pool"), one.get("device")) for one in results}
        return allocated.isdisjoint((self.driver, one.pool, one.name) for one in record.devices)
