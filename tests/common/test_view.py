"""What is known of what pods hold, without threads and without a kubelet."""

from dataclasses import replace

import pytest

from deviceplugin._attribution.holdings_view import HoldingsView
from deviceplugin._attribution.podresources import ClaimedDevice, Hold, Holdings, PodName
from deviceplugin._attribution.poll_schedule import AttributionTiming

TIMING = AttributionTiming.of(30)
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


def test_at_first_nothing_is_known_and_a_list_is_needed() -> None:
    assert EMPTY.current(100) is None
    assert EMPTY.pods_to_get(OLD, OURS, 100) is None


def test_where_the_kubelet_cannot_be_asked_nothing_is_known() -> None:
    view = EMPTY.after_list(Holdings(), None, OURS, 100)
    assert (None, None) == (view.current(100), view.pods_to_get(None, OURS, 100))


def test_what_is_known_is_what_the_last_list_said_until_it_is_stale() -> None:
    view = listed(hold("a", DOOR))
    current = view.current(190)
    assert current
    assert ({"a"}, True) == (current.of("x.io/dev"), current.complete)
    assert view.current(190.1) is None


def test_the_pods_that_hold_a_device_of_ours_are_asked_for() -> None:
    view = listed(hold("a", DOOR), hold("b", GATE, "x.io/other"))
    assert {DOOR} == view.pods_to_get(OLD, OURS, 101)


def test_where_no_pod_holds_anything_nobody_needs_to_be_asked() -> None:
    assert set() == listed().pods_to_get(OLD, OURS, 101)


@pytest.mark.parametrize(("pods", "is_list"), [(8, False), (9, True)])
def test_for_more_than_a_few_pods_a_list_is_needed(pods: int, is_list: bool) -> None:
    view = listed(*(hold(str(i), ("default", f"pod{i}")) for i in range(pods)))
    assert is_list == (view.pods_to_get(OLD, OURS, 101) is None)


def test_a_list_is_needed_now_and_then() -> None:
    view = listed(hold("a", DOOR)).after_get(holdings(hold("a", DOOR)), {DOOR}, OURS, 390)
    assert [False, True] == [view.pods_to_get(OLD, OURS, at) is None for at in (399, 400)]


def test_a_list_is_needed_of_another_kubelet_and_of_one_without_get() -> None:
    view = listed(hold("a", DOOR))
    assert view.pods_to_get(NEW, OURS, 101) is None
    assert view.without_get(OLD).pods_to_get(OLD, OURS, 101) is None
    assert view.without_get(NEW).pods_to_get(OLD, OURS, 101) is not None


def test_a_list_is_needed_after_one_that_is_not_complete() -> None:
    answer = Holdings(frozenset(), complete=False)
    view = EMPTY.after_list(answer, OLD, OURS, 100)
    assert view.pods_to_get(OLD, OURS, 101) is None
    current = view.current(101)
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
    assert {DOOR} == view.pods_to_get(OLD, OURS, 111)
    view = view.after_get(holdings(), {DOOR}, OURS, 145)
    assert {DOOR: 110} == view.gone
    view = view.after_get(holdings(), {DOOR}, OURS, 145.1)
    assert {} == view.gone


def test_a_pod_that_is_back_has_not_gone() -> None:
    view = listed(hold("a", DOOR)).after_get(holdings(), {DOOR}, OURS, 110)
    assert {} == view.after_get(holdings(hold("a", DOOR)), {DOOR}, OURS, 115).gone


def is_complete(view: HoldingsView) -> bool:
    return view.holdings.complete


def test_the_first_kubelet_is_believed_at_once_and_the_next_when_it_has_settled() -> None:
    answer = holdings(pods=(DOOR,))
    view = EMPTY.after_list(answer, OLD, OURS, 100)
    assert is_complete(view)
    view = view.after_list(answer, NEW, OURS, 130)
    assert (False, NEW) == (is_complete(view), view.kubelet)
    assert not is_complete(view.after_list(answer, NEW, OURS, 189))
    assert is_complete(view.after_list(answer, NEW, OURS, 190))


def test_a_kubelet_that_does_not_list_our_own_pod_though_one_did_is_not_complete() -> None:
    view = HoldingsView(TIMING, own_pod="me")
    known = []
    for pods in ((DOOR,), (DOOR, ME), (DOOR,), (DOOR,), (DOOR, ME)):
        view = view.after_list(holdings(pods=pods), OLD, OURS, 100)
        known.append(is_complete(view))
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
