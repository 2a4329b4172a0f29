"""The state of simulated devices over time. Pure, without a clock."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
    BREAK = "break"
    MAKE = "make"
    UNMAKE = "unmake"
    REBOOT = "reboot"
    HANG = "hang"
    RESUME = "resume"
    CRASH = "crash"


OF_PLUGIN: Final = frozenset({Action.REBOOT, Action.HANG, Action.RESUME, Action.CRASH})
"""Events of the plugin, which take no devices."""
OF_PARTS: Final = frozenset({Action.STICK, Action.BREAK, Action.MAKE, Action.UNMAKE})
"""Events of parts alone."""
OF_HARDWARE: Final = frozenset({Action.UNPLUG, Action.MAKE, Action.UNMAKE, Action.REBOOT})
"""Events that change which parts there are."""
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
    times: int = 0
    """After how many failures ``FAIL`` and ``STICK`` end; 0 for never."""


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
    breaks: bool = False
    """Whether the plugin dies when it has made half of it."""
    times: int = 0
    """After how many failures ``refusal`` and ``sticking`` end; 0 for never."""

    def beside(self, whole: "Trouble") -> "Trouble":
        """Return what is wrong with a part of something that has the trouble ``whole``."""
        return replace(
            self,
            sickness=self.sickness or whole.sickness,
            wear=self.wear or whole.wear,
            unplugged=self.unplugged or whole.unplugged,
        )

    def after_failure(self) -> "Trouble":
        """Return what is left of ``refusal`` and ``sticking`` after a failure by one of them."""
        if self.times == 1:
            return replace(self, refusal="", sticking="", times=0)
        return replace(self, times=max(0, self.times - 1))

    def __str__(self) -> str:
        parts = [
            "unplugged" if self.unplugged else "",
            f"unhealthy: {self.sickness}" if self.sickness else "",
            f"degraded: {self.wear}" if self.wear else "",
            f"failing: {self.refusal}" if self.refusal else "",
            f"sticking: {self.sticking}" if self.sticking else "",
            "breaking" if self.breaks else "",
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
            for device_id in event.ids if event.action not in _ELSEWHERE else ():
                trouble = _after(troubles.pop(device_id, WELL), event)
                if trouble != WELL:
                    troubles[device_id] = trouble
        return State(troubles, hangs, crashed)

    def having(self, device_id: str, trouble: Trouble) -> "State":
        """Return this state with other trouble of a device."""
        return replace(self, troubles={**self.troubles, device_id: trouble})


_ELSEWHERE: Final = frozenset({Action.MAKE, Action.UNMAKE})
_HANGING: Final = frozenset({Action.HANG, Action.RESUME})


_WELL: Final = asdict(WELL)


def _after(trouble: Trouble, event: Event) -> Trouble:
    reason = event.reason or "simulated fault"
    changes: dict[Action, dict[str, Any]] = {
        Action.UNHEALTHY: {"sickness": reason},
        Action.DEGRADED: {"wear": reason},
        Action.FAIL: {"refusal": reason, "times": event.times},
        Action.STICK: {"sticking": reason, "times": event.times},
        Action.BREAK: {"breaks": True},
        Action.SLOW: {"delay": event.by},
        Action.RECOVER: {name: value for name, value in _WELL.items() if name != "unplugged"},
        Action.UNPLUG: {"unplugged": True},
        Action.PLUG: {"unplugged": False},
    }
    return replace(trouble, **changes[event.action])


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
        self._of_hardware: list[Event] = []

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

    def advance(self, now: float) -> bool:
        """Advance to ``now`` seconds after the start. Return whether anything happened."""
        added = [event for event in self._added if event.at <= now]
        self._added = [event for event in self._added if event.at > now]
        due = sorted([*self._due(now), *added], key=lambda event: event.at)
        if due:
            self.state = self.state.after(due)
            self._of_hardware += [one for one in due if one.action in OF_HARDWARE]
        return bool(due)

    def take(self) -> Sequence[Event]:
        """Return what has happened to the hardware since the last call."""
        taken, self._of_hardware = self._of_hardware, []
        return taken

    def add(self, event: Event) -> None:
        """Add ``event``, which happens at its time."""
        self._added.append(event)

    def _due(self, now: float) -> Iterator[Event]:
        while self._next is not None and self._next.at <= now:
            yield self._next
            self._next = next(self._events, None)
