"""Which parts can be made of a GPU, what each takes of it, and which of them exist."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import deviceplugin as dp
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.nvml.instances import Instance, Profile
from deviceplugin_gpu.snapshot import Gpu

Made = Collection[tuple[str, str]]
"""Ids and identities of parts that claims have. One that was made again may be there twice."""

_NAMES: Final = {
    "copy": "copy-engines",
    "decoder": "decoders",
    "encoder": "encoders",
    "jpeg": "jpeg-engines",
    "ofa": "ofa-engines",
}
_MOST: Final = 24
"""Memory slices: a set has 32 counters. GPUs of today have 8."""


class Part(NamedTuple):
    """A GPU instance at one place, made or not."""

    unit: Unit
    profile: Profile
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of one GPU."""

    profiles: tuple[Profile, ...] = ()
    instances: tuple[Instance, ...] = ()
    reason: str = ""
    """Why no part of it is offered; empty if all are."""
    problem: str = ""
    """What is wrong, and not only that the settings or the model are not for it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of one GPU that are offered or made."""

    counters: dp.Counters
    parts: Mapping[str, Part]
    """By id."""
    takes: Mapping[str, Mapping[str, int]]
    """What each takes of the counters, by id."""
    total: Mapping[str, int]
    """What the whole GPU has of each."""
    own: frozenset[int] = frozenset()
    """The GPU instances that claims have."""
    unfinished: frozenset[tuple[int, int]] = frozenset()
    """The places in which something is being made."""
    gone: Mapping[str, str] = field(default_factory=dict)
    """The identities of parts that were made and are there no longer, by id."""


def part_id(gpu: str, profile: Profile, place: tuple[int, int]) -> str:
    """Return the id that always means this place. It has at most 63 characters."""
    return f"{gpu}/{profile.mig.profile}@{place[0]}"


def gpu_of(device_id: str) -> str:
    """Return the UUID of the GPU of a part."""
    return device_id.partition("/")[0]


def own_of(gpu: Gpu, made: Made) -> list[tuple[str, str]]:
    """Return those of ``made`` that are parts of ``gpu``."""
    return [pair for pair in made if gpu_of(pair[0]) == gpu.uuid]


def parts_of(gpu: Gpu, resource: str, profiles: Iterable[Profile]) -> dict[str, Part]:
    """Return all parts that a GPU can have, by id."""
    bare, found = replace(gpu, migs=(), mig_enabled=True), {}
    for profile in profiles:
        for place in profile.places if profile.mig.profile else ():
            one = part_id(gpu.uuid, profile, place)
            mig = replace(profile.mig, uuid=one, placement=place)
            found[one] = Part(Unit(resource, bare, mig), profile, place)
    return found


def owned(
    parts: Mapping[str, Part], instances: Sequence[Instance], migs: Mapping[str, int], made: Made
) -> dict[str, Instance]:
    """Return the instances of parts that are ``made``, by id.

    ``migs`` has the instance of each MIG device by its UUID. An instance is a part's if it is in
    its place, with its MIG device, or without any, or if the part's identity is not known yet. The
    UUID alone is not enough: a driver may compute it of the numbers of instances.
    """
    used, found = {*migs.values()}, {}
    for one, identity in made:
        for instance in instances if one in parts else ():
            part = parts[one]
            is_its = not identity or instance.id not in used or migs.get(identity) == instance.id
            if is_its and (part.profile.id, part.place) == (instance.profile, instance.place):
                found[one] = instance
    return found


def plan(
    gpu: Gpu, resource: str, read: Reading, made: Made, lasting: Made, begun: Collection[str]
) -> Plan:
    """Return the parts of a GPU: all, or only those that are ``made`` if none is offered.

    ``lasting`` have been made since before ``gpu`` was read, so that they should be there. Of those
    without an identity, only ``begun`` can have something.
    """
    parts = parts_of(gpu, resource, read.profiles)
    migs = {mig.uuid: mig.gpu_instance for mig in gpu.migs}
    own = owned(parts, read.instances, migs, [pair for pair in made if pair[1] or pair[0] in begun])
    foreign = [one for one in read.instances if one not in own.values()]
    total = _total(read.profiles)
    takes = {one: _takes(part.profile, part.place) for one, part in parts.items()}
    wanted = {one for one, _ in made}
    amounts = _less(total, foreign, read.profiles, [takes[one] for one in wanted & takes.keys()])
    shown = {one: part for one, part in parts.items() if not read.reason or one in wanted}
    judged = () if gpu.problem or read.problem else lasting
    gone = {one: uuid for one, uuid in judged if uuid and (uuid not in migs or one not in own)}
    return Plan(
        dp.Counters(gpu.uuid, amounts),
        shown,
        {one: takes[one] for one in shown},
        total,
        frozenset(one.id for one in own.values()),
        frozenset(parts[one].place for one, uuid in made if not uuid and one in parts),
        gone,
    )


def too_many(profiles: Iterable[Profile]) -> bool:
    """Return whether a GPU has more memory slices than counters can be published for."""
    return any(sum(place) > _MOST for profile in profiles for place in profile.places)


def _slices(place: tuple[int, int]) -> dict[str, int]:
    start, count = place
    return {f"memory-slice-{number}": 1 for number in range(start, start + count)}


def _takes(profile: Profile, place: tuple[int, int]) -> dict[str, int]:
    """Return what an instance takes. Places that overlap have a memory slice in common."""
    found = {_NAMES[kind]: count for kind, count in profile.mig.engines.items()}
    found["multiprocessors"] = profile.mig.multiprocessors
    if profile.most < _fitting(profile.places):
        found[profile.mig.profile] = 1  # such as +me
    return {name: amount for name, amount in {**_slices(place), **found}.items() if amount}


def _fitting(places: Iterable[tuple[int, int]]) -> int:
    """Return how many of these places do not overlap."""
    count = end = 0
    for start, size in sorted(places):
        if start >= end:
            count, end = count + 1, start + size
    return count


def _total(profiles: Iterable[Profile]) -> dict[str, int]:
    """Return what a GPU has: the most that one profile takes, as the largest takes everything."""
    found: dict[str, int] = {}
    for profile in profiles:
        for place in profile.places:
            for name, amount in _takes(profile, place).items():
                most = profile.most if name == profile.mig.profile else amount
                found[name] = max(found.get(name, 0), most)
    return found


def _less(
    total: Mapping[str, int],
    foreign: Iterable[Instance],
    profiles: Iterable[Profile],
    held: Iterable[Mapping[str, int]],
) -> dict[str, int]:
    """Return what others leave of ``total``, and at least what claims have.

    The scheduler allocates nothing of a whole pool in which a counter is exceeded.
    """
    known, left = {profile.id: profile for profile in profiles}, dict(total)
    needed = dict.fromkeys(total, 0)
    for instance in foreign:
        profile = known.get(instance.profile)
        taken = _takes(profile, instance.place) if profile else _slices(instance.place)
        for name in taken.keys() & left.keys():
            left[name] -= taken[name]
    for takes in held:
        for name, amount in takes.items():
            needed[name] += amount
    return {name: max(amount, needed[name], 0) for name, amount in left.items()}
