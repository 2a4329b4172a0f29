"""Health that does not flicker: it turns after enough checks over enough time. No threads."""

import os
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from time import monotonic
from typing import Generic, TypeVar

from deviceplugin.model import Health

__all__ = ["SteadyHealth", "Tolerance", "absence"]

_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What it takes for the health of a device to turn: both a number of checks and a time.

    By default it turns at once.

    Raises:
        ValueError: A number of checks is less than 1, a time is less than 0, or ``window`` is too
            small.
    """

    failures: int = 1
    """Number of checks that must fail before a healthy device becomes unhealthy."""
    window: int = 0
    """Number of latest checks among which failures are counted; 0 if they must be in a row."""
    successes: int = 1
    """Number of checks in a row that must succeed before an unhealthy device becomes healthy."""
    patience: float = 0.0
    """Seconds since the first of the failures before a healthy device becomes unhealthy."""
    recovery: float = 0.0
    """Seconds of successful checks before an unhealthy device becomes healthy."""

    def __post_init__(self) -> None:
        if min(self.failures, self.successes) < 1 or min(self.patience, self.recovery) < 0:
            raise ValueError(f"{self}: numbers of checks begin with 1, and times with 0")
        if self.window and self.window < self.failures:
            raise ValueError(f"{self}: a window of {self.window} checks never has {self.failures}")

    def to_turn(self, *, healthy: bool) -> tuple[int, int, float]:
        """Return the number of latest checks, how many must disagree, and for how many seconds."""
        if healthy:
            return max(self.window, self.failures), self.failures, self.patience
        return self.successes, self.successes, self.recovery


@dataclass(slots=True)
class _Switch:
    """Something that is true or not, and turns only after enough checks over enough time."""

    is_on: bool
    checks: tuple[float, ...] = ()
    """The time of each of the latest checks that disagreed; infinity for one that agreed."""
    streak: float = inf
    """The time since which all checks have disagreed."""
    due: float = inf
    """The time from which one more check that disagrees makes it turn."""

    def note(self, found: bool, tolerance: Tolerance, now: float) -> None:  # noqa: FBT001
        disagrees = found != self.is_on
        window, needed, lasting = tolerance.to_turn(healthy=self.is_on)
        self.checks = (*self.checks, now if disagrees else inf)[-window:]
        self.streak = min(self.streak, now) if disagrees else inf
        since = self.streak if window == needed else min(self.streak, *self.checks)
        enough = disagrees and sum(at < inf for at in self.checks) >= needed
        self.due = since + lasting if enough else inf
        if now >= self.due:
            self.turn(found)

    def until_due(self, tolerance: Tolerance, now: float) -> float:
        """Return for how many seconds the record cannot become due, whatever checks find."""
        if self.due < inf:
            return max(0.0, self.due - now)
        _, _, lasting = tolerance.to_turn(healthy=self.is_on)
        left = min((self.streak, *self.checks)) + lasting - now
        return left if left > 0 else inf  # the next check that disagrees makes it turn at once

    def turn(self, found: bool) -> None:  # noqa: FBT001
        self.is_on, self.checks, self.streak, self.due = found, (), inf, inf


@dataclass(slots=True)
class _Record:
    """What is known about one device."""

    judged_at: float
    usable: _Switch
    sound: _Switch
    """Whether it is not degraded; what the latest check says while it is not usable."""
    broken: Health = field(default_factory=lambda: Health(healthy=False))
    """How it is not usable, by the latest check that found so."""
    worn: Health = field(default_factory=Health)
    """How it is degraded, by the latest check that found so."""

    @property
    def health(self) -> Health:
        if not self.usable.is_on:
            return self.broken
        return Health() if self.sound.is_on else self.worn

    def note(self, found: Health, tolerance: Tolerance, now: float) -> None:
        was_usable = self.usable.is_on
        self.usable.note(found.healthy, tolerance, now)
        if found and was_usable:
            self.sound.note(not found.reason, tolerance, now)
            self.worn = found if found.reason else self.worn
        else:
            self.take(found)

    def turn(self, found: Health) -> None:
        self.usable.turn(found.healthy)
        self.take(found)

    def take(self, found: Health) -> None:
        """Note the reason, for which nothing has to last."""
        if found:
            self.sound.turn(not found.reason)
            self.worn = found
        else:
            self.broken = found

    @property
    def due(self) -> float:
        return min(self.usable.due, self.sound.due)

    def until_due(self, tolerance: Tolerance, now: float) -> float:
        return min(one.until_due(tolerance, now) for one in (self.usable, self.sound))

    def wait(self) -> None:
        """Have nothing due until the next check."""
        self.usable.due = self.sound.due = inf


class SteadyHealth(Generic[_K]):
    """The health of many devices, each under a key of yours. Thread-safe; it never asks hardware.

    The first check of a device decides. From then on its health stays until checks disagree with
    it by a ``Tolerance``. While they agree, the reason is that of the latest check. A device gets
    degraded, and sound again, as it gets unhealthy and healthy: checks of either kind are counted
    apart.

    Args:
        tolerance: The default for ``judge``.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self, tolerance: Tolerance | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self._tolerance = tolerance or Tolerance()
        self._clock = clock
        self._lock = Lock()
        self._records: dict[_K, _Record] = {}

    def judge(
        self, key: _K, found: Health, tolerance: Tolerance | None = None, *, at_once: bool = False
    ) -> Health:
        """Record what a check ``found`` for a device just now, and return the device's health.

        With ``at_once``, that is what was found: use it for an error that leaves no doubt.
        """
        now = self._clock()
        with self._lock:
            is_new = key not in self._records
            record = self._records.setdefault(key, _Record(now, _Switch(True), _Switch(True)))  # noqa: FBT003
            record.judged_at = now
            if at_once or is_new:
                record.turn(found)
            else:
                record.note(found, tolerance or self._tolerance, now)
            return record.health

    def weigh(
        self,
        key: _K,
        *,
        certain: Iterable[str] = (),
        doubtful: Iterable[str] = (),
        wear: Iterable[str] = (),
    ) -> Health:
        """Record the reasons that a check found just now, and return the device's health.

        Empty reasons do not count.

        Args:
            key: The device.
            certain: Reasons why it is unhealthy at once.
            doubtful: Reasons why it is unhealthy if they last.
            wear: Reasons why it works and will not for long: it is degraded if they last.
        """
        sure = [*filter(None, certain)]
        reasons = "; ".join([*sure, *filter(None, doubtful)])
        worn = "; ".join(filter(None, wear))
        found = Health.unhealthy(reasons) if reasons else Health.degraded(worn)
        return self.judge(key, found, at_once=bool(sure))

    def latest(self, key: _K, within: float) -> Health | None:
        """Return the health of a device that was judged less than ``within`` seconds ago.

        None for other devices: they must be checked now.
        """
        now = self._clock()
        with self._lock:
            record = self._records.get(key)
            return record.health if record and now - record.judged_at < within else None

    def is_due(self) -> bool:
        """Return whether the time has come at which one more check could turn a device's health.

        It is true once for each device, so that a failing discovery is not triggered repeatedly.
        Use it in ``changes``, for example as ``also`` of ``kit.udev``.
        """
        now = self._clock()
        with self._lock:
            due = [record for record in self._records.values() if now >= record.due]
            for record in due:
                record.wait()
            return bool(due)

    def until_due(self) -> float:
        """Return for how many seconds ``is_due`` stays false, whatever checks find meanwhile.

        It can be infinite. It holds for devices that are judged by the default tolerance. Use it as
        ``pause`` of ``kit.udev``.
        """
        now, usual = self._clock(), self._tolerance
        with self._lock:
            found = [one.until_due(usual, now) for one in self._records.values()]
        return min((*found, usual.patience or inf, usual.recovery or inf))

    def forget(self, key: _K) -> None:
        """Forget a device: its next check counts as its first."""
        with self._lock:
            self._records.pop(key, None)

    def keep(self, keys: Collection[_K]) -> None:
        """Forget all devices but these, because the others are gone."""
        with self._lock:
            self._records = {key: one for key, one in self._records.items() if key in keys}


def absence(path: str | os.PathLike[str]) -> str:
    """Return why nothing is at ``path``, such as ``/dev/kfd does not exist``; empty if it is there.

    Never raises, unlike ``Path.exists``: what is wrong with one file concerns its device alone.
    """
    place = os.fspath(path)
    try:
        os.stat(place)  # noqa: PTH116 - thousands of these
    except (FileNotFoundError, NotADirectoryError):
        return f"{place} does not exist"
    except OSError as error:
        return f"{place}: {error.strerror}"
    return ""
