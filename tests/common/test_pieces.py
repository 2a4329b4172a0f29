from hypothesis import given
from hypothesis import strategies as st

from deviceplugin import Device, Health
from deviceplugin._pieces import cut
from deviceplugin._wire import encode_list

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
    assert before == cut(many(1000), before)


def test_a_list_that_has_become_longer_keeps_the_pieces_before_its_end() -> None:
    before = cut(many(600))
    after = cut(many(900), before)
    assert [True, True, False] == [old is new for old, new in zip(before, after, strict=False)]
