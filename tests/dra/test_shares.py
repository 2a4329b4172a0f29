"""Devices that are shares of one: in slices, in claims, and while shares change hands."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from deviceplugin._attribution.ownership import UNHEALTHY, Claim, OfferState
from deviceplugin._config.slices import HELD
from deviceplugin._dra.naming import device_name
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.pools import OnUnhealthy, PoolCatalogue
from deviceplugin.kit import sharing
from drivers.driver_node import DRIVER, NODE, POOL, RESOURCE, DriverNode, cdi_name, gopher, result

COUNTED = {"default": "1", "validRange": {"min": "1", "step": "1"}}
ONLY_ONE = {"default": "1", "validRange": {"min": "1", "max": "1"}}
SICK = dp.Health.unhealthy("hot")


def shares(name: str, count: int, **fields: Any) -> list[dp.Device]:
    return [*sharing.shares(gopher(name, **fields), count)]


def ids(name: str, *numbers: int) -> list[str]:
    return [sharing.share_id(name, number) for number in numbers]


def share(name: str, number: int, count: str = "1", request: str = "one") -> dict[str, Any]:
    """Return a result of an allocation, as the scheduler makes it for a shared device."""
    consumed = {"shares": count, "memory": "0"}
    return result(name, request, shareID=f"share-{number}", consumedCapacity=consumed)


@pytest.fixture
def node(tmp_path: Path) -> DriverNode:
    return DriverNode(tmp_path, *shares("gary", 4), gopher("gina"))


# Slices.


def bodies(
    *states: OfferState, counted: bool = True, on_unhealthy: OnUnhealthy = "no-schedule"
) -> list[dict[str, Any]]:
    catalogue = PoolCatalogue(Describer(DRIVER), NODE, on_unhealthy)
    offered = {RESOURCE: {one.device.id: one for one in states}}
    ((_, entries, _),) = catalogue.pools(offered, counted=counted)
    return [dict(one.body) for one in entries]


def states(
    count: int = 4, taints: Mapping[int, str] = {}, claimed: Mapping[int, Any] = {}, **fields: Any
) -> list[OfferState]:
    return [
        OfferState(one, True, taints.get(i, ""), "", claimed.get(i, ""))
        for i, one in enumerate(shares("gary", count, **fields))
    ]


def count_of(body: Mapping[str, Any]) -> tuple[str, list[str]]:
    taints = [one["key"].partition("/")[2] for one in body.get("taints", ())]
    return body["capacity"]["shares"]["value"], taints


def test_shares_of_a_device_are_one_device_in_slices() -> None:
    (body,) = bodies(*states(attributes={"model": "x"}, topology=dp.Topology((1,))))
    assert "gary" == body["name"]
    assert body["allowMultipleAllocations"] is True
    assert {"shares": {"value": "4", "requestPolicy": COUNTED}} == body["capacity"]
    found = {name: next(iter(value.values())) for name, value in body["attributes"].items()}
    numa = {"numaNode": 1, "resource.kubernetes.io/numaNode": 1}
    assert {"id": "gary", "resource": RESOURCE, "model": "x", **numa} == found


def test_the_last_share_has_no_step_because_the_api_server_refuses_it() -> None:
    (body,) = bodies(*states(taints={0: HELD, 1: HELD, 2: HELD}))
    assert {"shares": {"value": "1", "requestPolicy": ONLY_ONE}} == body["capacity"]


def test_what_else_a_shared_device_has_is_consumed_only_by_claims_that_ask_for_it() -> None:
    (body,) = bodies(*states(capacity={"memory": "80Gi", "shares": 7}))
    assert {"value": "80Gi", "requestPolicy": {"default": "0"}} == body["capacity"]["memory"]
    own = {name for name in body["capacity"] if name.startswith("shares")}
    assert {"shares", *own} == own
    assert {"4", "7"} == {body["capacity"][name]["value"] for name in own}


def test_shares_leave_room_for_31_attributes_and_capacities() -> None:
    many = {f"a{i}": i for i in range(40)}
    (body,) = bodies(*states(attributes=many, capacity={"memory": 1}))
    assert 32 == len(body["attributes"]) + len(body["capacity"])
    assert {"memory", "shares"} == body["capacity"].keys()


@pytest.mark.parametrize(
    ("taints", "claimed", "expected"),
    [
        pytest.param({}, {}, ("4", []), id="all free"),
        pytest.param({0: HELD, 3: HELD}, {}, ("2", []), id="two held by pods"),
        pytest.param({}, {0: "share", 1: "share"}, ("4", []), id="two counted by Kubernetes"),
        pytest.param({0: HELD}, {1: "share"}, ("3", []), id="one of each"),
        pytest.param({}, {0: "device"}, ("3", []), id="one from before they were counted"),
        pytest.param(dict.fromkeys(range(4), HELD), {}, ("4", [HELD]), id="all held by pods"),
        pytest.param({}, dict.fromkeys(range(4), "device"), ("4", [HELD]), id="all from before"),
        pytest.param(dict.fromkeys(range(3), HELD), {3: "share"}, ("1", []), id="none is left"),
        pytest.param(dict.fromkeys(range(4), UNHEALTHY), {}, ("4", [UNHEALTHY]), id="unhealthy"),
        pytest.param(
            {0: HELD, **dict.fromkeys(range(1, 4), UNHEALTHY)},
            {1: "share"},
            ("3", [UNHEALTHY]),
            id="unhealthy, one held",
        ),
        pytest.param({0: UNHEALTHY, 1: UNHEALTHY}, {1: "share"}, ("3", []), id="partly unhealthy"),
    ],
)
def test_a_slice_has_the_shares_that_claims_can_have(
    taints: dict[int, str], claimed: dict[int, Any], expected: tuple[str, list[str]]
) -> None:
    (body,) = bodies(*states(4, taints, claimed))
    assert expected == count_of(body)


def test_who_holds_a_share_keeps_it_though_all_are_held_by_others() -> None:
    (body,) = bodies(*states(2, {0: HELD, 1: HELD}), on_unhealthy="no-execute")
    assert ["NoSchedule"] == [one["effect"] for one in body["taints"]]
    (body,) = bodies(*states(2, {0: UNHEALTHY, 1: UNHEALTHY}), on_unhealthy="no-execute")
    assert ["NoExecute"] == [one["effect"] for one in body["taints"]]


def test_where_shares_are_not_counted_each_is_a_device() -> None:
    found = bodies(*states(3, {1: HELD}, {2: "share"}), counted=False)
    assert [device_name(one) for one in ids("gary", 0, 1, 2)] == [one["name"] for one in found]
    assert [[], ["held"], ["held"]] == [
        [each["key"].partition("/")[2] for each in one.get("taints", ())] for one in found
    ]
    assert not any("allowMultipleAllocations" in one for one in found)


def test_devices_and_shares_stand_side_by_side_in_their_order() -> None:
    plain = OfferState(gopher("b"), True, "", "")
    first, last = shares("a", 2), shares("c", 2)
    offered = [OfferState(one, True, "", "") for one in (*first, plain.device, *last)]
    assert ["a", "b", "c"] == [one["name"] for one in bodies(*offered)]


def test_a_device_of_the_name_of_a_shared_one_leaves_each_share_a_device() -> None:
    offered = [OfferState(one, True, "", "") for one in (*shares("a", 2), gopher("a"))]
    assert ["a", *(device_name(one) for one in ids("a", 0, 1))] == sorted(
        one["name"] for one in bodies(*offered)
    )


def test_a_claim_that_takes_a_share_changes_no_slice() -> None:
    catalogue = PoolCatalogue(Describer(DRIVER), NODE, "no-schedule")
    before, after = (
        catalogue.pools({RESOURCE: {one.device.id: one for one in states(claimed=claimed)}})
        for claimed in ({}, {0: "share"})
    )
    assert before[0].entries[0] is after[0].entries[0]


# Claims.


def test_claims_share_a_device(node: DriverNode) -> None:
    one, two = node.allocate("one", share("gary", 1)), node.allocate("two", share("gary", 2))
    (first,), (second,) = node.prepare(one), node.prepare(two)
    assert ids("gary", 0) + ids("gary", 1) == [first.id, second.id]
    assert [("gary", "share-1"), ("gary", "share-2")] == [
        (each.name, each.share) for each in (first, second)
    ]
    assert [cdi_name(one)] == [*first.cdi_names]


def test_several_shares_are_one_answer_and_as_many_devices_for_the_plugin(node: DriverNode) -> None:
    claim = node.allocate("one", share("gary", 1, "3"))
    (answer,) = node.prepare(claim)
    assert ("share-1", [cdi_name(claim)]) == (answer.share, [*answer.cdi_names])
    (name,) = node.cdi_files()
    (device,) = json.loads((node.cdi_dir / name).read_text())["devices"]
    assert f"GOPHER={','.join(ids('gary', 0, 1, 2))}" in device["containerEdits"]["env"]
    node.unprepare(claim)
    assert ("released", ids("gary", 0, 1, 2)) == node.plugin.calls[-1]
    assert {} == node.ownership.claims()


def test_a_claim_does_not_get_shares_that_others_have_or_that_there_are_not(
    node: DriverNode,
) -> None:
    node.prepare(node.allocate("one", share("gary", 1, "3")))
    two = node.allocate("two", share("gary", 2, "2"))
    refusal = node.refusal(two)
    assert refusal.startswith("2 of the 4 shares of gary are needed, and 1 are free: gary::0 is")
    assert "gary::2 is held by claim default/one" in refusal
    node.unprepare(Claim("default", "one", "uid-one"))
    assert "5 of the 4 shares of gary are needed, and 4 are free: the claim has the others" == (
        node.refusal(node.allocate("three", share("gary", 3, "5")))
    )
    assert ids("gary", 0) == [one.id for one in node.prepare(two)]
    assert 2 == len(node.ownership.claims())


def test_shares_are_counted_as_the_api_server_writes_them(tmp_path: Path) -> None:
    node = DriverNode(tmp_path, *shares("gary", 1000))
    node.prepare(node.allocate("one", share("gary", 1, "1k")))
    assert 1000 == len(node.ownership.claims())


@pytest.mark.parametrize("amount", ["x", "500m", "-1", "0x1", "9999999"])
def test_an_amount_that_is_no_number_of_shares_is_refused(node: DriverNode, amount: str) -> None:
    expected = f"{amount!r} shares: not a number of shares"
    assert expected == node.refusal(node.allocate("one", share("gary", 1, amount)))


def test_a_share_that_consumes_nothing_counted_is_one(node: DriverNode) -> None:
    claim = node.allocate("one", result("gary", shareID="s"))
    assert ids("gary", 0) == [one.id for one in node.prepare(claim)]


def killed(node: DriverNode) -> None:
    """Begin again as after a process that was killed while it prepared claim one."""
    path = node.claims_dir / "uid-one.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "state": "preparing", "document": None}))
    node.restart()


@pytest.mark.parametrize("begin_again", [DriverNode.restart, DriverNode.boot, killed])
def test_a_claim_has_the_same_shares_again(
    node: DriverNode, begin_again: Callable[[DriverNode], None]
) -> None:
    other = node.allocate("other", share("gary", 9))
    node.prepare(other)
    claim = node.allocate("one", share("gary", 1, "2"), share("gary", 2, request="two"))
    answers = node.prepare(claim)
    assert [("one", "share-1", "gary::1"), ("two", "share-2", "gary::3")] == [
        (one.request, one.share, one.id) for one in answers
    ]
    calls = [("allocate", ids("gary", 1, 2)), ("allocate", ids("gary", 3))]
    assert calls == [call for call in node.plugin.calls if call[0] == "allocate"][1:]
    node.unprepare(other)  # a lower id is free now
    assert answers == node.prepare(claim)
    begin_again(node)
    assert answers == node.prepare(claim)
    assert set(ids("gary", 1, 2, 3)) == {id_ for _, id_ in node.ownership.claims()}


def test_a_claim_without_a_share_has_the_whole_device(node: DriverNode) -> None:
    whole = node.allocate("whole", result("gary"))
    assert 1 == len(node.prepare(whole))
    assert ("allocate", ids("gary", 0, 1, 2, 3)) == node.plugin.calls[-1]
    assert "0 are free" in node.refusal(node.allocate("one", share("gary", 1)))
    node.unprepare(whole)
    node.prepare(node.allocate("one", share("gary", 1)))
    assert "4 of the 4 shares of gary are needed, and 3 are free" in node.refusal(whole)


def test_an_administrator_has_shares_that_others_have(node: DriverNode) -> None:
    node.prepare(node.allocate("one", share("gary", 1, "4")))
    admin = node.allocate("admin", {**share("gary", 2, "2"), "adminAccess": True})
    assert ids("gary", 0) == [one.id for one in node.prepare(admin)]
    assert {"one"} == {claim.name for claim in node.ownership.claims().values()}


def test_shares_that_pods_hold_through_the_device_plugin_are_not_given(node: DriverNode) -> None:
    node.hold("gary::0", "gary::1")
    (given,) = node.prepare(node.allocate("one", share("gary", 1)))
    assert "gary::2" == given.id
    expected = "gary::0 is held by pod default/pod through the device plugin"
    assert expected in node.refusal(node.allocate("two", share("gary", 2, "2")))


def test_shares_that_the_device_plugin_may_still_give_out_are_given_last(tmp_path: Path) -> None:
    node = DriverNode(tmp_path, *shares("gary", 3))
    node.ownership.switch("device-plugin")
    node.ownership.published([])
    node.ownership.switch("dra")  # all are still the device plugin's
    node.ownership._handover.end([(RESOURCE, "gary::1")])
    (given,) = node.prepare(node.allocate("one", share("gary", 1)))
    assert "gary::1" == given.id
    (given,) = node.prepare(node.allocate("two", share("gary", 2)))
    assert "gary::0" == given.id


def test_unhealthy_shares_are_not_given(node: DriverNode) -> None:
    node.resource.publish([*shares("gary", 2, health=SICK), *shares("gary", 4)[2:]])
    (given,) = node.prepare(node.allocate("one", share("gary", 1)))
    assert "gary::2" == given.id
    node.resource.publish(shares("gary", 4, health=SICK))
    assert "unhealthy device: gary (hot)" == node.refusal(node.allocate("two", share("gary", 2)))
    tolerant = node.allocate("two", {**share("gary", 2), "tolerations": [{"operator": "Exists"}]})
    assert 1 == len(node.prepare(tolerant))


def test_a_claim_from_before_shares_were_counted_keeps_its_own(node: DriverNode) -> None:
    claim = node.allocate("old", result("gary::0"))
    before = node.prepare(claim)
    node.boot()
    assert before == node.prepare(claim)
    assert ["device"] == [
        one.claimed for one in node.ownership.offered(node.resource).values() if one.claimed
    ]
    (new,) = node.prepare(node.allocate("new", share("gary", 1)))
    assert "gary::1" == new.id


# Health.


def report(node: DriverNode) -> dict[str, str]:
    health = node.health()
    return {one.device: one.status for one in health.read() if one.pool == POOL}


def test_the_health_of_shares_is_that_of_their_device(node: DriverNode) -> None:
    assert {"gary": "healthy", "gina": "healthy"} == report(node)
    node.resource.publish([*shares("gary", 3, health=SICK), *shares("gary", 4)[3:]])
    assert "healthy" == report(node)["gary"]
    node.resource.publish(shares("gary", 4, health=SICK))
    assert {"gary": "unhealthy"} == report(node)


def test_a_share_that_a_claim_has_by_its_own_name_is_reported_by_it(node: DriverNode) -> None:
    node.prepare(node.allocate("old", result("gary::0")))
    assert {"gary", "gina", device_name("gary::0")} == report(node).keys()


# Whatever happens.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("prepare"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("old"), st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.just("whole"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("unprepare"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pods"), st.integers(0, 15), st.just(0)),
        st.tuples(st.just("sick"), st.integers(0, 15), st.just(0)),
        st.tuples(st.sampled_from(["restart", "boot"]), st.just(0), st.just(0)),
    ),
    max_size=30,
)


class Shared:
    """A device with four shares, and what its claims were told that they have."""

    def __init__(self, node: DriverNode) -> None:
        self.node = node
        self.given: dict[str, tuple[Claim, frozenset[str]]] = {}
        self.counted: dict[str, int] = {}
        """What the scheduler counts as consumed."""
        self.whole: set[str] = set()

    def do(self, what: str, one: int, two: int) -> None:
        node, name = self.node, f"c{one}"
        if what in {"prepare", "old", "whole"}:
            if name not in self.given:
                self._prepare(what, name, two)
        elif what == "unprepare":
            node.unprepare(Claim("default", name, f"uid-{name}"))
            self.given.pop(name, None)
            self.counted.pop(name, None)
            self.whole.discard(name)
        elif what == "pods":
            held = {key[1] for key in node.ownership.claims()}
            node.hold(*(each for each in _chosen(one) if each not in held))
        elif what == "sick":
            sick = set(_chosen(one))
            node.resource.publish(
                [
                    dp.Device(each.id, share_of="gary", health=SICK if each.id in sick else HEALTHY)
                    for each in shares("gary", 4)
                ]
            )
        else:
            getattr(node, what)()
            for claim, found in self.given.values():
                self._again(claim, found)

    def _again(self, claim: Claim, found: frozenset[str]) -> None:
        """Prepare a claim once more: unless its shares are unhealthy, it has the same ones."""
        try:
            self.node.prepare(claim)
        except dp.DevicePluginError:
            return
        health = {key: one.health for key, one in self.node.resource.devices.items()}
        record = self.node.records.all()[claim.uid]
        if all(health[one] for one in found):
            assert {one.id for one in record.devices} == found
        # Whatever else it has now, it keeps what it had: its container may still be running.
        now = frozenset(one.id for one in record.devices)
        assert found <= now
        self.given[claim.name] = claim, now

    def _prepare(self, what: str, name: str, two: int) -> None:
        wanted = {
            "prepare": share("gary", int(name[1:]), str(two)),
            "old": result(f"gary::{two}"),
            "whole": result("gary"),
        }[what]
        claim = self.node.allocate(name, wanted)
        try:
            self.node.prepare(claim)
        except dp.DevicePluginError:
            return
        self.given[name] = claim, frozenset(self.node.plugin.calls[-1][1])
        if what == "prepare":
            self.counted[name] = two
        elif what == "whole":
            self.whole.add(name)

    def check(self) -> None:
        holders = self.node.ownership.claims()
        for claim, found in self.given.values():
            assert {key[1] for key, each in holders.items() if each == claim} == found
        pods = set(self.node.ownership._pods.held)
        assert not pods & holders.keys()
        self._check_offer(holders)

    def _check_offer(self, holders: Mapping[Any, Claim]) -> None:
        found = self.node.ownership.offered(self.node.resource)
        (body,) = bodies(*found.values())
        value, taints = count_of(body)
        usable = [
            one for key, one in found.items() if (RESOURCE, key) not in holders and not one.taint
        ]
        if taints:
            assert [] == usable
        elif not self.whole:
            # A claim whose shares turned unhealthy holds more once it is prepared again.
            held = sum(one.claimed == "share" for one in found.values())
            assert len(usable) == int(value) - held
            assert held >= sum(self.counted.values())


HEALTHY = dp.Health()


def _chosen(bits: int) -> Sequence[str]:
    return [f"gary::{number}" for number in range(4) if bits >> number & 1]


@given(steps=STEPS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_share_is_given_twice_and_as_many_are_offered_as_are_free(
    steps: list[tuple[str, int, int]],
) -> None:
    with TemporaryDirectory(prefix="shares-") as path:
        shared = Shared(DriverNode(Path(path), *shares("gary", 4)))
        for step in steps:
            shared.do(*step)
            shared.check()
