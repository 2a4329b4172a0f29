"""The key ``parts`` of a resource: what can be made of each of its devices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import configuration as cfg

_MOST_COUNTERS: Final = 32
"""Of one device, by the API of slices."""
_MOST_AMOUNT: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A kind of parts."""

    consumes: Mapping[str, int] = field(default_factory=dict)
    """Of the counters."""
    placements: Sequence[int] = ()
    """The first slot of each place that a part can have; without them, it can be anywhere."""
    size: int = 1
    """Slots that a part takes, if there are placements."""
    groups: Sequence[str] = ()
    """Only parts that share one of these are there at the same time."""


@dataclass(frozen=True, kw_only=True)
class Division:
    """What can be made of one device; ValueError says what cannot be as it is given."""

    counters: Mapping[str, int]
    profiles: Mapping[str, Profile]
    whole: bool = True
    """Whether the device is also given out as it is."""

    def __post_init__(self) -> None:
        if problems := [*self._problems()]:
            raise ValueError("; ".join(problems))

    def _problems(self) -> Iterator[str]:
        for name, profile in self.profiles.items():
            yield from (f"profiles.{name}{one}" for one in self._problems_of(profile))
        if (counters := len(self.amounts)) > _MOST_COUNTERS:
            yield f"{counters} counters and slots of placements are more than {_MOST_COUNTERS}"

    def _problems_of(self, profile: Profile) -> Iterator[str]:
        for counter, amount in profile.consumes.items():
            if counter not in self.counters:
                suggestion = cfg.suggestion(counter, list(self.counters))
                yield f".consumes: {counter!r} is not a counter: {suggestion}"
            elif amount > self.counters[counter]:
                yield f".consumes.{counter}: {amount} is more than {self.counters[counter]}"
        if len({*profile.placements}) < len(profile.placements):
            yield ".placements: one is given twice"
        if profile.size > 1 and not profile.placements:
            yield f".size: {profile.size} is for placements: add them"
        if not (profile.consumes or profile.placements):
            yield ": has neither consumes nor placements, so there could be any number"

    @property
    def count(self) -> int:
        """How many parts are listed for a device, of which not all can be there at once."""
        return sum(len(self.places(name)) for name in self.profiles)

    @property
    def amounts(self) -> Mapping[str, int]:
        """All there is for parts: the counters, and each slot once."""
        all_ = self.profiles.values()
        slots = max((start + one.size for one in all_ for start in one.placements), default=0)
        return {**self.counters, **{_slot(number): 1 for number in range(slots)}}

    def places(self, name: str) -> range | Sequence[int]:
        """Return the placements of a profile, or as many numbers as there is room for parts."""
        profile = self.profiles[name]
        if profile.placements:
            return profile.placements
        return range(min(self.counters[one] // amount for one, amount in profile.consumes.items()))

    def parts(self, of: dp.Counters) -> Iterator[tuple[dp.Part, str, int]]:
        """Yield each part that can be made of a device, with profile and placement."""
        for name, profile in self.profiles.items():
            size = profile.size if profile.placements else 0
            for start in self.places(name):
                slots = {_slot(number): 1 for number in range(start, start + size)}
                yield dp.Part(of, {**profile.consumes, **slots}, profile.groups), name, start


def _slot(number: int) -> str:
    return f"slot-{number}"


def _counter_problem(name: str) -> str:
    if not cfg.matches(name, r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"):
        return "is not the name of a counter, such as memory"
    return "names of slots are made for placements" if name.startswith(_slot(0)[:-1]) else ""


def _profile_problem(name: str) -> str:
    fits = cfg.matches(name, r"^[a-z0-9]([-.a-z0-9]{0,30}[a-z0-9])?$") and name != "whole"
    return "" if fits else "is not the name of a profile of parts, such as 1g.10gb"


_AMOUNT: Final = cfg.integer(1, _MOST_AMOUNT)
_PROFILE: Final = cfg.record(
    Profile,
    {
        "consumes": cfg.mapping_of(_AMOUNT),
        "placements": cfg.list_of(cfg.integer(0, _MOST_COUNTERS - 1), single=True),
        "size": cfg.integer(1, _MOST_COUNTERS),
        "groups": cfg.list_of(cfg.name(), single=True),
    },
)
DIVISION: Final = cfg.record(
    Division,
    {
        "counters": cfg.needed(cfg.mapping_of(_AMOUNT, _counter_problem)),
        "profiles": cfg.needed(cfg.mapping_of(_PROFILE, _profile_problem, 1)),
        "whole": cfg.boolean(),
    },
)
"""The key ``parts`` of a resource."""
