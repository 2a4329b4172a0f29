"""When the next look at what pods hold is due, without threads."""

import pytest

from deviceplugin._attribution.podresources import Hold, Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming, Key, Schedule

TIMING = AttributionTiming.of(30)
A, B = ("x.io/dev", "a"), ("x.io/dev", "b")


@pytest.fixture
def schedule() -> Schedule:
    """A schedule after a look at 100 s that was a list."""
    schedule = Schedule(TIMING)
    schedule.begin_poll(100)
    schedule.listed(Holdings(), schedule.begin_list(100))
    schedule.poll_at(130)
    return schedule


def allocate(schedule: Schedule, *devices: Key, now: float) -> None:
    schedule.begin_allocation()
    schedule.allocated(devices, now)
    schedule.end_allocation()


def listing(*devices: Key) -> Holdings:
    return Holdings(frozenset(Hold(*device, "default", "door", "main") for device in devices))


def test_the_first_look_is_due_at_once_and_is_a_list() -> None:
    schedule = Schedule(TIMING)
    assert (0, True, True) == (schedule.wait(100), schedule.list_due, schedule.idle)


def test_the_next_look_is_due_when_it_was_said_to_be(schedule: Schedule) -> None:
    assert [30, 1, 0, 0] == [schedule.wait(now) for now in (100, 129, 130, 200)]
    assert not schedule.list_due


def test_a_look_that_can_confirm_something_comes_earlier(schedule: Schedule) -> None:
    assert [5, 30] == [schedule.wait(100, confirm_in) for confirm_in in (5, 50)]


def test_while_an_allocation_is_under_way_there_is_no_poll(schedule: Schedule) -> None:
    schedule.begin_allocation()
    schedule.begin_allocation()
    assert (30, False) == (schedule.wait(200, 0), schedule.idle)
    schedule.end_allocation()
    assert (30, False) == (schedule.wait(200, 0), schedule.idle)
    schedule.end_allocation()
    assert (0, True) == (schedule.wait(200, 0), schedule.idle)


def test_an_allocation_calls_for_a_list_soon_after_it(schedule: Schedule) -> None:
    allocate(schedule, A, now=110)
    assert (1, True) == (schedule.wait(110), schedule.list_due)


def test_of_many_allocations_in_a_row_none_delays_the_look_for_ever(schedule: Schedule) -> None:
    waits = []
    for now in (110, 110.9, 111.8, 112.7, 113.6, 114.5, 115):
        allocate(schedule, A, now=now)
        waits.append(round(schedule.wait(now), 3))
    assert [1, 1, 1, 1, 1, 0.5, 0] == waits


def test_an_allocation_that_is_refused_calls_for_nothing(schedule: Schedule) -> None:
    schedule.begin_allocation()
    schedule.end_allocation()
    assert (20, False, set()) == (schedule.wait(110), schedule.list_due, set(schedule.unseen))


def test_a_look_is_for_all_allocations_before_it(schedule: Schedule) -> None:
    allocate(schedule, A, now=110)
    schedule.begin_poll(111)
    assert 19 == schedule.wait(111)
    assert schedule.list_due


def test_lists_are_due_until_one_shows_what_was_allocated(schedule: Schedule) -> None:
    allocate(schedule, A, B, now=110)
    due = []
    for shown in ((), (A,), (A, B)):
        schedule.listed(listing(*shown), schedule.begin_list(111))
        due.append(schedule.list_due)
    assert [True, True, False] == due


def test_a_list_says_nothing_of_what_was_allocated_after_it_was_asked_for(
    schedule: Schedule,
) -> None:
    expected = schedule.begin_list(111)
    allocate(schedule, A, now=112)
    schedule.listed(listing(A), expected)  # held by the pod before, maybe
    assert ({A}, True) == (set(schedule.unseen), schedule.list_due)


def test_a_list_that_is_not_answered_is_still_due(schedule: Schedule) -> None:
    schedule.begin_list(111)
    assert not schedule.list_due
    schedule.list_failed()
    assert schedule.list_due


def test_what_no_list_shows_for_long_is_expected_no_longer(schedule: Schedule) -> None:
    allocate(schedule, A, now=110)
    allocate(schedule, B, now=150)
    schedule.begin_poll(169.9)
    assert {A, B} == set(schedule.unseen)
    schedule.begin_poll(170)
    assert {B} == set(schedule.unseen)
    schedule.listed(listing(), schedule.begin_list(210))
    assert (set(), False) == (set(schedule.unseen), schedule.list_due)


def test_polls_for_pods_that_do_not_change_become_rare() -> None:
    timing = AttributionTiming.of(30.0)
    waits = [0.0, 60.0, 120.0, 600.0, 1800.0, 1e6]
    assert [2.0, 2.0, 2.0, 10.0, 30.0, 30.0] == [timing.while_draining(one) for one in waits]
    assert 0.2 == AttributionTiming.of(0.2).while_draining(1e6)
