"""Several ids for one device, and which of them go to whom."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from deviceplugin.kit.sharing import MOST, Policy, Shares, check_count, excess, share_id, shares
from deviceplugin.proto.v1beta1 import MAX_LIST_BYTES

CARDS = {share_id(f"card{card}", number): f"card{card}" for card in range(4) for number in range(5)}
TEN = {share_id(f"card{card}", number): f"card{card}" for card in (2, 10) for number in range(2)}


# Ids.


def test_a_share_has_all_of_the_device_but_the_id() -> None:
    device = dp.Device("a", health=dp.Health.unhealthy("hot"), topology=dp.Topology((1,)))
    first, second = shares(device, 2)
    assert ["a::0", "a::1"] == [first.id, second.id]
    assert {"a"} == {one.share_of for one in (first, second)}
    assert {(device.health, device.topology)} == {
        (one.health, one.topology) for one in (first, second)
    }


def test_one_share_is_the_device_itself() -> None:
    device = dp.Device("a")
    assert [device] == list(shares(device, 1))
    assert [] == list(shares(device, 0))


def test_a_number_of_shares_that_nobody_can_mean_is_refused() -> None:
    check_count(1)
    check_count(MOST)
    for count in (0, -1, MOST + 1):
        with pytest.raises(dp.ConfigError, match=rf"^replicas: {count} is not a number of shares"):
            check_count(count, "replicas")


def test_more_shares_than_a_list_has_room_for_are_refused_before_they_are_made() -> None:
    assert {} == excess({"a/b": MOST, "a/c": 1})
    (why,) = excess({"a/b": MOST + 1, "a/c": MOST}).values()
    assert f"a/b: {MOST + 1} shares have no room in the kubelet's list: use {MOST} at most" == why
    assert ["a/b"] == [*excess({"a/b": 4, "a/c": 1}, 30_000)]
    assert 41 == MAX_LIST_BYTES // MOST, "bytes for each"


def test_ids_stay_what_they_are_when_there_are_more_shares() -> None:
    few, many = ([one.id for one in shares(dp.Device("a"), count)] for count in (2, 12))
    assert few == many[:2]
    assert "a::11" == many[-1]


# Policies, with the questions of Intel's plugin.

SPREAD, PACKED = Shares(CARDS), Shares(CARDS, "packed")
FREE = [one for one in CARDS if one != "card2::0"]
LESS = [one for one in FREE if one not in {"card0::0", "card0::1"}]


@pytest.mark.parametrize(
    ("policy", "available", "required", "size", "expected"),
    [
        (SPREAD, CARDS, (), 4, "card0::0 card1::0 card2::0 card3::0"),
        (SPREAD, LESS, (), 1, "card1::0"),
        (SPREAD, LESS, (), 5, "card0::2 card1::0 card1::1 card2::1 card3::0"),
        (PACKED, CARDS, (), 4, "card0::0 card0::1 card0::2 card0::3"),
        (PACKED, FREE, (), 1, "card2::1"),
        (PACKED, FREE, (), 5, "card0::0 card2::1 card2::2 card2::3 card2::4"),
        (Shares(CARDS, "packed", distinct=True), FREE, (), 2, "card0::0 card2::1"),
        # Devices are in the order in which they were named.
        (Shares(TEN, "packed"), sorted(TEN), (), 2, "card2::0 card2::1"),
        # What is required is in the answer and counts as taken.
        (SPREAD, CARDS, ["card3::2"], 2, "card0::0 card3::2"),
        (PACKED, CARDS, ["card3::2"], 2, "card3::0 card3::2"),
        (SPREAD, CARDS, ["card3::2", "card1::0"], 1, "card1::0 card3::2"),
        # An unknown id is a device of its own.
        (SPREAD, ["x", "card2::0"], (), 2, "card2::0 x"),
        (PACKED, ["x", "card2::0"], (), 2, "card2::0 x"),
        # What cannot be had is answered as far as it can.
        (SPREAD, ["card2::0"], (), 9, "card2::0"),
        (SPREAD, [], (), 2, ""),
        (SPREAD, CARDS, (), 0, ""),
    ],
)
def test_shares_are_chosen_by_the_policy(
    policy: Shares, available: Sequence[str], required: Sequence[str], size: int, expected: str
) -> None:
    assert expected.split() == policy.choose(available, required, size)


def test_packed_begins_on_the_idle_device_that_is_just_large_enough() -> None:
    places = {
        share_id(card, n): card
        for card, count in (("a", 8), ("b", 2), ("c", 4))
        for n in range(count)
    }
    packed = Shares(places, "packed")
    assert ["c::0", "c::1", "c::2"] == packed.choose(places, (), 3)
    assert [*(f"a::{n}" for n in range(8)), "b::0"] == packed.choose(places, (), 9)


def test_parts_of_parts_are_chosen_from_the_outermost_on() -> None:
    places = {
        f"m{g}{m}::{n}": (f"g{g}", f"m{g}{m}") for g in (0, 1) for m in (0, 1) for n in (0, 1)
    }
    assert ["m00::0", "m01::0", "m10::0", "m11::0"] == Shares(places).choose(places, (), 4)
    assert ["m00::0", "m00::1", "m01::0"] == Shares(places, "packed").choose(places, (), 3)


@pytest.mark.parametrize("shares", [Shares, partial(Shares, policy="packed", distinct=True)])
def test_as_many_devices_are_taken_as_there_are_wherever_they_are_parts(
    shares: Callable[[Mapping[str, Sequence[str]]], Shares],
) -> None:
    """The first card has one partition, the other has three: four devices, and not three."""
    parts = [("g0", "m0"), *(("g1", f"m{number}") for number in (1, 2, 3))]
    places = {f"{part[1]}::{number}": part for part in parts for number in range(4)}
    asked = shares(places)
    assert ["m0::0", "m1::0", "m2::0", "m3::0"] == asked.choose(places, (), 4)
    assert ["m0::0", "m1::0"] == asked.choose(places, (), 2), "of different cards, if there are"
    assert ["m0::1", "m1::0", "m2::0", "m3::0"] == asked.choose(places, ["m0::1"], 4)


@pytest.mark.parametrize("policy", ["spread", "packed"])
@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("cards", [1, 16])
def test_half_of_all_shares_can_be_asked_for(policy: Policy, cards: int, *, distinct: bool) -> None:
    """What grows with the square of their number would take hours."""
    places = {share_id(f"c{n % cards}", n): f"c{n % cards}" for n in range(MOST)}
    found = Shares(places, policy, distinct=distinct).choose(places, (), MOST // 2)
    given = Counter(places[one] for one in found)
    is_even = policy == "spread" or distinct
    assert ({MOST // 2 // cards} if is_even else {min(MOST // 2, MOST // cards)}) == {
        *given.values()
    }


def test_a_hook_is_answered_with_the_devices_that_it_was_given() -> None:
    devices = [dp.Device(one) for one in TEN]
    given = Shares(TEN).prefer(devices, devices[3:], 2)
    assert [devices[0], devices[3]] == given
    assert devices[0] is given[0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from(["spread", "packed"]),
    st.booleans(),
    st.data(),
)
def test_any_answer_is_valid_and_the_same_in_any_order(
    counts: list[int], policy: Policy, distinct: bool, data: st.DataObject
) -> None:
    places = {
        share_id(f"c{card}", n): f"c{card}"
        for card, count in enumerate(counts)
        for n in range(count)
    }
    there = data.draw(st.lists(st.sampled_from([*places]), min_size=1, unique=True))
    size = data.draw(st.integers(0, len(there)))
    required = data.draw(st.lists(st.sampled_from(there), max_size=size, unique=True))
    asked = Shares(places, policy, distinct=distinct)
    found = asked.choose(there, required, size)
    assert size == len({*found})
    assert {*required} <= {*found} <= {*there}
    assert found == asked.choose(there[::-1], required[::-1], size)
    left = Counter(places[one] for one in there)

    def cards(group: Sequence[str]) -> Counter[str]:
        return Counter(places[one] for one in group)

    if policy == "spread" or distinct:
        # Nobody has two while another device has some left that none was taken of.
        idle = left.keys() - cards(found).keys()
        more = max(cards(found).values(), default=0) > 1 and not required
        assert not (idle and more)


@pytest.mark.parametrize("policy", ["spread", "packed"])
def test_many_shares_are_little_work(policy: Policy) -> None:
    places = {share_id(f"c{card}", n): f"c{card}" for card in range(200) for n in range(10)}
    assert 64 == len(Shares(places, policy).choose(places, (), 64))
