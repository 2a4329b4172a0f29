import time
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from deviceplugin import Device, DiscoveryError, Health, Plugin
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._inventory.published import Resource, encode_list
from deviceplugin._kubelet.offer import Offer

SICK = Health.unhealthy("dust")


class Plain(Plugin):
    @override
    def discover(self) -> Iterable[Device]:
        return ()


@pytest.fixture
def resource() -> Resource:
    return Resource("x.io/dev", Plain())


def latest(resource: Resource) -> bytes | None:
    """What a stream that opens now sends first."""
    return Offer(resource, Ownership()).latest()


def test_a_resource_has_no_devices_at_first(resource: Resource) -> None:
    assert {} == resource.devices
    assert 0.0 == resource.since("a")


def test_what_is_published_is_there(resource: Resource) -> None:
    one, two = Device("1"), Device("2", health=SICK)
    assert [one, two] == resource.publish([one, two])
    assert {"1": one, "2": two} == resource.devices
    assert ["1", "2"] == list(resource.devices)


def test_only_devices_whose_health_changed_are_returned(resource: Resource) -> None:
    resource.publish([Device("a"), Device("b")])
    changed = Device("b", health=SICK)
    assert [changed] == resource.publish([Device("a", attributes={"x": "1"}), changed])
    assert [] == resource.publish([Device("a")])
    assert [Device("b")] == resource.publish([Device("a"), Device("b")])


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


def test_what_is_published_after_the_end_changes_nothing(resource: Resource) -> None:
    resource.publish([Device("a")])
    resource.close()
    assert [] == resource.publish([Device("a", health=SICK)])
    assert resource.devices["a"].health
    assert encode_list([Device("a")]) == latest(resource)


def test_a_list_that_is_too_long_for_the_kubelet_leaves_the_last_one(resource: Resource) -> None:
    resource.publish([Device("a")])
    many = [Device(f"{number:063}") for number in range(60_000)]
    with pytest.raises(DiscoveryError) as raised:
        resource.publish(many)
    assert (
        "the list of 60000 devices for x.io/dev has 4680000 bytes, but the kubelet accepts 4194304 "
        "at most: use fewer devices or shorter ids"
    ) == str(raised.value)
    assert ["a"] == list(resource.devices)
    assert encode_list([Device("a")]) == latest(resource)


def test_devices_are_in_natural_order_also_when_they_come_and_go(resource: Resource) -> None:
    for ids in (["d10", "d9", "a"], ["a", "d10", "d9"], ["d10", "b", "d9", "a"]):
        resource.publish([Device(device_id) for device_id in ids])
        assert [i for i in ("a", "b", "d9", "d10") if i in ids] == list(resource.devices)


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
    resource = Resource("x.io/dev", Plain())
    for numbers in steps:
        given_order = list(numbers)
        random.shuffle(given_order)
        resource.publish([Device(f"d{number}") for number in given_order])
        expected = [f"d{number}" for number in sorted(numbers)]
        assert expected == list(resource.devices)
        assert encode_list(map(Device, expected)) == latest(resource)
        assert all(resource.since(device_id) > 0 for device_id in expected)
