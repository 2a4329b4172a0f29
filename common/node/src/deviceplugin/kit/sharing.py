"""Shares: several ids for one device, so that several containers can have it.

The shares of a device ``card0`` are ``card0::0``, ``card0::1`` and so on. The id of a share names
its device and not its holder: so ids never change, whatever is allocated and in which order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from deviceplugin.errors import ConfigError
from deviceplugin.model import Device

__all__ = ["COUNT", "MOST", "Policy", "Shares", "check_count", "share_id", "shares"]

MOST: Final = 1000
"""Most shares of a device that a setting may ask for."""
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
        self._places = {
            one: (place, one) if isinstance(place, str) else (*place, one)
            for one, place in places.items()
        }
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
        free = [one for one in self._places if one in asked]
        free += sorted(asked.difference(free))
        question = _Question(self._places, free, self._policy, distinct=self._distinct)
        taken = question.take(needed, min(max(size, len(needed)), len(free)))
        return [one for one in free if one in taken]


class _Question:
    """The shares that are free, taken one after the other."""

    def __init__(
        self, places: Mapping[str, _Place], free: Sequence[str], policy: Policy, *, distinct: bool
    ) -> None:
        self._policy = policy
        self._distinct = distinct
        self._places = {one: places.get(one, (one,)) for one in free}
        self._below: dict[_Place, dict[_Place, None]] = {}
        self._used: Counter[_Place] = Counter()
        self._left: Counter[_Place] = Counter()
        self._picked: Counter[_Place] = Counter()
        for place in {**self._places, **places}.values():
            self._used.update(_line(place))
        for place in self._places.values():
            self._left.update(_line(place))
            for one in _line(place):
                self._below.setdefault(one[:-1], {})[one] = None
        self._used.subtract(self._left)

    def take(self, required: set[str], size: int) -> set[str]:
        """Return ``size`` ids, ``required`` among them."""
        taken = set(required)
        for one in taken:
            self._pick(one)
        while len(taken) < size:
            one = self._next(size - len(taken))
            self._pick(one)
            taken.add(one)
        return taken

    def _pick(self, one: str) -> None:
        line = _line(self._places[one])
        self._left.subtract(line)
        self._picked.update(line)

    def _next(self, need: int, place: _Place = ()) -> str:
        while place in self._below:
            free = (one for one in self._below[place] if self._left[one] > 0)
            place = min(free, key=lambda one: self._rank(one, need))
        return place[-1]

    def _rank(self, place: _Place, need: int) -> tuple[int, ...]:
        picked, used, left = self._picked[place], self._used[place], self._left[place]
        if self._policy == "spread":
            return self._fewest(place), picked, used
        again = (self._fewest(place), picked) if self._distinct else ()
        if used + picked > 0:
            return *again, 0, -used - picked, left
        return (*again, 1, left) if left >= need else (*again, 2, -left)

    def _fewest(self, place: _Place) -> int:
        """Return the least number of shares picked from any one device in ``place``.

        To a container, two shares of one partition are one device, and two partitions of a card are
        two. So a card counts as unused as long as nothing is picked from one of its partitions.
        """
        parts = [one for one in self._below.get(place, ()) if self._left[one] > 0]
        if not parts or parts[0] not in self._below:
            return self._picked[place]
        return min(map(self._fewest, parts))


def _line(place: _Place) -> list[_Place]:
    """Return the places from the outermost to this one."""
    return [place[: depth + 1] for depth in range(len(place))]
