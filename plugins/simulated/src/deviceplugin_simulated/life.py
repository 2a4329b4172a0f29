"""The life of simulated devices: what has happened to them by a given time. Pure, no clock."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self


class Action(StrEnum):
    """What can happen to devices or, for the last three, to the plugin."""

    UNHEALTHY = "unhealthy"
    SLOW = "slow"
    FAIL = "fail"
    RECOVER = "recover"
    UNPLUG = "unplug"
    PLUG = "plug"
    HANG = "hang"
    RESUME = "resume"
    CRASH = "crash"


OF_PLUGIN: Final = frozenset({Action.HANG, Action.RESUME, Action.CRASH})
"""What happens to the plugin, and takes no devices."""
OPPOSITE: Final[Mapping[Action, Action]] = {
    Action.UNHEALTHY: Action.RECOVER,
    Action.SLOW: Action.RECOVER,
    Action.FAIL: Action.RECOVER,
    Action.UNPLUG: Action.PLUG,
    Action.HANG: Action.RESUME,
}
"""What ends what."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens ``at`` so many seconds after the start."""

    at: float
    action: Action
    ids: Sequence[str] = ()
    reason: str = ""
    """Text for operators and pods; one that says it is a simulation where not given."""
    by: float = 0.0
    """Seconds that an allocation takes longer, for ``SLOW``."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with one device. Troubles of several kinds add up."""

    sickness: str = ""
    """Why it is unhealthy; empty if it is not."""
    refusal: str = ""
    """Why it cannot be allocated, although it looks healthy; empty if it can."""
    delay: float = 0.0
    """Seconds that its allocation takes longer."""
    unplugged: bool = False

    def __str__(self) -> str:
        parts = [
            "unplugged" if self.unplugged else "",
            f"unhealthy: {self.sickness}" if self.sickness else "",
            f"failing: {self.refusal}" if self.refusal else "",
            f"slow by {self.delay:g} s" if self.delay else "",
        ]
        return ", ".join(part for part in parts if part) or "well"


WELL: Final = Trouble()


@dataclass(frozen=True, slots=True)
class State:
    """How everything is at one time."""

    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """By id; devices that are not in it are well."""
    hangs: bool = False
    crashed: bool = False

    def of(self, device_id: str) -> Trouble:
        """Return what is wrong with one device."""
        return self.troubles.get(device_id, WELL)

    def after(self, events: Iterable[Event]) -> "State":
        """Return the state after ``events``, which are in order."""
        troubles, hangs, crashed = dict(self.troubles), self.hangs, self.crashed
        for event in events:
            if event.action in OF_PLUGIN:
                crashed = crashed or event.action is Action.CRASH
                hangs = event.action is Action.HANG if event.action in _HANGING else hangs
                continue
            for device_id in event.ids:
                trouble = _after(troubles.pop(device_id, WELL), event)
                if trouble != WELL:
                    troubles[device_id] = trouble
        return State(troubles, hangs, crashed)


_HANGING: Final = frozenset({Action.HANG, Action.RESUME})


def _after(trouble: Trouble, event: Event) -> Trouble:
    reason = event.reason or "simulated fault"
    changes: dict[Action, dict[str, Any]] = {
        Action.UNHEALTHY: {"sickness": reason},
        Action.FAIL: {"refusal": reason},
        Action.SLOW: {"delay": event.by},
        Action.RECOVER: {"sickness": "", "refusal": "", "delay": 0.0},
        Action.UNPLUG: {"unplugged": True},
        Action.PLUG: {"unplugged": False},
    }
    return replace(trouble, **changes[event.action])


class Life:
    """A state that goes through events as time goes on.

    ``events`` are in order of time and may be without an end. The same events give the same state
    at the same time, however often and in however large steps it is asked for.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._events: Iterator[Event] = iter(events)
        self._next = next(self._events, None)
        self._added: list[Event] = []
        self.state = State()

    @classmethod
    def of(cls, *scripts: Iterable[Event]) -> Self:
        """Return a life in which several scripts go on side by side."""
        return cls(heapq.merge(*scripts, key=lambda event: event.at))

    @property
    def next_at(self) -> float:
        """When the next event is due, in seconds after the start; infinity if none is."""
        coming = [event.at for event in (self._next, *self._added) if event is not None]
        return min(coming, default=float("inf"))

    @property
    def coming(self) -> int:
        """How many of the events that were added are still to come."""
        return len(self._added)

    def advance(self, now: float) -> bool:
        """Go on to ``now`` seconds after the start; tell whether anything happened."""
        added = [event for event in self._added if event.at <= now]
        self._added = [event for event in self._added if event.at > now]
        due = sorted([*self._due(now), *added], key=lambda event: event.at)
        if due:
            self.state = self.state.after(due)
        return bool(due)

    def add(self, event: Event) -> None:
        """Let ``event`` happen besides, when its time has come."""
        self._added.append(event)

    def _due(self, now: float) -> Iterator[Event]:
        while self._next is not None and self._next.at <= now:
            yield self._next
            self._next = next(self._events, None)
