"""What is written to the API server when what is offered changes."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deviceplugin as dp
from deviceplugin._attribution.ownership import UNHEALTHY, OfferState, Ownership
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._config.slices import HELD
from deviceplugin._dra.naming import pool_name, slice_name
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.plan import CONTENT, Write, lay_out, plan
from deviceplugin._dra.slices.pools import (
    Offers,
    OnUnhealthy,
    Pool,
    PoolCatalogue,
    Site,
    SliceDevice,
    offers,
    withheld,
)
from deviceplugin._inventory.published import Resource
from deviceplugin_testing.simulator._control_plane.rules.slices import check_slice
from dra.memory_store import MemoryStore, Object
from scripted_plugin import ScriptedPlugin

DRIVER, NODE, RESOURCE = "gopher.example.com", "n1", "example.com/gopher"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "u"}
SITE = Site(DRIVER, NODE, OWNER)
POOL = pool_name(NODE, RESOURCE)


def name(index: int) -> str:
    return slice_name(DRIVER, NODE, POOL, index)


def state(device_id: str, taint: str = "", **fields: Any) -> OfferState:
    return OfferState(dp.Device(device_id, **fields), True, taint, "")


def pools(
    *states: OfferState, on_unhealthy: OnUnhealthy = "no-schedule", resource: str = RESOURCE
) -> list[Pool]:
    offered: Offers = {resource: {one.device.id: one for one in states}}
    return PoolCatalogue(Describer(DRIVER), NODE, on_unhealthy).pools(offered)


def devices(count: int, **taints: str) -> list[OfferState]:
    return [state(f"d{i:04}", taints.get(f"d{i:04}", "")) for i in range(count)]


class Server(MemoryStore):
    """An API server on which plans are carried out."""

    def become(self, want: Sequence[Pool], site: Site = SITE) -> list[str]:
        """Write what is needed, check that it is enough, and return what was written."""
        writes = plan(self.slices.values(), want, site)
        for write in writes:
            self.do(write)
        again = plan(self.slices.values(), want, site)
        assert [] == again
        self.check()
        return [f"{write.action} {self.index(write.name)}" for write in writes]

    def do(self, write: Write) -> None:
        if write.action == "delete":
            self.delete(write.name, write.uid)
        else:
            assert write.body is not None
            (self.create if write.action == "create" else self.replace)(write.body)

    def check(self) -> None:
        """Check that consumers take each pool as complete, and each device once."""
        for one in self.slices.values():
            assert [] == [*check_slice(one)]
        for pool in {one["spec"]["pool"]["name"] for one in self.slices.values()}:
            found = [o["spec"] for o in self.slices.values() if o["spec"]["pool"]["name"] == pool]
            assert {len(found)} == {spec["pool"]["resourceSliceCount"] for spec in found}
            assert 1 == len({spec["pool"]["generation"] for spec in found})
            names = [device["name"] for spec in found for device in spec["devices"]]
            assert len(names) == len(set(names))

    @staticmethod
    def index(slice_name: str) -> str:
        return next((str(i) for i in range(40) if name(i) == slice_name), slice_name)

    def names(self, index: int) -> list[str]:
        return [device["name"] for device in self.slices[name(index)]["spec"]["devices"]]

    @property
    def generation(self) -> int:
        return int(self.slices[name(0)]["spec"]["pool"]["generation"])


def test_a_slice_says_whose_it_is_and_what_is_there() -> None:
    server = Server()
    assert ["create 0"] == server.become(pools(state("gerd", attributes={"age": 3})))
    one = server.slices[name(0)]
    assert [OWNER] == one["metadata"]["ownerReferences"]
    assert 32 == len(one["metadata"]["annotations"][CONTENT])
    assert {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": POOL, "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gerd",
                "attributes": {
                    "id": {"string": "gerd"},
                    "resource": {"string": RESOURCE},
                    "age": {"int": 3},
                },
            }
        ],
    } == one["spec"]


def test_each_resource_has_a_pool_which_may_be_empty_and_one_that_is_not_wanted_has_none() -> None:
    server = Server()
    assert ["create 0"] == server.become(pools())
    assert [] == server.names(0)
    assert ["replace 0"] == server.become(pools(state("a")))
    other = pools(state("a"), resource="example.com/other")
    server.become([*pools(), *other])
    assert 2 == len(server.slices)
    assert ["delete 0"] == server.become(other)
    assert 1 == len(server.become([]))
    assert {} == server.slices


def test_a_thousand_devices_are_sixteen_slices_in_order_and_one_change_is_one_write() -> None:
    server, every = Server(), devices(1000)
    assert [f"create {i}" for i in range(16)] == server.become(pools(*every))
    assert [f"d{i:04}" for i in range(64, 128)] == server.names(1)
    assert sorted(server.slices) == [name(i) for i in range(16)]
    for change in (devices(1000, d0500=UNHEALTHY), [*every[:500], *every[501:]]):
        assert ["replace 7"] == server.become(pools(*change))
        assert ["replace 7"] == server.become(pools(*every))
    assert 1 == server.generation


def test_the_number_of_slices_is_a_new_generation_of_all() -> None:
    server = Server()
    server.become(pools(*devices(128)))
    assert ["replace 0", "replace 1", "create 2"] == server.become(pools(*devices(129)))
    assert 2 == server.generation
    assert ["replace 2"] == server.become(pools(*devices(128)))
    assert ["replace 0", "delete 1", "delete 2"] == server.become(pools(*devices(10)))
    assert 3 == server.generation


def test_slices_that_were_deleted_are_created_as_they_were() -> None:
    server = Server()
    want = pools(*devices(200))
    server.become(want)
    before = {key: one["spec"] for key, one in server.slices.items()}
    server.wipe([name(1)])
    assert ["create 1"] == server.become(want)
    server.wipe([name(0), name(3)])
    assert ["create 0", "create 3"] == server.become(want)
    server.wipe()
    assert [f"create {i}" for i in range(4)] == server.become(want)
    assert before == {key: one["spec"] for key, one in server.slices.items()}


def test_what_the_api_server_writes_otherwise_or_adds_is_not_a_change() -> None:
    server = Server()
    shared = state("a", HELD, capacity={"memory": "1024Mi"})
    server.become(pools(shared, state("b")))
    before, _ = server.slices[name(0)]["spec"]["devices"]
    assert "1Gi" == before["capacity"]["memory"]["value"]
    server.become(pools(shared, state("b", HELD)))
    after, other = server.slices[name(0)]["spec"]["devices"]
    assert before["taints"] == after["taints"]
    assert after["taints"][0]["timeAdded"] != other["taints"][0]["timeAdded"]


@pytest.mark.parametrize(
    ("on_unhealthy", "taint", "effects"),
    [
        ("no-schedule", UNHEALTHY, ["NoSchedule"]),
        ("no-execute", UNHEALTHY, ["NoExecute"]),
        ("report", UNHEALTHY, []),
        ("no-schedule", HELD, ["NoSchedule"]),
        ("no-execute", HELD, ["NoSchedule"]),
        ("report", HELD, ["NoSchedule"]),
        ("no-execute", "", []),
    ],
)
def test_taints(on_unhealthy: OnUnhealthy, taint: str, effects: list[str]) -> None:
    (pool,) = pools(state("a", taint), on_unhealthy=on_unhealthy)
    found = pool.entries[0].body.get("taints", [])
    value = {"value": "withheld"} if taint == HELD else {}
    assert [{"key": f"{DRIVER}/{taint}", **value, "effect": one} for one in effects] == found


def test_a_device_that_is_not_offered_is_in_no_slice() -> None:
    (pool,) = pools(state("a"), state("b")._replace(offered=False))
    assert ["a"] == [entry.name for entry in pool.entries]


@pytest.mark.parametrize(
    "edit",
    [
        lambda one: one["metadata"].pop("annotations"),
        lambda one: one["metadata"]["annotations"].update({CONTENT: "x"}),
        lambda one: one["spec"]["devices"].pop(),
        lambda one: one["spec"]["devices"].append({"name": "x", "attributes": {}}),
        lambda one: one["spec"]["devices"][0].pop("taints"),
        lambda one: one["spec"]["devices"][0]["taints"][0].update(effect="NoExecute"),
        lambda one: one["spec"]["pool"].update(resourceSliceCount=10**9),
        lambda one: one["spec"].pop("devices"),
    ],
)
def test_what_somebody_edited_while_nobody_watched_is_restored(edit: Any) -> None:
    server = Server()
    want = pools(state("a", HELD), state("b"))
    server.become(want)
    edit(server.slices[name(0)])
    assert ["replace 0"] == server.become(want)
    assert ["a", "b"] == server.names(0)


def test_what_others_add_to_the_metadata_stays() -> None:
    server = Server()
    server.become(pools(state("a")))
    server.edit(name(0), lambda one: one["metadata"].update(labels={"team": "x"}))
    server.edit(name(0), lambda one: one["metadata"]["annotations"].update(note="y"))
    assert [] == server.become(pools(state("a")))
    server.become(pools(state("a", HELD)))
    metadata = server.slices[name(0)]["metadata"]
    assert ({"team": "x"}, "y") == (metadata["labels"], metadata["annotations"]["note"])


def test_an_edit_of_the_content_alone_is_found_by_whoever_has_watched() -> None:
    server = Server()
    want = pools(state("a"))
    server.become(want)
    assert [] == plan(server.slices.values(), want, SITE)
    (write,) = plan(server.slices.values(), want, SITE, intact=lambda _one: False)
    assert ("replace", name(0)) == (write.action, write.name)


def foreign(called: str, **pool: Any) -> Object:
    pool = {"name": POOL, "generation": 1, "resourceSliceCount": 1} | pool
    spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": []}
    return {"metadata": {"name": called}, "spec": spec}


@pytest.mark.parametrize(
    "called",
    [
        "other",
        "other-0000",
        slice_name("x", NODE, POOL, 0),
        slice_name(DRIVER, NODE, POOL, 0xFFFF),  # which no pool can have
    ],
)
def test_slices_of_the_driver_that_are_not_ours_are_deleted(called: str) -> None:
    server = Server()
    server.create(foreign(called, generation=5))
    server.create(foreign("old", name="n1/example.com/old"))
    assert ["create 0", f"delete {called}", "delete old"] == server.become(pools(state("a")))
    assert 6 == server.generation


def test_a_device_in_two_slices_is_in_one_again() -> None:
    server = Server()
    server.become(pools(*devices(100)))
    twin = {"name": "d0000", "attributes": {}}
    server.edit(name(1), lambda one: one["spec"]["devices"].append(twin))
    assert ["replace 0", "replace 1"] == server.become(pools(*devices(100)))
    assert 2 == server.generation


def test_without_a_node_there_is_no_owner() -> None:
    server = Server()
    server.become(pools(state("a")), Site(DRIVER, NODE, {}))
    assert "ownerReferences" not in server.slices[name(0)]["metadata"]
    assert ["replace 0"] == server.become(pools(state("a")))


def test_slices_with_more_than_they_may_have_are_laid_out_anew() -> None:
    names = [f"d{i:03}" for i in range(70)]
    assert [names[:64], names[64:]] == lay_out(names, {0: names}, 1)
    assert [[]] == lay_out([], {}, 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("have"), st.sets(st.integers(0, 180), max_size=180)),
        st.tuples(st.just("wipe"), st.sets(st.integers(0, 3), max_size=2)),
        st.tuples(st.just("crash"), st.sets(st.integers(0, 180), max_size=180)),
    ),
    max_size=8,
)


@settings(max_examples=40)
@given(STEPS, st.integers(0, 3))
def test_whatever_happens_the_slices_become_complete_and_few(
    steps: list[tuple[str, set[int]]], after: int
) -> None:
    server = Server()
    want = pools()
    server.become(want)
    for what, numbers in steps:
        if what == "wipe":
            server.wipe({name(i) for i in numbers} & server.slices.keys())
            continue
        want = pools(*(state(f"d{i:04}") for i in sorted(numbers)))
        if what == "crash":
            for write in plan(server.slices.values(), want, SITE)[:after]:
                server.do(write)
            continue
        server.become(want)
    server.become(want)
    found = [device for one in server.slices.values() for device in one["spec"]["devices"]]
    assert {entry.name for entry in want[0].entries} == {device["name"] for device in found}
    assert len(server.slices) <= max(1, -(-len(found) // 64)) + 1


def test_an_unchanged_device_is_not_described_again() -> None:
    catalogue = PoolCatalogue(Describer(DRIVER), NODE, "no-schedule")
    one, two = state("a"), state("b")

    def entries(*states: OfferState) -> Sequence[SliceDevice]:
        return catalogue.pools({RESOURCE: {s.device.id: s for s in states}})[0].entries

    before = entries(one, two)
    after = entries(one, two._replace(taint=HELD))
    assert before[0] is after[0]
    assert before[1] is not after[1]


def test_what_slices_cannot_say_is_a_problem() -> None:
    catalogue = PoolCatalogue(Describer(DRIVER), NODE, "no-schedule")
    catalogue.pools({RESOURCE: {"a": state("a", attributes={"long": "x" * 65})}})
    assert [f"{RESOURCE} a: long: is longer than 64 bytes"] == catalogue.problems()
    catalogue.pools({RESOURCE: {}})
    assert [] == catalogue.problems()


def test_devices_that_cannot_be_prepared_now_get_a_taint_and_no_pod_loses_one() -> None:
    catalogue = PoolCatalogue(Describer(DRIVER), NODE, "no-execute")
    given = {RESOURCE: {"a": state("a"), "b": state("b")._replace(taint="unhealthy")}}
    (pool,) = catalogue.pools(withheld(given))
    assert [
        [{"key": f"{DRIVER}/held", "value": "withheld", "effect": "NoSchedule"}],
        [{"key": f"{DRIVER}/unhealthy", "effect": "NoExecute"}],
    ] == [entry.body["taints"] for entry in pool.entries]


def test_what_is_offered_depends_on_the_mode_and_on_what_is_known() -> None:
    resource = Resource(RESOURCE, ScriptedPlugin())
    resource.publish([dp.Device("a")])
    resources = {RESOURCE: resource}
    ownership = Ownership("dra", resources=lambda: resources)
    assert offers(ownership, resources, complete=True) is None
    ownership.observe(Holdings(frozenset()), (1, 1, 1))
    assert offers(ownership, resources, complete=False) is None
    found = offers(ownership, resources, complete=True)
    assert found is not None
    assert found[RESOURCE]["a"].offered
    ownership.switch("device-plugin")
    assert {} == offers(ownership, resources, complete=True)
