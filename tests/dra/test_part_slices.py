"""What slices say of hardware that has parts, and what clusters keep of it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._app.slices_preview import writer
from deviceplugin._attribution.handover import Claimed
from deviceplugin._attribution.ownership import UNHEALTHY, OfferState
from deviceplugin._config.settings import Settings
from deviceplugin._config.slices import HELD
from deviceplugin._discovery.found import discover
from deviceplugin._dra.naming import device_name, slice_name
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.plan import CONTENT, lay_out, plan
from deviceplugin._dra.slices.pools import OnUnhealthy, Pool, PoolCatalogue, Site
from dra.memory_store import MemoryStore
from drivers.cakes import RESOURCE, Cakes, Kitchen
from drivers.driver_node import DRIVER, NODE

SITE = Site(DRIVER, NODE, {"kind": "Node", "uid": "u"})
POOL = f"{NODE}/{RESOURCE}"


def states(plugin: Cakes, **taints: str) -> dict[str, OfferState]:
    groups, problems = discover(plugin)
    assert not problems
    return {
        name: OfferState(one, offered=True, taint=taints.get(name, ""), reason="")
        for name, one in groups[RESOURCE].items()
    }


def catalogue(on_unhealthy: OnUnhealthy = "no-schedule") -> PoolCatalogue:
    return PoolCatalogue(Describer(DRIVER), NODE, on_unhealthy)


def counters(**given: int) -> dict[str, Any]:
    return {name.replace("_", "-"): {"value": str(amount)} for name, amount in given.items()}


def pool_of(found: Mapping[str, OfferState], **options: Any) -> Pool:
    (pool,) = catalogue().pools({RESOURCE: found}, **options)
    return pool


ALL = counters(quarter_0=1, quarter_1=1, quarter_2=1, quarter_3=1, quarters=4)


def test_slices_have_counters_and_what_each_device_takes_of_them() -> None:
    plugin = Cakes(Kitchen("cake"))
    plugin.groups = {"half@0": ["b", "a", "Mixed"]}
    pool = pool_of(states(plugin))
    assert [{"name": "cake", "counters": ALL}] == [*pool.counters]
    taken = {one.key[1]: one.body["consumesCounters"] for one in pool.entries}
    assert [{"counterSet": "cake", "counters": ALL}] == taken["cake"]
    half = {"counterSet": "cake", "counters": counters(quarter_2=1, quarter_3=1, quarters=2)}
    assert [half] == taken["cake/half@2"]
    assert [["a", "b", "mixed-f340b6d6"]] == [
        one["compatibilityGroups"] for one in taken["cake/half@0"]
    ]


def test_who_asks_for_the_resource_gets_no_part_of_a_device() -> None:
    pool = pool_of(states(Cakes(Kitchen("cake"))))
    named = {one.key[1]: one.body["attributes"]["resource"]["string"] for one in pool.entries}
    assert (RESOURCE, f"{RESOURCE}/part") == (named["cake"], named["cake/half@0"])


def test_a_part_that_takes_nothing_and_a_device_that_is_none_have_no_counters() -> None:
    of = dp.Counters("Cake 1", {"Slices": 1})
    devices = [dp.Device("a"), dp.Device("b", part=dp.Part(of, {"Slices": 0}))]
    found = {one.id: OfferState(one, True, "", "") for one in devices}
    pool = pool_of(found)
    assert ([], []) == ([*pool.counters], [e for e in pool.entries if "consumesCounters" in e.body])
    part = dp.Device("c", part=dp.Part(of, {"Slices": 1}))
    pool = pool_of({**found, "c": OfferState(part, True, "", "")})
    (found_set,) = pool.counters
    assert device_name("Cake 1") == found_set["name"]
    assert {"slices-05e9dfc2": {"value": "1"}} == found_set["counters"]


@pytest.mark.parametrize(
    ("taint", "claimed", "on_unhealthy", "there"),
    [
        ("", "", "no-schedule", True),
        (HELD, "", "no-schedule", False),
        (UNHEALTHY, "", "no-execute", False),
        (UNHEALTHY, "", "report", True),
        (UNHEALTHY, "device", "no-execute", True),
    ],
)
def test_the_scheduler_sees_no_part_that_it_would_deduct_and_not_give_out(
    taint: str, claimed: Claimed, on_unhealthy: OnUnhealthy, *, there: bool
) -> None:
    found = states(Cakes(Kitchen("cake")))
    changed = {
        name: found[name]._replace(taint=taint, claimed=claimed) for name in ("cake", "cake/half@0")
    }
    (pool,) = catalogue(on_unhealthy).pools({RESOURCE: {**found, **changed}})
    names = {one.key[1] for one in pool.entries}
    assert there == ("cake/half@0" in names)
    assert "cake" in names


def test_there_is_at_least_as_much_of_each_counter_as_claims_have() -> None:
    plugin = Cakes(Kitchen("cake"))
    plugin.kitchen.strange = {"cake/quarter@0": "x", "cake/quarter@3": "y"}
    found = states(plugin)
    pool = pool_of(found)
    left = {**ALL, **counters(quarter_0=0, quarter_3=0, quarters=2)}
    assert left == pool.counters[0]["counters"]
    for name in ("half@0", "quarter@2"):
        found[f"cake/{name}"] = found[f"cake/{name}"]._replace(claimed="device")
    left |= counters(quarter_0=1, quarters=3)
    assert left == pool_of(found).counters[0]["counters"]


def test_a_claim_has_a_counter_that_the_hardware_has_no_more() -> None:
    before, now = (dp.Counters("cake", {name: 4}) for name in ("slices", "quarters"))
    gone = dp.Device("old", health=dp.Health.unhealthy("gone"), part=dp.Part(before, {"slices": 2}))
    there = dp.Device("new", part=dp.Part(now, {"quarters": 1}))
    found = pool_of(
        {
            "old": OfferState(gone, offered=True, taint=UNHEALTHY, reason="", claimed="device"),
            "new": OfferState(there, offered=True, taint="", reason=""),
        }
    )
    assert counters(slices=2, quarters=4) == found.counters[0]["counters"]


def test_what_has_vanished_says_nothing_of_the_counters_that_are_there() -> None:
    plugin = Cakes(Kitchen("cake"))
    found = states(plugin)
    plugin.kitchen.strange = {"cake/quarter@0": "x"}
    now = states(plugin)
    gone = dp.Health.unhealthy("it is gone", "gone")
    for old, order in ((found, [*found]), (found, [*reversed(found)])):
        lost = old["cake/quarter@0"]
        part = dp.Device(lost.device.id, part=lost.device.part, health=gone)
        mixed = {name: now[name] for name in order} | {part.id: lost._replace(device=part)}
        assert "3" == pool_of(mixed).counters[0]["counters"]["quarters"]["value"]


class Server(MemoryStore):
    """An API server on which plans are carried out."""

    def become(self, pools: Sequence[Pool]) -> list[str]:
        """Write what is needed, check that it is complete, and return what was written."""
        writes = plan(self.slices.values(), pools, SITE)
        for write in writes:
            if write.body is None:
                self.delete(write.name, write.uid)
            else:
                (self.create if write.action == "create" else self.replace)(write.body)
        assert [] == plan(self.slices.values(), pools, SITE)
        for pool in pools:
            found = [one["spec"] for one in self.slices.values()]
            own = [one for one in found if one["pool"]["name"] == pool.name]
            assert {len(own)} == {one["pool"]["resourceSliceCount"] for one in own}
            assert 1 == len({one["pool"]["generation"] for one in own})
            assert all(("devices" in one) != ("sharedCounters" in one) for one in own)
        return [f"{write.action} {write.name.rpartition('-')[2]}" for write in writes]

    def sets(self, index: int = 0) -> list[str]:
        name = slice_name(DRIVER, NODE, POOL, 0xC000 + index)
        return [one["name"] for one in self.slices[name]["spec"]["sharedCounters"]]


def pools(plugin: Cakes) -> list[Pool]:
    return catalogue().pools({RESOURCE: states(plugin)})


def test_counters_have_slices_of_their_own_and_a_change_of_them_is_one_write() -> None:
    server, plugin = Server(), Cakes(Kitchen("cake", "pie"))
    assert ["create 0000", "create c000"] == server.become(pools(plugin))
    assert ["cake", "pie"] == server.sets()
    plugin.kitchen.strange = {"pie/half@0": "x"}
    assert ["replace c000"] == server.become(pools(plugin))
    plugin.kitchen.cakes = []
    assert ["replace 0000", "delete c000"] == server.become(pools(plugin))
    plugin.kitchen.cakes = ["pie"]
    assert ["replace 0000", "create c000"] == server.become(pools(plugin))


def test_eight_sets_of_counters_are_in_a_slice_and_stay_there() -> None:
    server, cakes = Server(), [f"cake-{n}" for n in range(10)]
    plugin = Cakes(Kitchen(*cakes))
    assert ["create 0000", "create 0001", "create c000", "create c001"] == server.become(
        pools(plugin)
    )
    assert (cakes[:8], cakes[8:]) == (server.sets(), server.sets(1))
    plugin.kitchen.cakes.remove("cake-3")
    assert ["replace 0000", "replace c000"] == server.become(pools(plugin))
    assert (7, cakes[8:]) == (len(server.sets()), server.sets(1))
    assert [["a"]] == lay_out(["a"], {}, 0, 8)


def test_counters_that_somebody_else_edits_are_written_again() -> None:
    server, want = Server(), pools(Cakes(Kitchen("cake")))
    server.become(want)
    name = slice_name(DRIVER, NODE, POOL, 0xC000)
    server.edit(name, lambda one: one["spec"]["sharedCounters"][0].update(name="other"))
    assert ["replace c000"] == server.become(want)


def test_a_device_and_its_counters_may_have_one_name_in_a_plan() -> None:
    server, plugin = Server(), Cakes(Kitchen("cake", *(f"a{n}" for n in range(9))))
    server.become(pools(plugin))
    assert "cake" in [*server.sets(), *server.sets(1)]
    assert [] == server.become(pools(plugin))


def test_a_pool_without_parts_is_what_it_was() -> None:
    (write,) = plan([], [pool_of({"a": OfferState(dp.Device("a"), True, "", "")})], SITE)
    assert write.body is not None
    assert {"driver", "nodeName", "pool", "devices"} == write.body["spec"].keys()
    assert "cbc09e89e1a9715351703b3f62ab3ae5" == write.body["metadata"]["annotations"][CONTENT]


def test_a_preview_has_the_counters() -> None:
    plugin = Cakes(Kitchen("cake"))
    groups, _ = discover(plugin)
    text = writer([plugin], Settings(driver_name=DRIVER), of_classes=False)(groups)
    first, second = (json.loads(one) for one in text.split("---\n")[1:])
    assert (7, 2) == (len(first["spec"]["devices"]), first["spec"]["pool"]["resourceSliceCount"])
    assert ["cake"] == [one["name"] for one in second["spec"]["sharedCounters"]]
