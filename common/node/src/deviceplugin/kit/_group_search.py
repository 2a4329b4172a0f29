"""The best group of devices: exact if that takes little work, and a good guess otherwise.

``best_group(scores, required, size)`` takes a matrix of scores, and returns the indices of a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Final

WORK: Final = 500
"""Most partial groups that one search examines. 16 GPUs with the links of real machines take 300 at
worst. A limit on work, unlike one on time, gives the same answer each time."""

_SEEDS: Final = 16
"""Number of places from which a first guess is made."""
_EXCHANGES: Final = 8
"""Most exchanges that improve the guess."""
Square = Sequence[Sequence[int]]
"""Scores of pairs: the row and the column are the indices of two devices."""


@dataclass(frozen=True, slots=True)
class Group:
    """The result of a search."""

    members: tuple[int, ...]
    work: int
    """Number of partial groups that were examined."""
    is_best: bool
    """True if no group is better; False if that is unknown."""


def value(scores: Square, members: Sequence[int]) -> tuple[int, int]:
    """Return the value of a group, for comparison: a greater one is better.

    The first number is the sum of scores between the members. The second is the sum between all
    others, which are left for later requests.
    """
    inside = {*members}
    outside = [place for place in range(len(scores)) if place not in inside]
    return _sum(scores, members), _sum(scores, outside)


def best_group(scores: Square, required: Sequence[int], size: int) -> Group:
    """Return the best group of ``size`` that contains ``required``; of equals, the first in order.

    ``scores`` must be symmetric, not negative, and 0 on the diagonal. ``size`` must be at most the
    number of devices, and at least the number of ``required``.
    """
    search = _Search(scores, required)
    chosen = search.run(size - len(required)) if size > len(required) else []
    members = tuple(sorted([*required, *chosen]))
    return Group(members, search.work, search.is_complete)


def _sum(scores: Square, members: Sequence[int]) -> int:
    return sum(scores[a][b] for a in members for b in members if a < b)


class _Search:
    """Branch and bound over the places that are free to choose.

    One number combines both parts of a group's value. Scores inside the group have so much weight
    that the rest decides only between equals. The rest is worth more if the group has fewer links
    to it. So a member costs the sum of its scores, and a pair inside the group gets that back.
    """

    def __init__(self, scores: Square, required: Sequence[int]) -> None:
        degrees = [sum(row) for row in scores]
        weight = 2 * sum(degrees) + 4
        self.work = 0
        self.is_complete = True
        self._free = [place for place in range(len(scores)) if place not in {*required}]
        self._pairs = [[weight * scores[a][b] for b in self._free] for a in self._free]
        self._ranked: dict[int, list[list[int]]] = {}
        self._gains = [
            weight * sum(scores[a][b] for b in required) - degrees[a] for a in self._free
        ]
        self._twin = [self._first_twin(place) for place in range(len(self._free))]
        self._hopes: dict[tuple[int, int], list[int]] = {}
        self._threshold = 0
        self._found: list[int] | None = None

    def run(self, count: int) -> list[int]:
        """Return ``count`` free places."""
        seeds = range(min(len(self._free), _SEEDS))
        guess = max((self._grown(seed, count) for seed in seeds), key=self._worth)
        guess = self._exchanged(guess)
        self._threshold = self._worth(guess)
        doubled = [2 * gain for gain in self._gains]
        self._descend([], 0, count, 0, doubled)
        return [self._free[place] for place in self._found or guess]

    def _worth(self, chosen: Sequence[int]) -> int:
        """Return twice the worth of ``chosen``, so that halves of pairs are whole numbers."""
        pairs = sum(self._pairs[a][b] for a in chosen for b in chosen)
        return pairs + 2 * sum(self._gains[place] for place in chosen)

    def _first_twin(self, place: int) -> int:
        """Return an earlier place that can replace this one in any group; -1 if there is none."""
        own = self._pairs[place]
        for other in range(place - 1, -1, -1):
            row = self._pairs[other]
            if self._gains[other] == self._gains[place] and all(
                own[third] == row[third] for third in range(len(row)) if third not in {place, other}
            ):
                return other
        return -1

    def _grown(self, seed: int, count: int) -> list[int]:
        """Return ``count`` places, grown from ``seed``: each step adds the most valuable one."""
        chosen: list[int] = []
        gains = list(self._gains)
        place = seed
        while True:
            chosen.append(place)
            if len(chosen) == count:
                return sorted(chosen)
            gains = list(map(add, gains, self._pairs[place]))
            left = [one for one in range(len(gains)) if one not in chosen]
            place = max(left, key=gains.__getitem__)

    def _exchanged(self, chosen: list[int]) -> list[int]:
        """Return ``chosen`` after exchanging members one by one, while that improves it."""
        for _ in range(_EXCHANGES):
            inside = [sum(self._pairs[a][b] for b in chosen) for a in range(len(self._gains))]
            rest = [place for place in range(len(self._gains)) if place not in chosen]
            adds = [(self._gains[place] + inside[place], place) for place in rest]
            better, leaving, coming = max(
                (
                    (more - self._pairs[old][new] - self._gains[old] - inside[old], -old, -new)
                    for old in chosen
                    for more, new in adds
                ),
                default=(0, 0, 0),
            )
            if better <= 0:
                break
            chosen = sorted({*chosen, -coming} - {-leaving})
        return chosen

    def _hope(self, start: int, count: int) -> list[int]:
        """Return an upper bound of what each place from ``start`` on adds to a group of ``count``.

        It is half of its ``count - 1`` best pairs; the other members add the other half.
        """
        found = self._hopes.get((start, count))
        if found is None:
            ranked = self._ranked.get(start)
            if ranked is None:
                rows = self._pairs[start:]
                ranked = self._ranked[start] = [sorted(row[start:], reverse=True) for row in rows]
            found = self._hopes[start, count] = [sum(row[: count - 1]) for row in ranked]
        return found

    def _descend(
        self, chosen: list[int], start: int, count: int, worth: int, gains: list[int]
    ) -> None:
        """Examine the groups of ``chosen`` and ``count`` more places from ``start`` on."""
        self.work += 1
        hopes = sorted(map(add, gains[start:], self._hope(start, count)))
        bound = worth + sum(hopes[-count:])
        if bound < self._threshold or (bound == self._threshold and self._found is not None):
            return
        if count == 1:
            best = max(gains[start:])
            self._threshold = worth + best
            self._found = [*chosen, gains.index(best, start)]
            return
        for place in range(start, len(gains) - count + 1):
            if self.work >= WORK:
                self.is_complete = False
                return
            twin = self._twin[place]
            if twin < 0 or twin in chosen:
                pairs = self._pairs[place]
                more = [gain + 2 * pair for gain, pair in zip(gains, pairs, strict=True)]
                self._descend([*chosen, place], place + 1, count - 1, worth + gains[place], more)
