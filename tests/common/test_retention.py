from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin import Device, Health, Topology
from deviceplugin._discovery.retention import (
    HELD_BUT_ABSENT,
    VANISHED,
    KeptDevices,
    Retention,
    unhealthy,
)

RETENTION = Retention(grace=10, unknown=100)
IDS = st.frozensets(st.sampled_from(["a", "b", "c", "d10", "d9"]))
STEPS = st.lists(st.tuples(IDS, st.none() | IDS, st.integers(0, 200)), max_size=10)


def here(*ids: str) -> dict[str, Device]:
    return {device_id: Device(device_id) for device_id in ids}


def listed(kept: KeptDevices) -> dict[str, str]:
    return {device.id: str(device.health) for device in kept.devices()}


def test_a_device_that_vanishes_stays_as_unhealthy_until_it_comes_back() -> None:
    device = Device("a", topology=Topology((1,)), attributes={"model": "T1"})
    kept = KeptDevices(0).updated({"a": device, **here("b")}, 1).updated(here("b"), 2)
    gone = replace(device, health=Health.unhealthy(VANISHED, "gone"))
    assert [Device("b"), gone] == [*kept.devices()]
    kept = kept.updated(here("a", "b"), 3)
    assert ([Device("a"), Device("b")], {}) == ([*kept.devices()], kept.vanished)


@pytest.mark.parametrize(
    ("held", "age", "recorded", "stays"),
    [
        ({"a"}, 1000, False, True),  # a pod has it
        (set(), 9, False, True),  # an allocation may be under way
        (set(), 10, False, False),
        ({"b"}, 10, False, False),
        (None, 99, False, True),  # nobody knows
        (None, 100, False, False),
        (set(), 99, True, True),  # nobody knows either
        (set(), 101, True, False),
        ({"a"}, 1000, True, True),
    ],
)
def test_a_vanished_device_is_forgotten_when_no_pod_can_hold_it(
    held: set[str] | None, age: float, *, recorded: bool, stays: bool
) -> None:
    gone = KeptDevices(0).updated(here("a"), 1).updated({}, 2)
    kept = gone.retired(held, 2 + age, RETENTION, {"a"} if recorded else set())
    assert stays == ("a" in listed(kept))


def test_the_time_of_a_vanished_device_does_not_start_anew() -> None:
    kept = KeptDevices(0).updated(here("a"), 1).updated({}, 2).updated({}, 8).expecting({"a"}, 9)
    assert 0 == len(kept.retired(frozenset(), 12, RETENTION))


def test_a_device_that_a_pod_holds_is_listed_though_never_seen() -> None:
    kept = KeptDevices(0).updated(here("a"), 1).expecting({"a", "b"}, 1)
    assert {"a": "healthy", "b": f"unhealthy: {HELD_BUT_ABSENT}"} == listed(kept)


@given(STEPS)
def test_a_device_that_a_pod_holds_is_never_dropped(
    steps: list[tuple[frozenset[str], frozenset[str] | None, int]],
) -> None:
    kept, now = KeptDevices(0), 0
    for present, held, pause in steps:
        now += pause
        kept = kept.updated(here(*present), now)
        kept = kept.expecting(held or frozenset(), now).retired(held, now, RETENTION)
        ids = [device.id for device in kept.devices()]
        assert len(set(ids)) == len(ids) == len(kept)
        assert {*present, *(held or ())} <= set(ids)
        assert present == {device.id for device in kept.devices() if device.health}


def test_devices_are_made_unhealthy_and_keep_an_earlier_reason() -> None:
    sick = Device("b", health=Health.unhealthy("dust"))
    assert ["unhealthy: late", "unhealthy: dust"] == [
        str(device.health) for device in unhealthy([Device("a"), sick], "late")
    ]
