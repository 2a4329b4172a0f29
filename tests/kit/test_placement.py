"""The best group of a few, and of parts of a few: by links, by parents, by distance."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.kit import _group_search
from deviceplugin.kit.placement import WORK, best_group, choose, choose_by_parent, value

squares = st.integers(1, 9).flatmap(
    lambda count: st.lists(
        st.lists(st.sampled_from([0, 10, 20, 50, 110, 420]), min_size=count, max_size=count),
        min_size=count,
        max_size=count,
    )
)


def symmetric(numbers: list[list[int]]) -> list[list[int]]:
    places = range(len(numbers))
    return [[0 if a == b else numbers[max(a, b)][min(a, b)] for b in places] for a in places]


@settings(max_examples=40, deadline=None)
@given(squares, st.data())
def test_every_group_is_the_first_of_the_best_ones(
    numbers: list[list[int]], data: st.DataObject
) -> None:
    scores = symmetric(numbers)
    places = range(len(scores))
    size = data.draw(st.integers(1, len(scores)))
    required = data.draw(st.lists(st.sampled_from(places), max_size=size, unique=True))
    groups = [group for group in itertools.combinations(places, size) if {*required} <= {*group}]
    best = max(groups, key=lambda group: value(scores, group))  # the first of equals
    found = best_group(scores, required, size)
    assert best == found.members
    assert found.is_best


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 28), st.data())
def test_where_there_is_too_much_to_search_the_answer_is_valid_and_good(
    seed: int, count: int, data: st.DataObject
) -> None:
    draw = random.Random(seed)
    numbers = [[draw.choice([10, 20, 50, 150, 250]) for _ in range(count)] for _ in range(count)]
    scores = symmetric(numbers)
    size = data.draw(st.integers(1, count))
    found = best_group(scores, [], size)
    assert size == len({*found.members})
    assert WORK >= found.work
    assert found == best_group(scores, [], size)
    others = [draw.sample(range(count), size) for _ in range(100)]
    assert value(scores, found.members) >= max(value(scores, other) for other in others)


def test_of_many_that_are_alike_only_the_first_are_looked_at() -> None:
    alike = [[0 if a == b else 10 for b in range(12)] for a in range(12)]
    found = best_group(alike, [], 6)
    assert ((0, 1, 2, 3, 4, 5), True) == (found.members, found.is_best)
    assert 20 > found.work


def test_a_guess_is_made_better_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(2)
    scores = symmetric([[draw.choice([10, 50, 250]) for _ in range(28)] for _ in range(28)])
    best = value(scores, best_group(scores, [], 12).members)
    monkeypatch.setattr(_group_search, "_EXCHANGES", 0)
    assert best >= value(scores, best_group(scores, [], 12).members)


# Devices that stand each for itself.


def test_what_is_nearest_to_each_other_is_chosen_in_the_order_that_was_given() -> None:
    linked = {frozenset("ad"), frozenset("bc")}

    def score(one: str, other: str) -> int:
        return 10 if {one, other} in linked else 0

    assert ["d", "a"] == choose("cda", (), 2, score)
    assert ["c", "b"] == choose("cdab", ["b"], 2, score)


def test_what_cannot_be_had_is_answered_as_far_as_it_can() -> None:
    assert ["a", "b"] == choose(["a"], ["b"], 5, lambda *_: 1)
    assert ["a", "b"] == choose(["a"], ["a", "b"], 1, lambda *_: 1)
    assert [] == choose([], [], 3, lambda *_: 1)


# Parts, and the parents that they are of.

Machine = Mapping[int, tuple[int, int]]
"""Card and NUMA node of each part, by number."""


def machine(cards: int, parts: int, *, first: int = 2, numa: int = 4, short: int = 0) -> Machine:
    """Return ``cards`` cards with ``parts`` parts each, the last with ``short`` fewer."""
    number = itertools.count(first)
    return {
        next(number): (card, card // numa)
        for card in range(cards)
        for _ in range(parts - (short if card == cards - 1 else 0))
    }


CPX = machine(8, 8, short=1)  # the recorded MI300X: 63 partitions, 2 to 64
MI308 = machine(8, 4)
MI210 = machine(8, 1)  # two hives, which are the NUMA nodes


def parts(
    node: Machine, size: int, free: list[int] | None = None, required: tuple[int, ...] = ()
) -> list[int]:
    """Return what is chosen, where cards are near that are on one NUMA node."""
    numa = dict(node.values())
    return choose_by_parent(
        list(node) if free is None else free,
        required,
        size,
        parent=lambda number: node[number][0],
        score=lambda one, other: 20 if numa[one] == numa[other] else 10,
    )


@pytest.mark.parametrize(
    ("node", "size", "free", "required", "expected"),
    [
        (MI210, 2, [2, 3, 6, 7], (), [2, 3]),
        (MI210, 3, [2, 6, 7, 8], (), [6, 7, 8]),
        (MI210, 2, [2, 6, 9], (2,), [2, 6]),
        (MI210, 4, None, (), [2, 3, 4, 5]),
        (CPX, 7, None, (), [*range(58, 65)]),
        (CPX, 8, None, (), [*range(2, 10)]),
        (CPX, 3, [*range(7, 10), *range(13, 18), *range(18, 58)], (), [7, 8, 9]),
        (CPX, 3, None, (45,), [42, 43, 45]),
        # The first card has one part left, and so completes the group.
        (MI308, 5, [*range(5, 34)], (), [5, 6, 7, 8, 9]),
        (MI308, 3, [*range(2, 8)], (2, 6), [2, 6, 7]),
        # Parts that are not there are not chosen.
        (MI308, 9, [2, 3], (), [2, 3]),
        (MI308, 1, [], (2,), [2]),
        (MI308, 0, None, (), []),
    ],
)
def test_the_recorded_questions_have_amds_answers(
    node: Machine, size: int, free: list[int] | None, required: tuple[int, ...], expected: list[int]
) -> None:
    assert expected == parts(node, size, free, required)


@pytest.mark.parametrize(
    ("node", "size", "required"),
    [*((CPX, size, ()) for size in (9, 16, 24, 31)), (MI308, 6, (32,))],
)
def test_a_request_that_spans_cards_stays_on_one_numa_node(
    node: Machine, size: int, required: tuple[int, ...]
) -> None:
    chosen = parts(node, size, required=required)
    most = max(Counter(card for card, _ in node.values()).values())
    cards = {node[number][0] for number in chosen}
    assert (size, -(-size // most)) == (len(chosen), len(cards))
    assert 1 == len({node[number][1] for number in chosen})


stocks = st.lists(st.integers(1, 5), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(stocks, st.data())
def test_no_answer_has_fewer_cards_and_one_numa_node_is_enough_where_it_can_be(
    counts: list[int], data: st.DataObject
) -> None:
    numbers = itertools.count()
    node = {
        next(numbers): (card, card % 2) for card, count in enumerate(counts) for _ in range(count)
    }
    size = data.draw(st.integers(1, len(node)))
    required = data.draw(st.lists(st.sampled_from([*node]), max_size=size, unique=True))
    chosen = parts(node, size, required=tuple(required))
    assert (size, True) == (len({*chosen}), {*required} <= {*chosen})
    assert chosen == parts(node, size, required=tuple(required))

    def cards(group: list[int]) -> set[int]:
        return {node[number][0] for number in group}

    taken = cards(required)
    possible = [
        {*more} | taken
        for count in range(len(counts) + 1)
        for more in itertools.combinations({*range(len(counts))} - taken, count)
        if sum(counts[card] for card in {*more} | taken) >= size
    ]
    fewest = min(map(len, possible))
    assert fewest >= len(cards(chosen) | taken)
    straight = any(1 == len({card % 2 for card in one}) for one in possible if len(one) == fewest)
    assert not straight or 1 == len({card % 2 for card in cards(chosen) | taken})


def test_many_parents_are_little_work() -> None:
    draw = random.Random(3)
    scores = [[draw.randrange(50) for _ in range(64)] for _ in range(64)]
    asked = itertools.count()

    def score(one: int, other: int) -> int:
        next(asked)
        return scores[max(one, other)][min(one, other)]

    things = [(card, part) for card in range(64) for part in range(8)]
    chosen = choose_by_parent(things, (), 256, parent=lambda one: one[0], score=score)
    assert 32 == len({card for card, _ in chosen})
    assert 64 * 64 > next(asked)
