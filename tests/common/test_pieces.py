import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from deviceplugin import Device, Health
from deviceplugin._inventory.chunks import cut
from deviceplugin._inventory.encoding import encode_list

SICK = Health.unhealthy("dust")
DEVICES = st.lists(
    st.builds(Device, st.text("ab", max_size=2), health=st.sampled_from([Health(), SICK])),
    max_size=600,
)


def many(count: int) -> list[Device]:
    return [Device(f"d{number}") for number in range(count)]


def test_no_devices_are_no_pieces() -> None:
    assert [] == cut([])
    assert [] == cut([], cut(many(1)))


@given(DEVICES, DEVICES)
def test_the_pieces_make_up_the_list_whatever_there_was_before(
    devices: list[Device], before: list[Device]
) -> None:
    pieces = cut(devices, cut(before))
    assert devices == [device for piece in pieces for device in piece.devices]
    assert encode_list(devices) == b"".join(piece.encoded for piece in pieces)
    assert sum(bool(device.health) for device in devices) == sum(p.healthy for p in pieces)


def test_only_what_has_changed_is_encoded_again() -> None:
    devices = many(1000)
    before = cut(devices)
    ill = [*devices[:500], Device("d500", health=SICK), *devices[501:]]
    after = cut(ill, before)
    assert [True, False, True, True] == [old is new for old, new in zip(before, after, strict=True)]
    again = cut(list(devices), before)
    assert [True] * 4 == [old is new for old, new in zip(before, again, strict=True)]


class Numbered(Device):
    """As authors write it who look for devices by id."""

    @override
    def __eq__(self, other: object) -> bool:
        return self.id == other.id  # type: ignore[attr-defined,no-any-return]

    __hash__ = None  # type: ignore[assignment]


class Incomparable(Device):
    """As one that keeps an array."""

    @override
    def __eq__(self, other: object) -> bool:
        raise ValueError("no truth value")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [Numbered, Incomparable])
def test_what_the_classes_of_devices_call_equal_does_not_matter(kind: type[Device]) -> None:
    before = cut([kind("a"), kind("b")])
    ill = [kind("a"), kind("b", health=SICK)]
    assert [(encode_list(ill), 1)] == [(piece.encoded, piece.healthy) for piece in cut(ill, before)]


def test_a_list_that_has_become_longer_keeps_the_pieces_before_its_end() -> None:
    devices = many(900)
    before = cut(devices[:600])
    after = cut(devices, before)
    assert [True, True, False] == [old is new for old, new in zip(before, after, strict=False)]
