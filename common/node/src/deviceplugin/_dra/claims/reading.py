"""Reading a claim from the API server while the kubelet waits for it.

A kubelet whose Prepare fails tries again only a minute later. So what the API server cannot answer
now, it is asked again within the time of the call, as clients in Go do.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from deviceplugin._attribution.ownership import Claim
from deviceplugin._platform.api_errors import UnavailableError
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.clock import Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_FIRST_TIMEOUT: Final = 2.5
"""Seconds for the first answer: one that is lost must not cost a pod more than five."""
_TIMEOUT: Final = 10.0
"""Seconds for each later answer, because the API server may be just slow."""
_SHORTEST: Final = 1.0
"""Seconds for an answer if no time is left, as for the last of many claims of one call."""
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


class ClaimReader(Protocol):
    """Reads claims from the API server."""

    def get(self, namespace: str, name: str, timeout: float = 0.0, /) -> Mapping[str, Any]:
        """Return the object of a claim, within ``timeout`` seconds instead of the usual ones.

        Raises:
            UnavailableError: The API server cannot answer now.
            DevicePluginError: It does not exist, or may not be read.
        """


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

    def read_once(self, claim: Claim) -> Mapping[str, Any]:
        """Return the object of ``claim``; raises what its only attempt raises."""
        return self._claims.get(claim.namespace, claim.name, _FIRST_TIMEOUT)

    def read(self, claim: Claim, left: Callable[[], float]) -> Mapping[str, Any]:
        """Return the object of ``claim``. ``left`` returns the seconds that are left of the call.

        Raises:
            UnavailableError: The API server could not answer in this time, or too many others wait
                for it.
            DevicePluginError: It does not exist, or may not be read. That is not asked again.
        """
        try:
            found = self.read_once(claim)
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
