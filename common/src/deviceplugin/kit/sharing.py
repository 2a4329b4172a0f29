"""Several ids for one device, so that several containers have it, and which of them go to whom.

The shares of a device ``card0`` are ``card0::0``, ``card0::1`` and so on. A share says which device
it is of, not who has it: ids stay what they are, whatever is given out and in which order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from deviceplugin.model import Device

__all__ = ["Policy", "Shares", "share_id", "shares"]

Policy: TypeAlias = Literal["spread", "packed"]
"""Who gets the next share: the device that has given fewest away, or the one that has most."""

_Place: TypeAlias = tuple[str, ...]


def share_id(device_id: str, number: int) -> str:
    """Return the id of a share of a device, by its number from 0."""
    return f"{device_id}::{number}"


def shares(device: Device, count: int) -> Iterator[Device]:
    """Yield ``count`` shares of a device, each with all that the device has but the id.

    One share is the device itself, under its own id. Health and topology are those of the device.
    """
    if count == 1:
        yield device
        return
    for number in range(count):
        yield replace(device, id=share_id(device.id, number))


class Shares:
    """All shares of a resource, and which of the free ones a container should get.

    ``spread`` takes each from another device as long as there are any, beginning with those of
    which fewest are used. ``packed`` fills up the device of which most are used, then the idle one
    with the fewest free that has enough. Devices can be parts of others in turn, as partitions of a
    card are: then the others are chosen by the same rule first, of those that have such a device.

    Never changes, so it can be asked in an RPC while a new one is made.

    Args:
        places: What each id is of: the device, or the names of what it is part of from the
            outermost to the device. All that there are, given out or not, in their order.
        policy: ``spread`` or ``packed``.
        distinct: Have ``packed`` take each from another device too, as long as there are any.
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
        """Return what ``choose`` does, of devices: for a plugin's hook of the same name."""
        needed = list(required)
        known = {device.id: device for device in (*available, *needed)}
        return [known[one] for one in self.choose(known, [one.id for one in needed], size)]

    def choose(self, available: Iterable[str], required: Iterable[str], size: int) -> list[str]:
        """Return ``size`` of ``available``, with all of ``required`` among them, in their order.

        Always the same for the same question, whatever its order. Where there are too few it is
        all, and never fewer than are required. An id that nothing is known of is of a device of
        its own; it is last in the order.
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
        """Return how many are picked of the device in ``place`` of which it is fewest.

        Two shares of one partition are one device to a container, and two partitions of a card are
        two: so no card is passed over that has a partition of which nothing is picked.
        """
        parts = [one for one in self._below.get(place, ()) if self._left[one] > 0]
        if not parts or parts[0] not in self._below:
            return self._picked[place]
        return min(map(self._fewest, parts))


def _line(place: _Place) -> list[_Place]:
    """Return the places from the outermost to this one."""
    return [place[: depth + 1] for depth in range(len(place))]
