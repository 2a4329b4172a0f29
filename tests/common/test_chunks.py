from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from deviceplugin import Device, Health, Topology
from deviceplugin._inventory.published import encode_chunks, encode_list
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb

SICK = Health.unhealthy("dust")
DEVICES = st.lists(
    st.builds(Device, st.text("ab", max_size=2), health=st.sampled_from([Health(), SICK])),
    max_size=600,
)


def many(count: int) -> list[Device]:
    return [Device(f"d{number}") for number in range(count)]


def test_no_devices_are_no_chunks() -> None:
    assert [] == encode_chunks([])
    assert [] == encode_chunks([], encode_chunks(many(1)))


@given(DEVICES, DEVICES)
def test_the_chunks_make_up_the_list_whatever_there_was_before(
    devices: list[Device], before: list[Device]
) -> None:
    chunks = encode_chunks(devices, encode_chunks(before))
    assert devices == [device for chunk in chunks for device in chunk.devices]
    listed = pb.ListAndWatchResponse.FromString(b"".join(chunk.encoded for chunk in chunks))
    assert [device.id for device in devices] == [device.ID for device in listed.devices]
    sick = [replace(device, health=SICK) for device in devices]
    assert len(encode_list(sick)) == sum(chunk.longest for chunk in chunks)


def test_only_what_has_changed_is_encoded_again() -> None:
    devices = many(1000)
    before = encode_chunks(devices)
    ill = [*devices[:500], Device("d500", health=SICK), *devices[501:]]
    after = encode_chunks(ill, before)
    assert [True, False, True, True] == [old is new for old, new in zip(before, after, strict=True)]
    again = encode_chunks(list(devices), before)
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
    before = encode_chunks([kind("a"), kind("b")])
    ill = [kind("a"), kind("b", health=SICK)]
    assert [encode_list(ill)] == [chunk.encoded for chunk in encode_chunks(ill, before)]


def test_a_list_that_has_become_longer_keeps_the_chunks_before_its_end() -> None:
    devices = many(900)
    before = encode_chunks(devices[:600])
    after = encode_chunks(devices, before)
    assert [True, True, False] == [old is new for old, new in zip(before, after, strict=False)]


@pytest.mark.parametrize("length", [1, 52, 53, 63])
def test_what_a_list_can_become_has_the_size_of_protobuf(length: int) -> None:
    topology = Topology((0, 1, 1023))
    (chunk,) = encode_chunks([Device("ü" * length, topology=topology)])
    worst = pb.ListAndWatchResponse.FromString(chunk.encoded)
    worst.devices[0].health = "Unhealthy"
    assert len(worst.SerializeToString()) == chunk.longest


def test_no_field_of_a_list_is_new() -> None:
    """Whoever adds one to the messages must say in ``_encode`` how long it can get."""
    messages = (pb.ListAndWatchResponse, pb.Device, pb.TopologyInfo, pb.NUMANode)
    fields = [[field.name for field in one.DESCRIPTOR.fields] for one in messages]
    assert [["devices"], ["ID", "health", "topology"], ["nodes"], ["ID"]] == fields
