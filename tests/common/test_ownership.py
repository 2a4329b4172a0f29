"""Who may give out a device, without a kubelet and without an API server."""

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim, Mode, OfferState, Ownership
from deviceplugin._attribution.podresources import Hold, Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming
from deviceplugin._inventory.published import Resource
from deviceplugin.errors import AllocationError
from held_clock import HeldClock
from scripted_plugin import ScriptedPlugin

NAME = "x.io/dev"
A, B, C = (NAME, "a"), (NAME, "b"), (NAME, "c")
ONE, TWO = Claim("default", "one", "uid-1"), Claim("default", "two", "uid-2")
OLD, NEW = (1, 1, 1), (2, 2, 2)
TIMING = AttributionTiming.of(30)
CONFIRM, ADMISSION, DAY = 2.0, 10.0, 86400.0
UNKNOWN = "not known yet: what pods hold through the device plugin"
ALL = {"a", "b", "c"}


def holdings(*held: str, complete: bool = True, recorded: Collection[str] = ()) -> Holdings:
    """Pods that hold these, each named as its device."""
    return Holdings(
        frozenset(
            Hold(NAME, device_id, "default", f"pod-{device_id}", "main") for device_id in held
        ),
        complete=complete,
        recorded=frozenset((NAME, device_id) for device_id in recorded),
    )


class Node:
    """A resource with three devices and its ownership."""

    def __init__(self, mode: Mode, *, known: bool = True) -> None:
        self.clock = HeldClock()
        self.resource = Resource(NAME, ScriptedPlugin())
        self.resource.publish([dp.Device("a"), dp.Device("b"), dp.Device("c")])
        self.ownership = Ownership(
            mode, timing=TIMING, resources=lambda: {NAME: self.resource}, clock=self.clock
        )
        self.news = 0
        self.ownership.subscribe(self._count)
        if known:
            self.ownership.observe(holdings(), OLD)
            self.news = 0

    def _count(self) -> None:
        self.news += 1

    def allocate(self, *ids: str) -> None:
        with self.ownership.allocating(NAME, ids):
            pass

    def refusal(self, *ids: str) -> str:
        """Why an Allocate is refused; empty if it is granted."""
        try:
            self.allocate(*ids)
        except AllocationError as error:
            return str(error)
        return ""

    def refused_claim(self, claim: Claim, *ids: str) -> str:
        """Why a Prepare is refused; empty if it is granted."""
        try:
            self.ownership.prepare(claim, [(NAME, device_id) for device_id in ids])
        except AllocationError as error:
            return str(error)
        return ""

    def polls(self, *polls: Holdings, kubelet: tuple[int, int, int] = OLD) -> None:
        """The kubelet is asked, each time ``CONFIRM`` after the time before."""
        for each in polls:
            self.clock.advance(CONFIRM)
            self.ownership.observe(each, kubelet)

    def by_plugin(self) -> set[str]:
        """What the device plugin offers."""
        return self.resource.devices.keys() - self.withheld().keys()

    def withheld(self) -> Mapping[str, str]:
        return self.ownership.withheld(NAME, self.resource.devices)

    def by_dra(self) -> set[str]:
        """What a claim can get."""
        states = self.ownership.offered(self.resource).items()
        return {device_id for device_id, state in states if state.offered and not state.taint}

    def state(self, device_id: str) -> tuple[bool, str, str]:
        """What DRA says of a device."""
        return self.ownership.offered(self.resource)[device_id][1:4]


@pytest.fixture
def plugin() -> Node:
    return Node("device-plugin")


@pytest.fixture
def dra() -> Node:
    return Node("dra")


# One mode only.


def test_in_each_mode_devices_are_offered_by_its_protocol_only(plugin: Node, dra: Node) -> None:
    assert (ALL, set()) == (plugin.by_plugin(), plugin.by_dra())
    assert (set(), ALL) == (dra.by_plugin(), dra.by_dra())


def test_an_allocate_is_refused_while_dra_offers_the_device(plugin: Node, dra: Node) -> None:
    assert "" == plugin.refusal("a")
    said = "a is offered through DRA, b is offered through DRA"
    with pytest.raises(AllocationError, match=said) as caught:
        dra.allocate("b", "a")
    assert (NAME, ("a", "b")) == (caught.value.resource, caught.value.device_ids)


@pytest.mark.parametrize("mode", ["device-plugin", "dra"])
def test_a_claim_gets_a_free_device_in_either_mode(mode: Mode) -> None:
    node = Node(mode)
    assert "" == node.refused_claim(ONE, "a")
    assert {A: ONE} == node.ownership.claims()
    assert "held by claim default/one" == node.withheld()["a"]
    assert "a is held by claim default/one" == node.refusal("a")
    assert "a is held by claim default/one" == node.refused_claim(TWO, "a", "b")
    assert {A: ONE} == node.ownership.claims(), "a claim that is refused holds nothing"
    assert "" == node.refused_claim(TWO, "b")


def test_unprepare_frees_what_the_claim_held_and_no_claim_with_admin_access(dra: Node) -> None:
    for keys in ([A, B], [A, B], [A]):  # which changes nothing
        dra.ownership.prepare(ONE, keys)
    dra.ownership.prepare(TWO, [A, C], admin=[A, C])
    assert {A: ONE, B: ONE} == dra.ownership.claims()
    freed = [dra.ownership.unprepare(claim.uid) for claim in (TWO, ONE, ONE)]
    assert [set(), {A, B}, set()] == freed
    assert "" == dra.refused_claim(TWO, "a")


def test_restored_claims_hold_their_devices_before_anything_is_known() -> None:
    node = Node("dra", known=False)
    node.ownership.restore({ONE: [A], TWO: [A, B]})
    assert {A: ONE, B: TWO} == node.ownership.claims()
    assert "" == node.refused_claim(ONE, "a")
    assert "b is held by claim default/two" == node.refused_claim(ONE, "b")
    assert [set(), {A, B}] == [node.ownership.unprepare(one.uid) for one in (ONE, TWO)]


def test_a_claim_waits_until_it_is_known_what_pods_hold() -> None:
    node = Node("dra", known=False)
    for nothing in (Holdings(), holdings(complete=False)):
        node.ownership.observe(nothing, OLD)
        assert (set(), False) == (node.by_dra(), node.ownership.known)
        assert f"a is {UNKNOWN}" == node.refused_claim(ONE, "a")
    node.ownership.observe(holdings(), OLD)
    assert (ALL, True) == (node.by_dra(), node.ownership.known)
    assert "" == node.refused_claim(ONE, "a")


def test_an_unhealthy_device_is_offered_with_a_taint_and_the_reason(dra: Node) -> None:
    sick = dp.Device("a", health=dp.Health.unhealthy("ECC error: 3"))
    dra.resource.publish([sick])
    assert (
        OfferState(sick, True, "unhealthy", "ECC error: 3")
        == (dra.ownership.offered(dra.resource)["a"])
    )


# Pods that hold devices.


def test_a_claim_gets_what_a_pod_held_once_two_polls_find_it_free(dra: Node) -> None:
    dra.polls(holdings("a"))
    why = "held by pod default/pod-a through the device plugin"
    assert f"a is {why}" == dra.refused_claim(ONE, "a")
    assert (True, "held", why) == dra.state("a")
    assert {"b", "c"} == dra.by_dra()
    dra.polls(holdings())
    assert dra.refused_claim(ONE, "a")
    dra.polls(holdings())
    assert "" == dra.refused_claim(ONE, "a")


def test_a_kubelet_that_does_not_know_its_pods_frees_nothing(dra: Node) -> None:
    dra.polls(holdings("a"))
    dra.polls(*[holdings(complete=False)] * 3, kubelet=NEW)
    assert {"b", "c"} == dra.by_dra()
    dra.polls(*[holdings()] * 2, kubelet=NEW)
    assert ALL == dra.by_dra()


def test_a_device_is_held_from_its_allocation_on_though_no_pod_is_listed(plugin: Node) -> None:
    plugin.allocate("a")
    why = "a is held by a pod through the device plugin"
    assert why == plugin.refused_claim(ONE, "a")
    plugin.polls(*[holdings()] * 5)  # until its pod must have been listed or rejected
    assert why == plugin.refused_claim(ONE, "a")
    plugin.polls(holdings())
    assert "" == plugin.refused_claim(ONE, "a")


def test_a_device_is_held_while_its_allocate_is_under_way_until_that_fails(plugin: Node) -> None:
    with suppress(OSError), plugin.ownership.allocating(NAME, ["a"]):
        plugin.polls(*[holdings()] * 9)
        assert "a is held by a pod through the device plugin" == plugin.refused_claim(ONE, "a")
        raise OSError("disk")
    assert "" == plugin.refused_claim(ONE, "a")


def test_the_kubelet_decides_which_pod_gets_what_another_pod_held(plugin: Node) -> None:
    plugin.polls(holdings("a"))
    assert "" == plugin.refusal("a")


def test_what_the_kubelet_has_recorded_is_held_for_a_day(dra: Node) -> None:
    recorded = holdings(recorded=["a"])
    dra.polls(*[recorded] * 9)
    assert "a is held by a pod through the device plugin" == dra.refused_claim(ONE, "a")
    dra.clock.advance(DAY)
    dra.polls(*[recorded] * 9)  # it stays in the checkpoint of an idle kubelet
    assert "" == dra.refused_claim(ONE, "a")
    dra.ownership.unprepare(ONE.uid)
    dra.polls(holdings(), recorded)  # another pod
    assert dra.refused_claim(ONE, "a")


# From the device plugin to DRA.


def test_dra_offers_a_device_after_the_kubelets_acknowledgement_and_two_polls(plugin: Node) -> None:
    plugin.ownership.switch("dra")
    assert (set(), set()) == (plugin.by_plugin(), plugin.by_dra())
    assert (True, "held", "still offered through the device plugin") == plugin.state("a")
    assert {A, B, C} == plugin.ownership.leaving
    plugin.polls(*[holdings()] * 3)
    plugin.ownership.acknowledged([C])
    plugin.polls(holdings())
    assert set() == plugin.by_dra()
    plugin.polls(holdings())
    assert {"a", "b"} == plugin.by_dra()
    plugin.ownership.acknowledged([])
    plugin.polls(*[holdings()] * 2)
    assert (ALL, frozenset()) == (plugin.by_dra(), plugin.ownership.leaving)


@pytest.mark.parametrize(
    "polls",
    [
        pytest.param([holdings(), holdings(complete=False)], id="the kubelet lacks its pods"),
        pytest.param([holdings(), holdings("a", "b", "c")], id="a pod has it after all"),
        pytest.param([holdings(), holdings(recorded=ALL)], id="recorded"),
        pytest.param([Holdings()] * 9, id="nothing is known of pods"),
    ],
)
def test_dra_does_not_offer_what_may_be_held(plugin: Node, polls: list[Holdings]) -> None:
    plugin.ownership.switch("dra")
    plugin.ownership.acknowledged([])
    plugin.polls(*polls, holdings())
    assert set() == plugin.by_dra()


def test_dra_offers_nothing_by_polls_of_two_kubelets(plugin: Node) -> None:
    plugin.ownership.switch("dra")
    for _ in range(2):
        plugin.ownership.acknowledged([])
    plugin.polls(holdings())
    plugin.polls(holdings(), kubelet=NEW)
    plugin.ownership.observe(holdings(), NEW)  # too early
    assert set() == plugin.by_dra()
    plugin.polls(holdings(), kubelet=NEW)
    assert ALL == plugin.by_dra()


def test_a_pod_that_was_bound_before_the_switch_still_gets_its_device(plugin: Node) -> None:
    plugin.ownership.switch("dra")
    assert "" == plugin.refusal("a")
    plugin.ownership.acknowledged([])
    plugin.polls(holdings("a"), holdings("a"), holdings("a"))
    assert {"b", "c"} == plugin.by_dra()
    plugin.clock.advance(ADMISSION)
    plugin.polls(holdings())
    assert {"b", "c"} == plugin.by_dra()
    plugin.polls(holdings())
    assert ALL == plugin.by_dra()


def test_a_claim_may_get_a_device_before_its_switch_is_over(plugin: Node) -> None:
    plugin.ownership.switch("dra")
    assert "" == plugin.refused_claim(ONE, "a")
    assert "a is held by claim default/one" == plugin.refusal("a")
    assert (True, "", "") == plugin.state("a")


def test_a_new_device_is_offered_by_the_mode_at_once(plugin: Node) -> None:
    plugin.ownership.switch("dra")
    plugin.resource.publish([dp.Device("a"), dp.Device("new")])
    assert {"new"} == plugin.by_dra()
    assert "new is offered through DRA" == plugin.refusal("new")


def test_dra_is_draining_while_pods_or_the_device_plugin_have_devices(plugin: Node) -> None:
    owned = plugin.ownership
    assert (False, False) == (owned.draining, owned.wanted)
    plugin.polls(holdings("a"))
    assert (False, False) == (owned.draining, owned.wanted)
    owned.switch("dra")
    owned.acknowledged([])
    assert (True, True) == (owned.draining, owned.wanted)
    plugin.polls(holdings("a"), holdings("a"))
    assert (True, True) == (owned.draining, owned.wanted)
    others = Holdings(frozenset({Hold("y.io/other", "a", "default", "pod", "main")}))
    plugin.polls(others, others)
    assert (False, True) == (owned.draining, owned.wanted)


def test_a_claim_keeps_its_devices_over_the_switch_and_pods_matter_meanwhile(dra: Node) -> None:
    dra.ownership.prepare(ONE, [A])
    dra.ownership.switch("device-plugin")
    assert dra.ownership.wanted
    dra.ownership.published([])
    assert ({"b", "c"}, True) == (dra.by_plugin(), dra.ownership.wanted)
    assert "" == dra.refused_claim(ONE, "a")
    dra.ownership.unprepare(ONE.uid)
    assert (ALL, False) == (dra.by_plugin(), dra.ownership.wanted)


# From DRA to the device plugin.


def test_a_switch_to_the_device_plugin_waits_until_the_slices_are_gone(dra: Node) -> None:
    dra.ownership.switch("device-plugin")
    assert (set(), set()) == (dra.by_plugin(), dra.by_dra())
    assert not dra.state("a")[0]
    assert "a is still offered through DRA" == dra.refusal("a")
    dra.ownership.published([A, B])
    assert {"c"} == dra.by_plugin()
    assert "" == dra.refusal("c")
    dra.ownership.published([])
    assert (ALL, frozenset()) == (dra.by_plugin(), dra.ownership.leaving)


def test_a_switch_back_before_the_end_of_the_first_gives_back_only_what_went(plugin: Node) -> None:
    plugin.ownership.switch("dra")
    plugin.ownership.acknowledged([B, C])
    plugin.polls(*[holdings()] * 2)
    assert {"a"} == plugin.by_dra()
    plugin.ownership.switch("device-plugin")
    assert {"b", "c"} == plugin.by_plugin()
    plugin.ownership.published([])
    assert ALL == plugin.by_plugin()


def test_a_switch_to_the_same_mode_changes_nothing(plugin: Node, dra: Node) -> None:
    """Nor do acknowledgements of the other direction."""
    plugin.ownership.switch("device-plugin")
    plugin.ownership.acknowledged([])
    plugin.polls(*[holdings()] * 3)
    dra.ownership.published([])
    assert (ALL, 0, "device-plugin") == (plugin.by_plugin(), plugin.news, plugin.ownership.mode)
    assert ALL == dra.by_dra()


# News.


def test_there_is_news_when_what_is_offered_may_have_changed(dra: Node) -> None:
    dra.ownership.prepare(ONE, [A])
    dra.ownership.unprepare(ONE.uid)
    dra.ownership.restore({})
    dra.polls(holdings("a"), holdings("a"))
    dra.ownership.switch("device-plugin")
    dra.ownership.published([])
    dra.ownership.published([])
    assert 6 == dra.news


def test_an_allocation_is_news_for_dra_only(plugin: Node) -> None:
    plugin.allocate("a")
    assert 0 == plugin.news
    plugin.ownership.switch("dra")
    plugin.allocate("b")
    assert 2 == plugin.news


# Many threads.


def test_of_a_pod_and_two_claims_at_once_exactly_one_gets_the_device() -> None:
    start = threading.Barrier(3)

    def gets(node: Node, claim: Claim | None) -> bool:
        start.wait()
        return "" == (node.refused_claim(claim, "a") if claim else node.refusal("a"))

    with ThreadPoolExecutor(3) as pool:
        for _ in range(50):
            node = Node("device-plugin")
            assert 1 == sum(pool.map(gets, [node] * 3, (None, ONE, TWO)))


def test_what_an_operator_holds_is_refused_at_once_before_any_list_says_so() -> None:
    ownership = Node("device-plugin").ownership
    with ownership.allocating(NAME, ["b"]):  # begun before the hold, so that it counts as in use
        ownership.hold({A: "held: x", B: "held: x"})
        ownership.observe(holdings(), OLD)
        assert ["a pod"] == ownership.users([A, B])
    with pytest.raises(AllocationError, match="a is held: x"), ownership.allocating(NAME, ["a"]):
        pytest.fail("it was given out")
    ownership.hold({})
    with ownership.allocating(NAME, ["a"]):
        assert ["a pod"] == ownership.users([A])
