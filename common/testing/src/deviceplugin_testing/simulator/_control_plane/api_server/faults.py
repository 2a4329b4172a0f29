"""What can be wrong with an API server: away, slow, overloaded, and watches that break."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from deviceplugin_testing.simulator._control_plane.api_server.access import Wanted
from deviceplugin_testing.simulator._control_plane.refusals import RefusedError
from deviceplugin_testing.simulator._monitor import Monitor

Matches = Callable[[Wanted], bool]


class OverloadedError(RefusedError):
    """The server asks to come back in ``after`` seconds."""

    def __init__(self, code: int, after: int) -> None:
        details = {"retryAfterSeconds": after}
        reason = "TooManyRequests" if code == 429 else "ServiceUnavailable"  # noqa: PLR2004
        message = "the server has received too many requests and has asked us to try again later"
        super().__init__(code, reason, message, details)
        self.after = after


@dataclass(slots=True)
class _Refusal:
    error: RefusedError
    left: float
    matches: Matches


@dataclass(slots=True)
class Faults:
    """Thread-safe; everything takes effect with the next request."""

    latency: float = 0.0
    """Seconds before each answer."""
    _lock: Monitor = field(default_factory=Monitor)
    _refusals: deque[_Refusal] = field(default_factory=deque)

    def overload(
        self,
        times: float = math.inf,
        *,
        code: int = 429,
        after: int = 1,
        matches: Matches = lambda _wanted: True,
    ) -> None:
        """Refuse the next requests, so many ``times``, with ``Retry-After``."""
        self.refuse(OverloadedError(code, after), times, matches=matches)

    def refuse(
        self, error: RefusedError, times: float = 1, *, matches: Matches = lambda _wanted: True
    ) -> None:
        """Refuse the next requests that match, so many ``times``."""
        with self._lock:
            self._refusals.append(_Refusal(error, times, matches))

    def end(self) -> None:
        """Answer as usual again."""
        with self._lock:
            self.latency = 0.0
            self._refusals.clear()

    def check(self, wanted: Wanted) -> None:
        """Raise what the request is refused with, if it is."""
        with self._lock:
            for refusal in self._refusals:
                if refusal.left > 0 and refusal.matches(wanted):
                    refusal.left -= 1
                    raise refusal.error
