"""Hardware that is given out in parts: what of each profile is made, and what could be.

Pure functions, for devices of a plugin as for those in slices of anybody.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, NamedTuple

from deviceplugin.model import Device
from deviceplugin.model._part import agree

WHOLE: Final = "whole"
"""The profile of what is not a part of anything."""
PROFILES: Final = ("profile", "partitionProfile")
"""Attributes by which drivers tell parts."""
_Amounts = Mapping[Any, int]


class Piece(NamedTuple):
    """A device that is a part of hardware, or the whole of it."""

    id: str
    profile: str
    consumes: _Amounts
    groups: Sequence[str] = ()
    held: bool = False
    usable: bool = True
    """Whether it may be given out if there is room for it."""


@dataclass(slots=True)
class Profile:
    """The parts of one profile."""

    made: int = 0
    """Those that somebody has."""
    free: int = 0
    """Those for which there is room, each for itself."""
    blocked: int = 0
    """Those for which there is none, or which are not healthy."""
    possible: int = 0
    """How many more could be made together."""


Profiles = dict[str, Profile]


@dataclass(frozen=True, slots=True)
class Divided:
    """Pieces of the same hardware, with its counters."""

    left: _Amounts
    """How much of each counter nobody has."""
    profiles: Profiles
    blocked: Sequence[str]
    """The ids of pieces that nobody has or can have now."""


def profile_of(attributes: Mapping[str, object], *, on_demand: bool = True) -> str:
    """Return the profile of a device that has ``attributes``; ``WHOLE`` unless ``on_demand``."""
    found = next((str(attributes[one]) for one in PROFILES if attributes.get(one)), "part")
    return found if on_demand else WHOLE


def divide(amounts: _Amounts, pieces: Iterable[Piece]) -> Divided:
    """Return what is made and possible of each profile, where ``amounts`` are there in all.

    For those that can be made together, the pieces of a profile are tried in their order.
    """
    found, blocked, left, pieces = Profiles(), list[str](), dict(amounts), list(pieces)
    for one in (one for one in pieces if one.held):
        take(one, left)
    groups = [frozenset(one.groups) for one in pieces if one.held]
    spare: dict[str, dict[Hashable, int]] = {}
    for one in pieces:
        profile = found.setdefault(one.profile, Profile())
        if one.held:
            profile.made += 1
        elif one.usable and has_room(one, left, groups):
            profile.free += 1
            rest = spare.setdefault(one.profile, dict(left))
            if has_room(one, rest, groups):
                profile.possible += 1
                take(one, rest)
        else:
            profile.blocked += 1
            blocked.append(one.id)
    return Divided(left, found, blocked)


def of_devices(
    devices: Iterable[Device], held: Collection[str], made: Mapping[str, str]
) -> dict[str, Divided]:
    """Return the hardware that ``devices`` are made of, by the name of its counters.

    ``held`` has the ids of those that somebody has, ``made`` those of parts that claims have.
    """
    amounts, pieces = dict[str, _Amounts](), dict[str, list[Piece]]()
    for one in devices:
        if part := one.part:
            profile = profile_of(one.attributes, on_demand=part.on_demand)
            is_held = one.id in held or one.id in made
            piece = Piece(one.id, profile, part.consumes, part.groups, is_held, bool(one.health))
            pieces.setdefault(name := part.of.name, []).append(piece)
            if name not in amounts or one.health:  # what has vanished knows no news
                amounts[name] = part.of.amounts
    return {name: divide(amounts[name], found) for name, found in pieces.items()}


def has_room(one: Piece, left: _Amounts, groups: Sequence[frozenset[str]]) -> bool:
    """Return whether ``left`` suffices, and others of the hardware, of ``groups``, allow it."""
    is_allowed = agree([frozenset(one.groups), *groups])
    return is_allowed and all(much <= left.get(name, 0) for name, much in one.consumes.items())


def take(one: Piece, left: dict[Any, int]) -> None:
    """Deduct what ``one`` takes from ``left``."""
    for name, amount in one.consumes.items():
        left[name] = max(0, left.get(name, 0) - amount)


def total(hardware: Iterable[Divided | Profiles]) -> Profiles:
    """Return the numbers of each profile on all ``hardware``."""
    sums = Profiles()
    for each in hardware:
        for name, one in (each.profiles if isinstance(each, Divided) else each).items():
            before = sums.get(name, Profile())
            sums[name] = Profile(*map(sum, zip(astuple(before), astuple(one), strict=True)))
    return sums


def listed(profiles: Mapping[str, Profile]) -> str:
    """Return ``profiles`` in one line, for people."""
    return "; ".join(
        f"{name}: {one.made} {'held' if name == WHOLE else 'made'}, {one.possible} possible"
        for name, one in profiles.items()
    )
