"""Reading a claim from the API server while the kubelet waits, and what it says for one driver.

A kubelet whose Prepare fails tries again only a minute later. So what the API server cannot answer
now, it is asked again within the time of the call, as clients in Go do.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from deviceplugin._attribution.ownership import Claim
from deviceplugin._config.documents.faults import bounded
from deviceplugin._config.quantities import whole_number
from deviceplugin._config.slices import SHARES
from deviceplugin._platform.api_errors import UnavailableError
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.errors import AllocationError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_FIRST_TIMEOUT: Final = 2.5
"""Seconds for the first answer: one that is lost must not cost a pod more than five."""
_TIMEOUT: Final = 10.0
"""Seconds for each later answer, because the API server may be just slow."""
_SHORTEST: Final = 1.0
"""Seconds for an answer if no time is left, as for the last of many claims of one call."""
_BESIDE: Final = 4
"""Claims of one call that are read at a time: as many as connections are kept."""
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 4.0
"""A pod starts this many seconds after the API server is back, at most."""
_SPREAD: Final = 1.0
"""Seconds over which the drivers of all nodes spread their second attempts."""
_FOR_HOOKS: Final = 5.0
"""Seconds of a call that are left for the hooks that follow."""
_MOST: Final = 16
"""Most claims that wait at a time. They are fewer than the calls that are served at a time: a claim
that is released needs no API server."""
_CHECK: Final = 1.0
"""Seconds between checks whether the kubelet still waits."""
_FROM_CLASS: Final = "FromClass"
_POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
_TOO_MANY: Final = 1_000_000
"""Shares that no device has."""


Attempt = Callable[[], Mapping[str, Any]]
"""Returns the object of a claim, or raises why it could not be read."""


class ClaimReader(Protocol):
    """Reads claims from the API server."""

    def get(self, namespace: str, name: str, timeout: float = 0.0, /) -> Mapping[str, Any]:
        """Return the object of a claim, within ``timeout`` seconds instead of the usual ones."""


class PatientReader:
    """Reads claims by ``claims``, again and again if need be. Thread-safe."""

    def __init__(self, claims: ClaimReader, clock: Clock) -> None:
        self._claims = claims
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        self._waiters: set[Waiter] = set()
        """Of the reads that wait now."""
        self._problems = Problems(log)

    def close(self) -> None:
        """Stop waiting: each read fails, now and later, as its last attempt did."""
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.end()

    def attempts(
        self, claims: Sequence[Claim], left: Callable[[], float]
    ) -> Iterator[tuple[Claim, Attempt]]:
        """Yield each claim with what its first attempt returned or raises, those that failed last.

        Several are read side by side. ``left`` returns the seconds that are left of the call.
        """

        def read(claim: Claim) -> Mapping[str, Any]:
            seconds = max(_SHORTEST, min(_FIRST_TIMEOUT, left()))
            return self._claims.get(claim.namespace, claim.name, seconds)

        if len(claims) == 1:  # without a thread
            yield claims[0], lambda: read(claims[0])
            return
        pool = ThreadPoolExecutor(_BESIDE, thread_name_prefix="claims")
        reads = {pool.submit(read, one): one for one in claims}
        # Its threads end by themselves. If they were joined here, the garbage collector would join
        # them for a caller that failed, maybe amid the start of another thread, which both lock.
        pool.shutdown(wait=False)
        failed = []
        for one in as_completed(reads):
            if one.exception():
                failed.append(one)
            else:
                yield reads[one], one.result
        for one in failed:
            yield reads[one], one.result

    def read(self, claim: Claim, left: Callable[[], float], attempt: Attempt) -> Mapping[str, Any]:
        """Return the object of ``claim``, if need be by more attempts after the first one.

        UnavailableError if the API server could not answer in this time, or if too many others wait
        for it. Another error, such as that it does not exist, is final.
        """
        try:
            found = attempt()
        except UnavailableError as error:
            with self._waiting() as waiter:
                if waiter is None:
                    raise
                found = self._read_again(claim, left, waiter, error)
        self._problems.over("claims")
        return found

    def _read_again(
        self, claim: Claim, left: Callable[[], float], waiter: Waiter, error: UnavailableError
    ) -> Mapping[str, Any]:
        backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT, full_jitter=True, spread=_SPREAD)
        while True:
            wait = error.after + backoff.next_wait()
            if left() - wait < _FOR_HOOKS:
                raise error
            self._problems.say("claims", "waiting for the API server", error=str(error))
            waiter.until(lambda: left() < _FOR_HOOKS, wait, every=_CHECK)
            if waiter.is_over() or left() < _FOR_HOOKS:
                raise error
            try:
                return self._claims.get(claim.namespace, claim.name, min(_TIMEOUT, left()))
            except UnavailableError as again:
                error = again

    @contextmanager
    def _waiting(self) -> Iterator[Waiter | None]:
        """Return a waiter for the context; None if nobody should wait now."""
        waiter = Waiter(self._clock)
        with self._lock:
            may_wait = not self._closed and len(self._waiters) < _MOST
            if may_wait:
                self._waiters.add(waiter)
        try:
            yield waiter if may_wait else None
        finally:
            with self._lock:
                self._waiters.discard(waiter)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a user says about devices of one driver."""

    source: str
    """Whose it is, in words."""
    parameters: object
    """An object of JSON."""


@dataclass(frozen=True, slots=True)
class Result:
    """One device that the scheduler has allocated to a request of a claim."""

    request: str
    """Without a subrequest: the kubelet knows requests only."""
    pool: str
    device: str
    subrequest: str = ""
    """The alternative of the request that was chosen, if it has some."""
    pod_claim: str = ""
    """What the pod calls the claim, if that was made of a template."""
    share: str = ""
    """The id of the share, of a device that several claims may have at a time."""
    count: int = 1
    """Of how many of the device's shares that consists."""
    admin: bool = False
    """Whether it is access to a device that others may hold meanwhile."""
    tolerant: bool = False
    """Whether the claim tolerates some taint of the device."""
    configurations: tuple[Configuration, ...] = ()
    """Those that apply to it. The last one is valid, instead of the others."""

    @property
    def parameters(self) -> object:
        """The parameters that are valid, as an object of JSON; None if there are none."""
        return self.configurations[-1].parameters if self.configurations else None


def results(document: Mapping[str, Any], claim: Claim, driver: str) -> Sequence[Result]:
    """Return what the object of ``claim`` allocates of ``driver``; AllocationError if nothing."""
    try:
        return _results(document, claim, driver)
    except (KeyError, TypeError, AttributeError) as error:
        raise AllocationError(f"{claim} cannot be read: {error!r}") from error


def _results(document: Mapping[str, Any], claim: Claim, driver: str) -> Sequence[Result]:
    uid = document["metadata"]["uid"]
    if uid != claim.uid:
        raise AllocationError(
            f"{claim} has uid {bounded(repr(uid))} instead of {claim.uid}: it was deleted and "
            "created again"
        )
    allocation = (document.get("status") or {}).get("allocation")
    if not allocation:
        raise AllocationError(f"{claim} is not allocated")
    devices = allocation.get("devices") or {}
    ours = [one for one in devices.get("results") or () if one["driver"] == driver]
    if not ours:
        raise AllocationError(f"{claim} has no device of driver {driver}")
    # Those of the claim itself prevail over those of its classes.
    given = devices.get("config") or ()
    configurations = sorted(given, key=lambda one: one.get("source") != _FROM_CLASS)
    pod_claim = str((document["metadata"].get("annotations") or {}).get(_POD_CLAIM, ""))
    return [
        _result(one, pod_claim, tuple(_applicable(configurations, one, claim, driver)))
        for one in ours
    ]


def _result(
    found: Mapping[str, Any], pod_claim: str, configurations: tuple[Configuration, ...]
) -> Result:
    return Result(
        request=_parent(found["request"]),
        pool=found["pool"],
        device=found["device"],
        subrequest=found["request"].partition("/")[2],
        pod_claim=pod_claim,
        share=found.get("shareID") or "",
        count=_count((found.get("consumedCapacity") or {}).get(SHARES, "1")),
        admin=bool(found.get("adminAccess")),
        tolerant=bool(found.get("tolerations")),
        configurations=configurations,
    )


def _count(amount: str) -> int:
    with suppress(ValueError):
        if (count := whole_number(amount)) < _TOO_MANY:
            return count
    raise AllocationError(f"{bounded(repr(amount))} {SHARES}: not a number of shares")


def _parent(request: str) -> str:
    """Return the request of which ``request`` may be a subrequest."""
    return request.partition("/")[0]


def _applicable(
    configurations: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    claim: Claim,
    driver: str,
) -> Iterator[Configuration]:
    """Yield those for ``result``, the weakest first. What a user asks for is never ignored."""
    names = {result["request"], _parent(result["request"])}
    for one in configurations:
        requests = one.get("requests") or ()
        if requests and names.isdisjoint(requests):
            continue
        source = "its class" if one.get("source") == _FROM_CLASS else "the claim itself"
        opaque = one.get("opaque")
        if opaque is None:
            raise AllocationError(
                f"{claim}: it has a configuration of an unknown kind, from {source}: remove it"
            )
        if opaque["driver"] == driver:
            yield Configuration(source, opaque["parameters"])
