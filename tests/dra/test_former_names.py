"""Claims that an earlier release has offered name devices by shorter hashes."""

from pathlib import Path
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._dra.naming import device_name, former_name
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.pools import PoolCatalogue, withheld
from deviceplugin.kit import sharing
from drivers.driver_node import DRIVER, NODE, POOL, RESOURCE, DriverNode, gopher, result

GARY, GINA = "GPU-Gary", "GPU-Gina"


def formerly(device_id: str, **more: Any) -> dict[str, Any]:
    """Return a result of an allocation by an earlier release."""
    return {**result(device_id, **more), "device": former_name(device_id)}


def shares(device_id: str, count: int) -> list[dp.Device]:
    return [gopher(sharing.share_id(device_id, n), share_of=device_id) for n in range(count)]


@pytest.fixture
def node(tmp_path: Path) -> DriverNode:
    return DriverNode(tmp_path, gopher(GARY), gopher(GINA))


def in_slices(node: DriverNode) -> list[tuple[str, Any]]:
    """Return the names of the devices in slices, and what slices say of them."""
    former = {key for one in node.records.all().values() for key in one.formerly_named}
    offers = withheld({RESOURCE: node.ownership.offered(node.resource)}, former)
    (pool,) = PoolCatalogue(Describer(DRIVER), NODE, "no-schedule").pools(offers)
    return [(one.name, one.body) for one in pool.entries]


def tainted(node: DriverNode) -> dict[str, list[str]]:
    """Return the taints of the devices in slices, by name."""
    return {
        name: [taint["key"].partition("/")[2] for taint in body.get("taints", ())]
        for name, body in in_slices(node)
    }


def test_a_claim_of_an_earlier_release_gets_its_device(node: DriverNode) -> None:
    (given,) = node.prepare(node.allocate("old", formerly(GARY)))
    assert (GARY, former_name(GARY)) == (given.id, given.name)  # as the kubelet knows it
    assert "held by claim default/old" in node.refusal(node.allocate("new", result(GARY)))
    node.prepare(node.allocate("other", result(GINA)))


@pytest.mark.parametrize("end", ["restart", "boot"])
def test_what_an_earlier_release_prepared_stays_with_its_claim(node: DriverNode, end: str) -> None:
    claim = node.allocate("old", formerly(GARY))
    given = node.prepare(claim)
    getattr(node, end)()
    assert "held by claim default/old" in node.refusal(node.allocate("new", result(GARY)))
    assert [(one.id, one.name) for one in given] == [
        (one.id, one.name) for one in node.prepare(claim)
    ]
    node.unprepare(claim)
    assert [GARY] == [one.id for one in node.prepare(node.allocate("new", result(GARY)))]


def test_meanwhile_the_scheduler_gives_the_device_to_nobody_else(node: DriverNode) -> None:
    now = {device_name(GARY): ["held"], device_name(GINA): []}
    claim = node.allocate("old", formerly(GARY))
    node.prepare(claim)
    assert now == tainted(node)
    node.restart()
    assert now == tainted(node)
    node.unprepare(claim)
    assert {device_name(GARY): [], device_name(GINA): []} == tainted(node)


def test_a_share_of_an_earlier_release_is_not_counted_twice(tmp_path: Path) -> None:
    node = DriverNode(tmp_path, *shares(GARY, 3))
    more = {"shareID": "share-1", "consumedCapacity": {"shares": "2"}}
    claim = node.allocate("old", formerly(GARY, **more))
    assert {former_name(GARY)} == {one.name for one in node.prepare(claim)}
    for _ in range(2):
        ((name, body),) = in_slices(node)
        assert (device_name(GARY), "1") == (name, body["capacity"]["shares"]["value"])
        node.restart()


def test_a_former_name_that_two_devices_had_is_nobodys(tmp_path: Path) -> None:
    alike = ("SEriALnuMBERofAnad", "SeRIalNUmberoFAnad")
    node = DriverNode(tmp_path, *map(gopher, alike))
    assert "unknown device" in node.refusal(node.allocate("old", formerly(alike[0])))
    for number, one in enumerate(alike):
        (given,) = node.prepare(node.allocate(f"new-{number}", result(one)))
        assert one == given.id


def test_health_is_reported_by_the_name_that_a_pod_has(node: DriverNode) -> None:
    node.prepare(node.allocate("old", formerly(GARY)))
    health = node.health()
    found = {one.device: one.status for one in health.read() if one.pool == POOL}
    names = (former_name(GARY), device_name(GARY), device_name(GINA))
    assert dict.fromkeys(names, "healthy") == found
