"""Health that does not flicker: it turns when enough looks, for long enough, say so. No threads."""

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from math import inf
from threading import Lock
from time import monotonic
from typing import Generic, TypeVar

from deviceplugin.model import Health

__all__ = ["SteadyHealth", "Tolerance"]

_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What it takes for a verdict to turn: both the number of looks and the time.

    The default turns at once.

    Raises:
        ValueError: A number of looks is less than 1, a time less than 0, or ``window`` too small.
    """

    failures: int = 1
    """How many looks must find a healthy device unhealthy before it is."""
    window: int = 0
    """Among how many of the latest looks these are counted, n of m; 0 where they must be in a row.
    """
    successes: int = 1
    """How many looks in a row must find an unhealthy device healthy before it is."""
    patience: float = 0.0
    """Seconds that must have passed since the first of these looks before it is."""
    recovery: float = 0.0
    """Seconds for which an unhealthy device must be found healthy before it is."""

    def __post_init__(self) -> None:
        if min(self.failures, self.successes) < 1 or min(self.patience, self.recovery) < 0:
            raise ValueError(f"{self}: numbers of looks begin with 1, and times with 0")
        if self.window and self.window < self.failures:
            raise ValueError(f"{self}: a window of {self.window} looks never has {self.failures}")

    def to_turn(self, *, healthy: bool) -> tuple[int, int, float]:
        """Return of how many looks how many must disagree, and for how many seconds."""
        if healthy:
            return max(self.window, self.failures), self.failures, self.patience
        return self.successes, self.successes, self.recovery


@dataclass(slots=True)
class _Record:
    """What is known of one device."""

    health: Health
    judged_at: float
    looks: tuple[float, ...] = ()
    """When each of the latest looks disagreed with ``health``; infinity for those that agreed."""
    streak: float = inf
    """Since when all have disagreed."""
    due: float = inf
    """When another look that disagrees makes it turn."""

    def note(self, found: Health, tolerance: Tolerance, now: float) -> None:
        disagrees = bool(found) != bool(self.health)
        window, needed, lasting = tolerance.to_turn(healthy=bool(self.health))
        self.looks = (*self.looks, now if disagrees else inf)[-window:]
        self.streak = min(self.streak, now) if disagrees else inf
        since = self.streak if window == needed else min(self.streak, *self.looks)
        enough = disagrees and sum(at < inf for at in self.looks) >= needed
        self.due = since + lasting if enough else inf
        if not disagrees:
            self.health = found  # with the reason of now
        elif now >= self.due:
            self.turn(found)

    def turn(self, found: Health) -> None:
        self.health, self.looks, self.streak, self.due = found, (), inf, inf


class SteadyHealth(Generic[_K]):
    """The health of many devices, each under a key of yours. Thread-safe, and asks no hardware.

    The first look at a device decides. From then on its health stays until looks disagree with it
    by a ``Tolerance``; while they agree, the reason is that of the latest.

    Args:
        tolerance: Where ``judge`` is given none.
        clock: Seconds that never jump.
    """

    def __init__(
        self, tolerance: Tolerance | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._tolerance = tolerance or Tolerance()
        self._clock = clock
        self._lock = Lock()
        self._records: dict[_K, _Record] = {}

    def judge(
        self,
        key: _K,
        found: Health,
        tolerance: Tolerance | None = None,
        *,
        at_once: bool = False,
    ) -> Health:
        """Take note that a look has just ``found`` a device so, and return its health.

        With ``at_once`` it is what was found, such as for an error that leaves no doubt.
        """
        now = self._clock()
        with self._lock:
            record = self._records.setdefault(key, _Record(found, now))
            record.judged_at = now
            if at_once:
                record.turn(found)
            else:
                record.note(found, tolerance or self._tolerance, now)
            return record.health

    def latest(self, key: _K, within: float) -> Health | None:
        """Return the health of a device that was judged less than ``within`` seconds ago.

        None for others: they are to be looked at now.
        """
        now = self._clock()
        with self._lock:
            record = self._records.get(key)
            return record.health if record and now - record.judged_at < within else None

    def is_due(self) -> bool:
        """Return whether a check now could turn a verdict that only waits for time to pass.

        True once for each, so that a discovery that fails is not asked for again and again. For
        ``changes``: such as for the parameter ``also`` of ``kit.udev``.
        """
        now = self._clock()
        with self._lock:
            due = [record for record in self._records.values() if now >= record.due]
            for record in due:
                record.due = inf  # until the next check
            return bool(due)

    def forget(self, key: _K) -> None:
        """Let the next look at a device be its first."""
        with self._lock:
            self._records.pop(key, None)

    def keep(self, keys: Collection[_K]) -> None:
        """Forget all devices but these: those that are gone."""
        with self._lock:
            self._records = {key: one for key, one in self._records.items() if key in keys}
