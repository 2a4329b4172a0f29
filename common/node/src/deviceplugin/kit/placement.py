"""Choosing devices that are near to each other, by scores from the plugin.

``choose`` is for independent devices, such as GPUs with links between them. ``choose_by_parent``
is for parts of larger devices, such as partitions of GPUs: it takes them from as few larger devices
as possible, and from ones that are near to each other. Both are deterministic and examine a bounded
number of groups, so an RPC may call them.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final, Generic, TypeVar

from deviceplugin.kit._group_search import WORK, Group, best_group, value

__all__ = ["WORK", "Group", "best_group", "choose", "choose_by_parent", "square", "value"]

T = TypeVar("T", bound=Hashable)
P = TypeVar("P", bound=Hashable)

_SEEDS: Final = 16
"""Number of parents from which a set of parents is grown."""


def square(things: Sequence[T], score: Callable[[T, T], int]) -> list[list[int]]:
    """Return the scores of all pairs as a matrix, with 0 on the diagonal."""
    return [[0 if a == b else score(a, b) for b in things] for a in things]


def choose(
    available: Sequence[T], required: Collection[T], size: int, score: Callable[[T, T], int]
) -> list[T]:
    """Return the ``size`` that are nearest to each other, in the order of ``available``.

    That is the group with the greatest sum of scores between its members. Between equal groups, the
    one that leaves the greatest sum for later requests wins, and then the first. The answer is
    exact for 16 devices with the links of real machines, and good for more. If there are too few,
    it is all of them; it never has fewer than are required.

    Args:
        available: The free devices, in the order that decides between equals.
        required: Devices that must be in the answer.
        size: How many to return.
        score: How near two devices are, from 0, the same in both orders. If a plugin has distances,
            use the greatest distance minus the distance.
    """
    things = _things(available, required)
    size = min(max(size, len({*required})), len(things))
    places = [place for place, thing in enumerate(things) if thing in {*required}]
    return [things[place] for place in best_group(square(things, score), places, size).members]


def choose_by_parent(
    available: Sequence[T],
    required: Collection[T],
    size: int,
    *,
    parent: Callable[[T], P],
    score: Callable[[P, P], int],
) -> list[T]:
    """Return ``size`` from as few parents as possible, in the order of ``available``.

    If one parent has enough, the answer is from one: the one with the fewest free, so that whole
    parents stay whole. Otherwise it is from the fewest parents that have enough: those nearest to
    each other, and between equals those with the fewest free. The parents of ``required`` count as
    chosen: the rest is from them, or from parents near to them.

    The number of parents is always the least possible. Nearness is a good guess, made by growing a
    set from each of 16 parents. It is exact if parents are near in groups, such as NUMA nodes and
    hives. ``parent`` returns the larger device that a device is part of, and ``score`` how near two
    of these are. The rest is as for ``choose``.
    """
    things = _things(available, required)
    needed = {*required}
    size = min(max(size, len(needed)), len(things))
    free: dict[P, list[T]] = {}
    for thing in things:
        if thing not in needed:
            free.setdefault(parent(thing), []).append(thing)
    taken = list(dict.fromkeys(parent(thing) for thing in things if thing in needed))
    need = size - len(needed)
    capacity = {one: len(stock) for one, stock in free.items()}
    parents = [*taken, *_further(taken, capacity, need, score)]
    chosen = needed.union(_filled([free[one] for one in parents if one in free], need))
    return [thing for thing in things if thing in chosen]


def _things(available: Sequence[T], required: Collection[T]) -> list[T]:
    return list(dict.fromkeys([*available, *required]))


def _filled(stocks: list[list[T]], need: int) -> list[T]:
    """Return ``need`` items of ``stocks``: all of the largest, and the rest of the best fit."""
    found: list[T] = []
    while len(found) < need:
        missing = need - len(found)
        enough = [stock for stock in stocks if len(stock) >= missing]
        stock = min(enough, key=len) if enough else max(stocks, key=len)
        found += stock[:missing]
        stocks = [one for one in stocks if one is not stock]
    return found


def _further(
    taken: list[P], capacity: dict[P, int], need: int, score: Callable[[P, P], int]
) -> list[P]:
    """Return the fewest parents that, together with ``taken``, have ``need`` free."""
    need -= sum(capacity.get(one, 0) for one in taken)
    others = {one: count for one, count in capacity.items() if one not in taken}
    count, sizes = 0, sorted(others.values(), reverse=True)
    while sum(sizes[:count]) < need:
        count += 1
    if not count:
        return []
    return _Parents(taken, others, need, count, score).nearest()


class _Parents(Generic[P]):
    """Sets of ``count`` parents that together have ``need`` free and are near to ``taken``."""

    def __init__(
        self,
        taken: list[P],
        capacity: dict[P, int],
        need: int,
        count: int,
        score: Callable[[P, P], int],
    ) -> None:
        self._need = need
        self._count = count
        self._names = list(capacity)
        self._sizes = list(capacity.values())
        self._scores = square(self._names, score)
        self._near = [sum(score(one, other) for other in taken) for one in self._names]

    def nearest(self) -> list[P]:
        """Return the best of the grown sets."""
        seeds = [one for one in self._able([], self._need) if one < _SEEDS]
        grown = [self._grown([]), *(self._grown([seed]) for seed in seeds)]
        return [self._names[place] for place in max(grown, key=self._worth)]

    def _grown(self, chosen: list[int]) -> list[int]:
        """Return a set grown from ``chosen``: each step adds the nearest possible parent."""
        chosen = list(chosen)
        missing = self._need - sum(self._sizes[place] for place in chosen)
        while len(chosen) < self._count:
            rows = (self._scores[place] for place in chosen)
            near = [sum(column) for column in zip(self._near, *rows, strict=True)]
            able = self._able(chosen, missing)
            place = max(able, key=lambda one: (near[one], -self._sizes[one], -one))
            chosen.append(place)
            missing -= self._sizes[place]
        return sorted(chosen)

    def _able(self, chosen: list[int], missing: int) -> list[int]:
        """Return the parents that can be next, so that the set can still get enough."""
        left = [place for place in range(len(self._names)) if place not in chosen]
        sizes = sorted((self._sizes[place] for place in left), reverse=True)
        others = sum(sizes[: self._count - len(chosen) - 1])
        return [place for place in left if self._sizes[place] + others >= missing]

    def _worth(self, chosen: list[int]) -> tuple[int, int, list[int]]:
        inside = sum(self._scores[a][b] for a in chosen for b in chosen if a < b)
        near = sum(self._near[place] for place in chosen)
        free = sum(self._sizes[place] for place in chosen)
        return inside + near, -free, [-place for place in chosen]
