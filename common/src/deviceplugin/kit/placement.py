"""Which of the free devices go together best, by numbers that a plugin has for them.

``choose`` is for devices that stand each for itself, such as GPUs with links between them.
``choose_by_parent`` is for parts of larger ones, such as partitions of GPUs: it takes parts of as
few as can be, and these near to each other. Both always give the same answer to the same question,
and look at a bounded number of groups: they may be called in an RPC.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final, Generic, TypeVar

from deviceplugin.kit._group_search import WORK, Group, best_group, value

__all__ = ["WORK", "Group", "best_group", "choose", "choose_by_parent", "square", "value"]

T = TypeVar("T", bound=Hashable)
P = TypeVar("P", bound=Hashable)

_SEEDS: Final = 16
"""Parents from which a set of parents is grown."""


def square(things: Sequence[T], score: Callable[[T, T], int]) -> list[list[int]]:
    """Return the scores of all pairs, with nothing on the diagonal."""
    return [[0 if a == b else score(a, b) for b in things] for a in things]


def choose(
    available: Sequence[T],
    required: Collection[T],
    size: int,
    score: Callable[[T, T], int],
) -> list[T]:
    """Return the ``size`` that are nearest to each other, in the order of ``available``.

    That is the group with the greatest sum of scores between its members; of equals the one that
    leaves most to later requests, and then the first. Exact for 16 devices with links as machines
    have them, and good beyond. Where there are too few, it is all; never fewer than are required.

    Args:
        available: What is free, in the order that decides between equals.
        required: What is in the answer anyway.
        size: How many.
        score: How near two are, the same in both orders, from 0. Where a plugin has distances, it
            is the greatest of them less the distance.
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
    """Return ``size`` that are of as few parents as can be, in the order of ``available``.

    What one parent can give is taken from one, from that with the fewest free, so that whole ones
    stay whole. What needs several is of the fewest that have enough; of these the ones that are
    nearest to each other, and of equals the ones with the fewest free. The parents of ``required``
    count as taken: the rest is of them, or near to them.

    The number of parents is exact. How near they are is as good as growing a set from each of 16
    gives: exact where nearness comes in groups, such as NUMA nodes and hives.

    Args:
        available: What is free, in the order that decides between equals.
        required: What is in the answer anyway.
        size: How many.
        parent: What a device is part of.
        score: How near two parents are, the same in both orders, from 0.
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
    """Return ``need`` of what is in ``stocks``: all of the largest, and the rest where it fits."""
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
    """Return the fewest parents that give ``need`` together with those that are taken."""
    need -= sum(capacity.get(one, 0) for one in taken)
    others = {one: count for one, count in capacity.items() if one not in taken}
    count, sizes = 0, sorted(others.values(), reverse=True)
    while sum(sizes[:count]) < need:
        count += 1
    if not count:
        return []
    return _Parents(taken, others, need, count, score).nearest()


class _Parents(Generic[P]):
    """Sets of ``count`` parents that have ``need`` free together, near to those that are taken."""

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
        """Return the best of the sets that are grown."""
        seeds = [one for one in self._able([], self._need) if one < _SEEDS]
        grown = [self._grown([]), *(self._grown([seed]) for seed in seeds)]
        return [self._names[place] for place in max(grown, key=self._worth)]

    def _grown(self, chosen: list[int]) -> list[int]:
        """Return a set grown from ``chosen``, each time by the nearest that can be in it."""
        chosen = list(chosen)
        missing = self._need - sum(self._sizes[place] for place in chosen)
        while len(chosen) < self._count:
            near = self._nearness(chosen)
            able = self._able(chosen, missing)
            place = max(able, key=lambda one: (near[one], -self._sizes[one], -one))
            chosen.append(place)
            missing -= self._sizes[place]
        return sorted(chosen)

    def _able(self, chosen: list[int], missing: int) -> list[int]:
        """Return who can be next, so that the set still comes to have enough."""
        left = [place for place in range(len(self._names)) if place not in chosen]
        sizes = sorted((self._sizes[place] for place in left), reverse=True)
        others = sum(sizes[: self._count - len(chosen) - 1])
        return [place for place in left if self._sizes[place] + others >= missing]

    def _nearness(self, chosen: list[int]) -> list[int]:
        rows = (self._scores[place] for place in chosen)
        return [sum(column) for column in zip(self._near, *rows, strict=True)]

    def _worth(self, chosen: list[int]) -> tuple[int, int, list[int]]:
        inside = sum(self._scores[a][b] for a in chosen for b in chosen if a < b)
        near = sum(self._near[place] for place in chosen)
        free = sum(self._sizes[place] for place in chosen)
        return inside + near, -free, [-place for place in chosen]
