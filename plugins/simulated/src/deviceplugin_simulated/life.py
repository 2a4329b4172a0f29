"""The state of simulated devices over time. Pure, without a clock."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self


class Action(StrEnum):
    """Events of devices, of parts from ``STICK`` on or, for the last four, of the plugin."""

    UNHEALTHY = "unhealthy"
    DEGRADED = "degraded"
    SLOW = "slow"
    FAIL = "fail"
    RECOVER = "recover"
    UNPLUG = "unplug"
    PLUG = "plug"
    STICK = "stick"
    MAKE = "make"
    UNMAKE = "unmake"
    REBOOT = "reboot"
    HANG = "hang"
    RESUME = "resume"
    CRASH = "crash"


OF_PLUGIN: Final = frozenset({Action.REBOOT, Action.HANG, Action.RESUME, Action.CRASH})
"""Events of the plugin, which take no devices."""
OF_PARTS: Final = frozenset({Action.STICK, Action.MAKE, Action.UNMAKE})
"""Events of parts alone."""
OPPOSITE: Final[Mapping[Action, Action]] = {
    Action.UNHEALTHY: Action.RECOVER,
    Action.DEGRADED: Action.RECOVER,
    Action.SLOW: Action.RECOVER,
    Action.FAIL: Action.RECOVER,
    Action.UNPLUG: Action.PLUG,
    Action.STICK: Action.RECOVER,
    Action.MAKE: Action.UNMAKE,
    Action.HANG: Action.RESUME,
}
"""Which event ends which."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, ``at`` seconds after the start."""

    at: float
    action: Action
    ids: Sequence[str] = ()
    reason: str = ""
    """Text for operators and pods. The default says that it is a simulation."""
    by: float = 0.0
    """Seconds by which ``SLOW`` delays an allocation, or making or removing a part."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with one device. Faults of several kinds add up."""

    sickness: str = ""
    """Why it is unhealthy; empty if it is not."""
    wear: str = ""
    """Why it will not be healthy for long; empty if it will."""
    refusal: str = ""
    """Why it cannot be allocated, although it looks healthy; empty if it can."""
    delay: float = 0.0
    """Seconds by which its allocation is delayed."""
    unplugged: bool = False
    sticking: str = ""
    """Why it cannot be removed, if it is a part; empty if it can."""

    def beside(self, whole: "Trouble") -> "Trouble":
        """Return what is wrong with a part of something that has the trouble ``whole``."""
        return replace(
            self,
            sickness=self.sickness or whole.sickness,
            wear=self.wear or whole.wear,
            unplugged=self.unplugged or whole.unplugged,
        )

    def __str__(self) -> str:
        parts = [
            "unplugged" if self.unplugged else "",
            f"unhealthy: {self.sickness}" if self.sickness else "",
            f"degraded: {self.wear}" if self.wear else "",
            f"failing: {self.refusal}" if self.refusal else "",
            f"sticking: {self.sticking}" if self.sticking else "",
            f"slow by {self.delay:g} s" if self.delay else "",
        ]
        return ", ".join(part for part in parts if part) or "healthy"


WELL: Final = Trouble()


@dataclass(frozen=True, slots=True)
class State:
    """The state of everything at one time."""

    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """Faults by device id. Devices that are missing here are healthy."""
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
    if event.action is Action.RECOVER:
        return replace(WELL, unplugged=trouble.unplugged)
    changes: dict[Action, dict[str, Any]] = {
        Action.UNHEALTHY: {"sickness": reason},
        Action.DEGRADED: {"wear": reason},
        Action.FAIL: {"refusal": reason},
        Action.STICK: {"sticking": reason},
        Action.SLOW: {"delay": event.by},
        Action.UNPLUG: {"unplugged": True},
        Action.PLUG: {"unplugged": False},
    }
    return replace(trouble, **changes.get(event.action, {}))


class Life:
    """A state that changes by events as time passes.

    ``events`` are in order of time and may be endless. The same events give the same state at the
    same time, in however many steps the time advances.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._events: Iterator[Event] = iter(events)
        self._next = next(self._events, None)
        self._added: list[Event] = []
        self.state = State()

    @classmethod
    def of(cls, *scripts: Iterable[Event]) -> Self:
        """Return a life that plays several scripts at the same time."""
        return cls(heapq.merge(*scripts, key=lambda event: event.at))

    @property
    def next_at(self) -> float:
        """When the next event is due, in seconds after the start; infinity if there is none."""
        coming = [event.at for event in (self._next, *self._added) if event is not None]
        return min(coming, default=float("inf"))

    @property
    def coming(self) -> int:
        """How many of the added events are pending."""
        return len(self._added)

    def advance(self, now: float) -> Sequence[Event]:
        """Advance to ``now`` seconds after the start. Return what happened, in order."""
        added = [event for event in self._added if event.at <= now]
        self._added = [event for event in self._added if event.at > now]
        due = sorted([*self._due(now), *added], key=lambda event: event.at)
        if due:
            self.state = self.state.after(due)
        return due

    def add(self, event: Event) -> None:
        """Add ``event``, which happens at its time."""
        self._added.append(event)

    def _due(self, now: float) -> Iterator[Event]:
        while self._next is not None and self._next.at <= now:
            yield self._next
            self._next = next(self._events, None)
