"""When the next look at what pods hold is due, without threads."""

from dataclasses import replace

import pytest

from deviceplugin._attribution.podresources import ClaimedDevice, Hold, Holdings, PodName
from deviceplugin._attribution.poll_schedule import AttributionTiming, HoldingsView, Key, Schedule

TIMING = AttributionTiming.of(30)
A, B = ("x.io/dev", "a"), ("x.io/dev", "b")


@pytest.fixture
def schedule() -> Schedule:
    """A schedule after a look at 100 s that was a list."""
    schedule = Schedule(TIMING)
    schedule.begin_poll(100)
    schedule.listed(Holdings(), schedule.begin_list(100))
    schedule.regular = 130
    return schedule


def allocate(schedule: Schedule, *devices: Key, now: float) -> None:
    schedule.begin_allocation()
    schedule.allocated(devices, now)
    schedule.end_allocation()


def listing(*devices: Key) -> Holdings:
    return Holdings(frozenset(Hold(*device, "default", "door", "main") for device in devices))


def test_a_look_is_due_at_once_then_when_it_was_said_to_be_or_when_it_can_confirm_something(
    schedule: Schedule,
) -> None:
    first = Schedule(TIMING)
    assert (0, True, True) == (first.wait(100), first.list_due, first.idle)
    assert [30, 1, 0, 0] == [schedule.wait(now) for now in (100, 129, 130, 200)]
    assert not schedule.list_due
    assert [5, 30] == [schedule.wait(100, confirm_in) for confirm_in in (5, 50)]


def test_while_an_allocation_is_under_way_there_is_no_poll(schedule: Schedule) -> None:
    schedule.begin_allocation()
    schedule.begin_allocation()
    assert (30, False) == (schedule.wait(200, 0), schedule.idle)
    schedule.end_allocation()
    assert (30, False) == (schedule.wait(200, 0), schedule.idle)
    schedule.end_allocation()
    assert (0, True) == (schedule.wait(200, 0), schedule.idle)


def test_allocations_call_for_a_list_soon_after_them_and_do_not_delay_it_for_ever(
    schedule: Schedule,
) -> None:
    waits = []
    for now in (110, 110.9, 111.8, 112.7, 113.6, 114.5, 115):
        allocate(schedule, A, now=now)
        waits.append(round(schedule.wait(now), 3))
    assert [1, 1, 1, 1, 1, 0.5, 0] == waits
    schedule.begin_poll(115)
    assert (15, True) == (schedule.wait(115), schedule.list_due)


def test_an_allocation_that_is_refused_calls_for_nothing(schedule: Schedule) -> None:
    schedule.begin_allocation()
    schedule.end_allocation()
    assert (20, False, set()) == (schedule.wait(110), schedule.list_due, set(schedule.unseen))


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


# What is known of what pods hold, without threads and without a kubelet.


OURS = ["x.io/dev"]
OLD, NEW = (1, 1, 1), (2, 2, 2)
ME: PodName = ("kube-system", "me")
DOOR: PodName = ("default", "door")
GATE: PodName = ("default", "gate")
EMPTY = HoldingsView(TIMING)


def hold(device: str, pod: PodName, resource: str = "x.io/dev") -> Hold:
    return Hold(resource, device, *pod, "main")


def holdings(*holds: Hold, pods: tuple[PodName, ...] = ()) -> Holdings:
    return Holdings(frozenset(holds), frozenset({*pods, *(each.owner for each in holds)}))


def listed(*holds: Hold, at: float = 100) -> HoldingsView:
    return EMPTY.after_list(holdings(*holds), OLD, OURS, at)


def test_where_the_kubelet_cannot_be_asked_nothing_is_known() -> None:
    for view in (EMPTY, EMPTY.after_list(Holdings(), None, OURS, 100)):
        assert view.current(100) is None
        assert [None, None] == [view.pods_to_get(one, OURS, 100) for one in (OLD, None)]


def test_what_is_known_is_what_the_last_list_said_until_it_is_stale() -> None:
    view = listed(hold("a", DOOR))
    current = view.current(190)
    assert current
    assert ({"a"}, True) == (current.of("x.io/dev"), current.complete)
    assert view.current(190.1) is None


def test_the_pods_that_hold_a_device_of_ours_are_asked_for_if_they_are_few() -> None:
    view = listed(hold("a", DOOR), hold("b", GATE, "x.io/other"))
    assert {DOOR} == view.pods_to_get(OLD, OURS, 101)
    pods: list[PodName] = [("default", f"pod{number}") for number in range(9)]
    for few, asked in (([], set()), (pods[:8], {*pods[:8]}), (pods, None)):
        assert asked == listed(*(hold("a", pod) for pod in few)).pods_to_get(OLD, OURS, 101)


def test_a_list_is_needed_now_and_then() -> None:
    view = listed(hold("a", DOOR)).after_get(holdings(hold("a", DOOR)), {DOOR}, OURS, 390)
    assert [False, True] == [view.pods_to_get(OLD, OURS, at) is None for at in (399, 400)]


def test_a_list_is_needed_of_another_kubelet_and_of_one_without_get_or_that_lacks_pods() -> None:
    view = listed(hold("a", DOOR))
    partial = EMPTY.after_list(Holdings(frozenset(), complete=False), OLD, OURS, 100)
    for needed in (view.without_get(OLD), partial):
        assert needed.pods_to_get(OLD, OURS, 101) is None
    assert view.pods_to_get(NEW, OURS, 101) is None
    assert {DOOR} == view.without_get(NEW).pods_to_get(OLD, OURS, 101)
    current = partial.current(101)
    assert current
    assert not current.complete


def test_an_answer_about_some_pods_leaves_the_others_as_they_were() -> None:
    view = listed(hold("a", DOOR), hold("b", GATE)).after_get(
        holdings(hold("c", DOOR)), {DOOR}, OURS, 120
    )
    current = view.current(200)  # as fresh as that answer
    assert current
    assert frozenset({hold("c", DOOR), hold("b", GATE)}) == current.holds


def test_a_pod_that_has_gone_is_asked_for_until_that_is_confirmed() -> None:
    view = listed(hold("a", DOOR)).after_get(holdings(), {DOOR}, OURS, 110)
    assert {DOOR: 110} == view.gone
    assert {} == view.after_get(holdings(hold("a", DOOR)), {DOOR}, OURS, 115).gone, "it is back"
    assert {DOOR} == view.pods_to_get(OLD, OURS, 111)
    view = view.after_get(holdings(), {DOOR}, OURS, 145)
    assert {DOOR: 110} == view.gone
    assert {} == view.after_get(holdings(), {DOOR}, OURS, 145.1).gone


def test_the_first_kubelet_is_believed_at_once_and_the_next_when_it_has_settled() -> None:
    answer = holdings(pods=(DOOR,))
    view = EMPTY.after_list(answer, OLD, OURS, 100)
    assert view.holdings.complete
    view = view.after_list(answer, NEW, OURS, 130)
    assert (False, NEW) == (view.holdings.complete, view.kubelet)
    later = [view.after_list(answer, NEW, OURS, at).holdings.complete for at in (189, 190)]
    assert [False, True] == later


def test_a_kubelet_that_does_not_list_our_own_pod_though_one_did_is_not_complete() -> None:
    view = HoldingsView(TIMING, own_pod="me")
    known = []
    for pods in ((DOOR,), (DOOR, ME), (DOOR,), (DOOR,), (DOOR, ME)):
        view = view.after_list(holdings(pods=pods), OLD, OURS, 100)
        known.append(view.holdings.complete)
    assert [True, True, False, False, True] == known


def test_what_others_have_through_claims_stays_after_single_pods_are_asked_for() -> None:
    of_door = ClaimedDevice("d.io", "n1/x", "a", "one", *DOOR, "main")
    of_gate = ClaimedDevice("d.io", "n1/x", "b", "two", *GATE, "main")
    newer = of_door._replace(name="c")
    before = replace(holdings(), claimed=frozenset({of_door, of_gate}))
    view = EMPTY.after_list(before, OLD, OURS, 100)
    view = view.after_get(replace(holdings(), claimed=frozenset({newer})), {DOOR}, OURS, 110)
    assert {of_gate, newer} == view.holdings.claimed


def test_an_allocation_is_for_no_pod_that_was_listed_long_before_or_is_the_plugins() -> None:
    def list_of(view: HoldingsView, *pods: PodName, at: float) -> HoldingsView:
        return view.after_list(holdings(pods=pods), OLD, OURS, at)

    view = list_of(HoldingsView(TIMING, own_pod="me"), DOOR, at=100)
    assert [set(), {DOOR}] == [view.pods_before(at) for at in (109, 110)]
    view = list_of(list_of(view, DOOR, GATE, ME, at=200), GATE, DOOR, ME, at=205)
    assert [{DOOR, ME}, {DOOR, ME, GATE}] == [view.pods_before(at) for at in (209, 210)]
    view = list_of(list_of(view, at=300), DOOR, at=305)
    assert set() == view.pods_before(310), "another pod with the same name"
