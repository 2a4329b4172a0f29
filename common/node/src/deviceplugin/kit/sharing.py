"""Shares: several ids for one device, so that several containers can have it.

The shares of a device ``card0`` are ``card0::0``, ``card0::1`` and so on. The id of a share names
its device and not its holder: so ids never change, whatever is allocated and in which order.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from deviceplugin.errors import ConfigError
from deviceplugin.model import Device

__all__ = ["COUNT", "MOST", "Policy", "Shares", "check_count", "excess", "share_id", "shares"]

MOST: Final = 100_000
"""Most shares of a resource: the kubelet takes a list of 4 MiB, which is 41 bytes for each.

With longer ids there is room for fewer, and a list that is too long is refused when it is made.
"""
COUNT: Final[Mapping[str, Any]] = MappingProxyType({"schema": {"minimum": 1, "maximum": MOST}})
"""What a field of `Settings` that `check_count` checks has as its metadata."""

Policy: TypeAlias = Literal["spread", "packed"]
"""Which device gives the next share: the one with the fewest in use, or the one with the most."""

_Place: TypeAlias = tuple[str, ...]


def share_id(device_id: str, number: int) -> str:
    """Return the id of share ``number`` of a device; numbers begin with 0."""
    return f"{device_id}::{number}"


def shares(device: Device, count: int) -> Iterator[Device]:
    """Yield ``count`` shares of a device, which differ from it only in their ids.

    With DRA, slices have the device itself, and Kubernetes counts its shares. If ``count`` is 1,
    that is the device itself, with its own id.
    """
    if count == 1:
        yield device
        return
    for number in range(count):
        yield replace(device, id=share_id(device.id, number), share_of=device.id)


def check_count(count: int, setting: str = "shares") -> None:
    """Check the number of shares in a setting, in its class's ``__post_init__``.

    Raises:
        ConfigError: It is not 1 to ``MOST``.
    """
    if not 1 <= count <= MOST:
        raise ConfigError(f"{setting}: {count} is not a number of shares: use 1 to {MOST}")


def excess(counts: Mapping[str, int], each: int = 1) -> dict[str, str]:
    """Return why resources cannot have so many devices with ``each`` shares, by name, if any.

    Ask before shares are made: millions of them would take the node's memory first.
    """
    return {
        name: f"{name}: {total} shares have no room in the kubelet's list: use {MOST} at most"
        for name, count in counts.items()
        if (total := count * each) > MOST
    }


class Shares:
    """All shares of a resource. It chooses which of the free ones a container should get.

    ``spread`` takes each share from another device while there are any, and begins with the device
    that has the fewest in use. ``packed`` fills up the device that has the most in use, then the
    idle device with the fewest free shares that has enough. Devices can be parts of larger ones, as
    partitions of a card are. Then the same rule first chooses among the larger ones.

    It is immutable, so an RPC can use it while a new one is made.

    Args:
        places: The device of each id; or the names from the outermost device to the device itself,
            if it is a part of others. All shares must be there, allocated or not, in their order.
            Those of several resources can be, with the resource as the outermost name.
        policy: ``spread`` or ``packed``.
        distinct: Make ``packed``, too, take each share from another device while there are any.
    """

    def __init__(
        self,
        places: Mapping[str, str | Sequence[str]],
        policy: Policy = "spread",
        *,
        distinct: bool = False,
    ) -> None:
        self._order: dict[str, int] = {}
        self._ids: dict[_Place, list[str]] = {}
        for number, (one, place) in enumerate(places.items()):
            self._order[one] = number
            line = (place,) if isinstance(place, str) else tuple(place)
            self._ids.setdefault(line, []).append(one)
        self._policy: Policy = policy
        self._distinct = distinct

    def prefer(
        self, available: Iterable[Device], required: Iterable[Device], size: int
    ) -> list[Device]:
        """Return devices as ``choose`` returns ids; for a plugin's hook of the same name."""
        needed = list(required)
        known = {device.id: device for device in (*available, *needed)}
        return [known[one] for one in self.choose(known, [one.id for one in needed], size)]

    def choose(self, available: Iterable[str], required: Iterable[str], size: int) -> list[str]:
        """Return ``size`` of ``available``, with all of ``required`` among them, in their order.

        The answer is deterministic, and does not depend on the order of the arguments. If there
        are too few, it is all of them; it never has fewer than are required. An unknown id counts
        as a device of its own, and is last in the order.
        """
        needed = {*required}
        asked = needed.union(available)
        unknown = sorted(asked.difference(self._order))
        root = _Part()
        for place, ids in (*self._ids.items(), *(((one,), [one]) for one in unknown)):
            free = [one for one in ids if one in asked]
            root.add(place, [one for one in free if one not in needed], free, len(ids))
        more = min(size, len(asked)) - len(needed)
        taken = [*needed, *root.take(more, _Rule(self._policy == "spread", self._distinct))]
        last = len(self._order)
        return sorted(taken, key=lambda one: (self._order.get(one, last), one))


class _Rule(NamedTuple):
    is_spread: bool
    is_distinct: bool


@dataclass(slots=True)
class _Part:
    """A device, or what consists of devices, while its free shares are taken."""

    number: int = 0
    parts: dict[str, "_Part"] = field(default_factory=dict[str, "_Part"])
    free: list[str] = field(default_factory=list[str])
    """Shares of the device itself that can be taken, the next one last."""
    left: int = 0
    """How many shares can be taken, here and below."""
    picked: int = 0
    used: int = 0

    def add(self, place: _Place, free: Sequence[str], asked: Sequence[str], count: int) -> None:
        """Add a device with ``count`` shares, of which those ``asked`` about are not in use."""
        line: list[_Part] = [self]
        for name in place:
            parts = line[-1].parts
            line.append(parts.setdefault(name, _Part(len(parts))))
        for part in line:
            part.left += len(free)
            part.picked += len(asked) - len(free)
            part.used += count - len(asked)
        line[-1].free[:0] = reversed(free)

    def take(self, size: int, rule: _Rule) -> Iterator[str]:
        """Yield ``size`` shares, one at a time where each may be of another device."""
        while size > 0 and not rule.is_spread and (not rule.is_distinct or self.is_idle()):
            found = self.fill(rule, size, 1 if rule.is_distinct else size)
            yield from found
            size -= len(found)
        yield from islice(self.merged(rule), max(size, 0))

    def fill(self, rule: _Rule, need: int, most: int) -> list[str]:
        """Take ``most`` shares, where the container still needs ``need``."""
        found = [self.free.pop() for _ in range(min(most, len(self.free)))]
        while len(found) < most:
            rest = need - len(found)
            parts = (part for part in self.parts.values() if part.left)
            best = min(parts, key=lambda part: part.rank(rule, rest))
            found += best.fill(rule, rest, min(most - len(found), best.left))
        self.left -= len(found)
        self.picked += len(found)
        return found

    def merged(self, rule: _Rule) -> Iterator[str]:
        """Take all shares. The rank of a part only grows, and depends on what it gave itself."""
        below = heapq.merge(*(one.ranked(rule) for one in self.parts.values()), key=itemgetter(0))
        for share in chain(reversed(self.free), (share for _, share in below)):
            yield share
            self.left -= 1
            self.picked += 1

    def ranked(self, rule: _Rule) -> Iterator[tuple[tuple[int, ...], str]]:
        for share in self.merged(rule):
            yield self.rank(rule), share

    def is_idle(self) -> bool:
        """Return whether a device with free shares is not in use at all."""
        parts = self.parts.values()
        return (self.left > 0 and not self.used + self.picked) or any(map(_Part.is_idle, parts))

    def rank(self, rule: _Rule, need: int = 0) -> tuple[int, ...]:
        """Return what the least of is taken from next; equal ones are in order."""
        if rule.is_spread:
            return self.fewest(), self.picked, self.used, self.number
        again = (self.fewest(), self.picked) if rule.is_distinct else ()
        if in_use := self.used + self.picked:
            return *again, 0, -in_use, self.left, self.number
        return *again, *((1, self.left) if self.left >= need else (2, -self.left)), self.number

    def fewest(self) -> int:
        """Return the least number of shares picked from any one device in it.

        To a container, two shares of one partition are one device, and two partitions of a card are
        two. So a card counts as unused as long as nothing is picked from one of its partitions.
        """
        return min((one.fewest() for one in self.parts.values() if one.left), default=self.picked)
