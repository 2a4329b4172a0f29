"""The resources of a process and the fronts that offer them, without a kubelet."""

import time
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from deviceplugin import Allocation, Device, DeviceNode, DiscoveryError, Health, Mount, Topology
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory import published
from deviceplugin._inventory.allocating import decode_allocation, encode_allocation
from deviceplugin._inventory.published import Catalogue, Front, Resource, encode_chunks, encode_list
from deviceplugin._kubelet.offer import Offer
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from scripted_plugin import ScriptedPlugin

SICK = Health.unhealthy("dust")


@pytest.fixture
def resource() -> Resource:
    return Resource("x.io/dev", ScriptedPlugin())


def latest(resource: Resource) -> bytes | None:
    """What a stream that opens now sends first."""
    return Offer(resource, Ownership()).latest()


def test_all_devices_are_there_and_those_whose_health_changed_are_returned(
    resource: Resource,
) -> None:
    one, two = Device("1"), Device("2", health=SICK)
    assert ({}, 0.0) == (resource.devices, resource.since("1"))
    assert [one, two] == resource.publish([two, one])
    assert [("1", one), ("2", two)] == list(resource.devices.items())
    better = Device("2")
    assert [better] == resource.publish([Device("1", attributes={"x": "1"}), better])
    assert [] == resource.publish([one])
    assert [two] == resource.publish([one, two])
    assert [] == resource.publish([one, Device("2", health=Health.unhealthy("dust"))])


def test_it_is_known_since_when_a_device_is_as_it_is(resource: Resource) -> None:
    before = time.time()
    resource.publish([Device("a"), Device("b")])
    since = resource.since("a")
    assert before <= since <= time.time()
    resource.publish([Device("a"), Device("b", health=SICK)])
    assert since == resource.since("a")
    assert since <= resource.since("b")
    resource.publish([Device("b", health=SICK)])
    assert 0.0 == resource.since("a")


def test_only_a_list_that_differs_on_the_wire_is_announced(resource: Resource) -> None:
    offer, announced = Offer(resource, Ownership()), list[bytes | None]()
    offer.watch(lambda: announced.append(offer.latest()))
    resource.publish([])
    resource.publish([Device("a")])
    resource.publish([Device("a", attributes={"x": "1"})])  # nothing that the kubelet would see
    resource.publish([Device("b")])
    assert [b"", encode_list([Device("a")]), encode_list([Device("b")])] == announced


def test_what_is_too_long_for_the_kubelet_or_comes_after_the_end_leaves_the_last_list(
    resource: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource.publish([Device("a")])
    monkeypatch.setattr(published, "MAX_LIST_BYTES", 100)
    with pytest.raises(DiscoveryError) as raised:
        resource.publish(many(10))
    assert (
        "the list of 10 devices for x.io/dev has 170 bytes, but the kubelet accepts 100 at most: "
        "use fewer devices or shorter ids"
    ) == str(raised.value)
    resource.close()
    assert [] == resource.publish([Device("a", health=SICK)])
    assert {"a": Device("a")} == resource.devices
    assert encode_list([Device("a")]) == latest(resource)


def test_a_few_devices_that_come_to_many_take_their_places(resource: Resource) -> None:
    odd = [f"d{number}" for number in range(1, 200, 2)]
    resource.publish([Device(device_id) for device_id in odd])
    resource.publish([Device(device_id) for device_id in ["d100", *odd[:-1], "d0", "d20", "e"]])
    numbers = sorted([0, 20, 100, *range(1, 199, 2)])
    assert [*(f"d{number}" for number in numbers), "e"] == list(resource.devices)


@given(st.lists(st.frozensets(st.integers(0, 120), min_size=1), max_size=8), st.randoms())
def test_the_list_is_in_natural_order_whatever_came_before(
    steps: list[frozenset[int]], random: Random
) -> None:
    resource = Resource("x.io/dev", ScriptedPlugin())
    for numbers in steps:
        given_order = list(numbers)
        random.shuffle(given_order)
        resource.publish([Device(f"d{number}") for number in given_order])
        expected = [f"d{number}" for number in sorted(numbers)]
        assert expected == list(resource.devices)
        assert encode_list(map(Device, expected)) == latest(resource)
        assert all(resource.since(device_id) > 0 for device_id in expected)


# Chunks.


DEVICES = st.lists(
    st.builds(Device, st.text("ab", max_size=2), health=st.sampled_from([Health(), SICK])),
    max_size=600,
)


def many(count: int) -> list[Device]:
    return [Device(f"d{number}") for number in range(count)]


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
    longer = encode_chunks([*devices, *many(100)], before)
    assert [True] * 3 + [False] == [old is new for old, new in zip(before, longer, strict=False)]
    assert [] == encode_chunks([], before)


def incomparable(_self: object, _other: object) -> bool:
    """As of one that keeps an array."""
    raise ValueError("no truth value")


def same_id(one: Any, other: Any) -> bool:
    """As authors write it who look for devices by id."""
    return bool(one.id == other.id)


@pytest.mark.parametrize("equal", [incomparable, same_id])
def test_what_the_classes_of_devices_call_equal_does_not_matter(equal: object) -> None:
    kind: type[Device] = type("Own", (Device,), {"__eq__": equal, "__hash__": None})
    before = encode_chunks([kind("a"), kind("b")])
    ill = [kind("a"), kind("b", health=SICK)]
    assert [encode_list(ill)] == [chunk.encoded for chunk in encode_chunks(ill, before)]


# Encoding.


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ALLOCATIONS = st.builds(
    Allocation,
    nodes=st.lists(st.builds(DeviceNode, TEXTS, TEXTS, TEXTS), max_size=3),
    mounts=st.lists(st.builds(Mount, TEXTS, TEXTS, st.booleans()), max_size=3),
    envs=st.dictionaries(TEXTS, TEXTS, max_size=3),
    annotations=st.dictionaries(TEXTS, TEXTS, max_size=3),
    cdi_names=st.lists(TEXTS, max_size=3),
)


def test_a_list_says_who_the_devices_are_and_how() -> None:
    sick = Device("a", health=Health.unhealthy("dust"), topology=Topology((1, 0)))
    nowhere = Device("c", topology=Topology())  # on the wire it may not be present but empty
    recipe = Device("b", nodes=[DeviceNode("/dev/a")], attributes={"model": "T1"})
    answer = pb.ListAndWatchResponse.FromString(encode_list([recipe, sick, nowhere]))
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=0), pb.NUMANode(ID=1)])
    expected = [
        pb.Device(ID="b", health="Healthy"),
        pb.Device(ID="a", health="Unhealthy", topology=topology),
        pb.Device(ID="c", health="Healthy"),
    ]
    assert expected == list(answer.devices)
    assert b"" == encode_list([])


def test_an_allocation_has_every_part_on_the_wire() -> None:
    allocation = Allocation(
        nodes=[DeviceNode("/dev/a", "/dev/b", "r")],
        mounts=[Mount("/opt/a", "/opt/b", read_only=True)],
        envs={"A": "1"},
        annotations={"x.io/a": "2"},
        cdi_names=["x.io/a=1"],
    )
    expected = pb.ContainerAllocateResponse(
        envs={"A": "1"},
        mounts=[pb.Mount(container_path="/opt/b", host_path="/opt/a", read_only=True)],
        devices=[pb.DeviceSpec(container_path="/dev/b", host_path="/dev/a", permissions="r")],
        annotations={"x.io/a": "2"},
        cdi_devices=[pb.CDIDevice(name="x.io/a=1")],
    )
    assert expected == encode_allocation(allocation)


@given(ALLOCATIONS)
def test_an_allocation_comes_back_from_the_wire_as_it_was(allocation: Allocation) -> None:
    encoded = encode_allocation(allocation).SerializeToString()
    response = pb.ContainerAllocateResponse.FromString(encoded)
    assert allocation == decode_allocation(response)


# Resources and fronts.


class Shelf(Front):
    """A front that shows what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    @override
    def advertise(self, resource: Resource) -> None:
        self.asked.append(("advertise", resource.name))

    @override
    def withdraw(self, resource: Resource) -> None:
        self.asked.append(("withdraw", resource.name))


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue()


def claimed(catalogue: Catalogue, name: str) -> Resource:
    resource = catalogue.claim(name, ScriptedPlugin())
    assert resource
    return resource


def test_a_name_belongs_to_the_first_plugin_until_it_is_withdrawn(catalogue: Catalogue) -> None:
    one = claimed(catalogue, "x.io/one")
    assert catalogue.claim("x.io/one", ScriptedPlugin()) is None
    assert {"x.io/one": one} == catalogue.resources()
    catalogue.withdraw(one)
    assert {} == catalogue.resources()
    assert one is not claimed(catalogue, "x.io/one")


def test_every_front_offers_all_that_is_advertised_also_what_was_before(
    catalogue: Catalogue,
) -> None:
    first, second = Shelf(), Shelf()
    catalogue.attach(first)
    one, two = claimed(catalogue, "x.io/one"), claimed(catalogue, "x.io/two")
    claimed(catalogue, "x.io/only-claimed")
    catalogue.advertise(one)
    catalogue.attach(second)
    catalogue.advertise(two)
    catalogue.withdraw(one)
    later = [("advertise", "x.io/two"), ("withdraw", "x.io/one")]
    assert [("advertise", "x.io/one"), *later] == first.asked == second.asked
    catalogue.detach(first)
    catalogue.withdraw(two)
    assert (3, ("withdraw", "x.io/two")) == (len(first.asked), second.asked[-1])
