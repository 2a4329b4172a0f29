"""What a file makes happen to devices: a timeline, and random faults."""

import heapq
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import InvalidError, Key, Kind, Place
from deviceplugin_simulated.life import OF_PARTS, OF_PLUGIN, OPPOSITE, Action, Event

DEFAULT_DELAY: Final = 1.0
"""Seconds by which a slow allocation is delayed, by default."""

_SECONDS: Final = cfg.duration(zero=True).to(timedelta.total_seconds)
_POSITIVE: Final = cfg.duration().to(timedelta.total_seconds)


class Targets(NamedTuple):
    """What events happen to."""

    ids: Sequence[str]
    """Of all devices."""
    parts: Sequence[str] = ()
    """Those of parts that can be made."""

    def of(self, action: Action) -> Sequence[str]:
        """Return the ids of what ``action`` can happen to."""
        return self.parts if action in OF_PARTS else self.ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Faults that begin and end at random. Times are in seconds."""

    every: float = 10.0
    """Mean time between the beginnings of two faults, of any devices."""
    lasting: float = 30.0
    """Mean duration of a fault."""
    faults: Sequence[Action] = (Action.UNHEALTHY, Action.UNPLUG)
    """The faults, all equally likely. One that is listed twice is twice as likely."""
    until: float = float("inf")
    """No fault begins after this time. Earlier ones end as usual."""
    slow_by: float = DEFAULT_DELAY
    """The delay of an allocation, if ``SLOW`` is among the faults."""

    def events(self, targets: Targets, seed: int) -> Iterator[Event]:
        """Yield the events of ``targets`` in order of time, perhaps endlessly."""
        rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
        order = itertools.count()
        passing: list[tuple[float, int, Event]] = []
        for fault in self._beginnings(targets, rng):
            while passing and passing[0][0] <= fault.at:
                yield heapq.heappop(passing)[2]
            yield fault
            if fault.action in OPPOSITE:
                end = fault.at + rng.expovariate(1 / self.lasting)
                event = Event(end, OPPOSITE[fault.action], fault.ids)
                heapq.heappush(passing, (end, next(order), event))
        while passing:
            yield heapq.heappop(passing)[2]

    def _beginnings(self, targets: Targets, rng: random.Random) -> Iterator[Event]:
        faults = [one for one in self.faults if one in OF_PLUGIN or targets.of(one)]
        at = 0.0
        while faults and (at := at + rng.expovariate(1 / self.every)) <= self.until:
            action = rng.choice(faults)
            chosen = () if action in OF_PLUGIN else (rng.choice(targets.of(action)),)
            by = self.slow_by if action is Action.SLOW else 0.0
            yield Event(at, action, chosen, by=by)


def select(patterns: Sequence[str], ids: Sequence[str], what: str = "a device") -> list[str]:
    """Return the ``ids`` that match any pattern with ``*`` and ``?``; ValueError for none."""
    found: dict[str, None] = {}
    known = set(ids)
    for pattern in patterns:
        matches = [pattern] if pattern in known else [i for i in ids if fnmatchcase(i, pattern)]
        if not matches:
            raise ValueError(f"{pattern!r} is not {what}: {cfg.suggestion(pattern, ids)}")
        found.update(dict.fromkeys(matches))
    return list(found)


def _action(given: str) -> Action:
    try:
        return Action(given)
    except ValueError:
        raise ValueError(
            f"is not an action: {cfg.suggestion(given, [*map(str, Action)])}"
        ) from None


def _fault(given: str) -> Action:
    action = _action(given)
    if action not in OPPOSITE and action is not Action.CRASH:
        raise ValueError("is not a fault")
    return action


@dataclass(frozen=True)
class _Given:
    """An event as it is written."""

    do: Action
    at: float = 0.0
    devices: tuple[str, ...] | None = None
    lasting: float | None = None
    by: float = DEFAULT_DELAY
    reason: str = ""


def _fits(place: Place, given: Mapping[str, Place]) -> None:
    with suppress(InvalidError):
        action = given["do"].read(_ACTION) if "do" in given else Action.RESUME
        if action in OF_PLUGIN and "devices" in given:
            given["devices"].fault(f"{action} happens to the plugin, not to devices")
        if action not in OPPOSITE and "for" in given:
            given["for"].fault(f"{action} has no duration")
        if action is Action.MAKE and "devices" not in given:
            place.fault("devices: is needed: make which parts?")


_ACTION: Final = cfg.text().to(_action)
_EVENT_KEYS: Final[Mapping[str, Kind[Any] | Key[Any]]] = {
    "at": _SECONDS,
    "do": cfg.needed(_ACTION),
    "devices": cfg.list_of(cfg.text(digits=True), single=True),
    "for": cfg.as_argument(_POSITIVE, "lasting"),
    "by": _SECONDS,
    "reason": cfg.text(digits=True),
}
_ORDER: Final = cfg.record(_Given, _EVENT_KEYS, rules=[_fits])
"""A request on the control socket, which happens now."""
_EVENT: Final = cfg.record(_Given, {**_EVENT_KEYS, "at": cfg.needed(_SECONDS)}, rules=[_fits])


def read_timeline(places: Iterable[Place], targets: Targets) -> list[Event]:
    """Return the events of a timeline in order of time. Faults are collected."""
    events: list[Event] = []
    for place in places:
        with suppress(InvalidError):
            events += _events(place, _EVENT, targets)
    return sorted(events, key=lambda event: event.at)


def read_order(place: Place, targets: Targets, now: float) -> list[Event]:
    """Return the events of a request, from ``now`` on. An InvalidError's faults are collected."""
    return list(_events(place, _ORDER, targets, now))


def _events(
    place: Place, kind: Kind[_Given], targets: Targets, start: float = 0.0
) -> Iterator[Event]:
    """Yield one event, relative to ``start``, and the event that ends it, if any."""
    given = kind.read(place)
    at, action = start + given.at, given.do
    ids = targets.of(action)
    if action in OF_PARTS and not ids:
        raise place.within("do").fault(f"{action} happens to parts, and no device has any")
    chosen = list(ids) if action not in OF_PLUGIN else []
    if given.devices is not None:
        try:
            chosen = select(given.devices, ids, "a part" if action in OF_PARTS else "a device")
        except ValueError as error:
            raise place.within("devices").fault(str(error)) from error
    by = given.by if action is Action.SLOW else 0.0
    yield Event(at, action, tuple(chosen), given.reason, by)
    if given.lasting is not None:
        yield Event(at + given.lasting, OPPOSITE[action], tuple(chosen))


PROCESS: Final = cfg.record(
    Process,
    {
        "every": _POSITIVE,
        "lasting": _POSITIVE,
        "faults": cfg.list_of(cfg.text().to(_fault), single=True),
        "until": _SECONDS,
        "slow-by": _SECONDS,
    },
)
"""Random faults."""
