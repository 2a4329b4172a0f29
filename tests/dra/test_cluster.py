"""Slices in a simulated cluster, over HTTP: what is asked of the API server, and how often."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin import Device
from deviceplugin._attribution.ownership import UNHEALTHY, OfferState
from deviceplugin._dra.naming import pool_name, slice_name
from deviceplugin._dra.slices.attributes import Describer
from deviceplugin._dra.slices.pools import Offers, PoolCatalogue, Site
from deviceplugin._dra.slices.publisher import Publisher
from deviceplugin.apiserver import ApiServer, ResourceSlices, _slices, _watch
from deviceplugin_testing.simulator import SimulatedCluster
from manifests.kustomize import overlay, render
from patience import PATIENCE, eventually

DRIVER, RESOURCE = "gopher.example.com", "example.com/gopher"


class Node:
    """A publisher on a node, and what it offers."""

    def __init__(self, url: str, count: int, node: str = "n1") -> None:
        self.node = node
        self.offered = {f"d{i:04}": "" for i in range(count)}
        self.settled = threading.Event()
        self.publisher = Publisher(
            ResourceSlices(ApiServer(url), DRIVER, node),
            Site(DRIVER, node),
            catalogue=PoolCatalogue(Describer(DRIVER), node, "no-schedule"),
            offers=self._offers,
            published=lambda _keys: self.settled.set(),
        )
        self._thread = threading.Thread(target=self.publisher.run)

    def _offers(self) -> Offers:
        states = {
            key: OfferState(Device(key, capacity={"memory": "1024Mi"}), True, taint, "")
            for key, taint in self.offered.items()
        }
        return {RESOURCE: states} if self.offered else {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.publisher.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def change(self, **devices: str) -> None:
        self.offered = {**self.offered, **devices}
        self.publisher.poke()

    def withdraw(self) -> None:
        self.offered = {}
        self.publisher.poke()

    def slice(self, index: int) -> str:
        return slice_name(DRIVER, self.node, pool_name(self.node, RESOURCE), index)


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with SimulatedCluster() as running:
        running.add_node("n1")
        yield running


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    found: list[Node] = []
    yield found
    for one in found:
        one.stop()


def begin(cluster: SimulatedCluster, nodes: list[Node], count: int) -> Node:
    node = Node(cluster.url, count)
    nodes.append(node)
    node.start()
    cluster.wait_for(lambda: len(devices(cluster)) == count)
    assert count == len(devices(cluster))
    rest(cluster)
    return node


def devices(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    return [
        device for one in cluster.list("ResourceSlice") for device in one["spec"].get("devices", ())
    ]


def rest(cluster: SimulatedCluster) -> None:
    """Wait until nothing has been asked for half a second."""
    seen = -1
    pause = threading.Event()
    while seen != len(cluster.requests):
        seen = len(cluster.requests)
        pause.wait(0.5)


def verbs(cluster: SimulatedCluster, since: int = 0) -> Counter[str]:
    return Counter(one.verb for one in cluster.requests[since:])


def test_a_thousand_devices_are_sixteen_requests_and_a_failure_is_one(
    cluster: SimulatedCluster, nodes: list[Node]
) -> None:
    node = begin(cluster, nodes, 1000)
    assert {"get": 1, "list": 1, "watch": 1, "create": 16} == verbs(cluster)
    since = len(cluster.requests)
    node.change(d0500=UNHEALTHY)
    assert cluster.wait_for(lambda: any("taints" in device for device in devices(cluster)))
    rest(cluster)
    assert {"update": 1} == verbs(cluster, since)


def test_slices_that_are_deleted_edited_or_wiped_are_back_at_once(
    cluster: SimulatedCluster, nodes: list[Node]
) -> None:
    node = begin(cluster, nodes, 200)
    since = len(cluster.requests)
    cluster.delete("ResourceSlice", node.slice(1))
    assert cluster.wait_for(lambda: len(devices(cluster)) == 200, PATIENCE)
    cluster.change("ResourceSlice", node.slice(0), lambda one: one["spec"].update(devices=[]))
    assert cluster.wait_for(lambda: len(devices(cluster)) == 200, PATIENCE)
    for index in range(4):
        cluster.delete("ResourceSlice", node.slice(index))
    assert cluster.wait_for(lambda: len(devices(cluster)) == 200, PATIENCE)
    assert "list" not in verbs(cluster, since), "the watch told it, not a look some time later"


def test_after_the_api_server_was_away_nothing_is_written_that_did_not_change(
    cluster: SimulatedCluster, nodes: list[Node], caplog: pytest.LogCaptureFixture
) -> None:
    node = begin(cluster, nodes, 70)
    cluster.go_away()
    eventually(node.publisher.problem, "the problem")
    since = len(cluster.requests)
    cluster.come_back()
    eventually(lambda: "watch" in verbs(cluster, since), "the watch")
    rest(cluster)
    assert not verbs(cluster, since).keys() - {"watch", "list"}
    lines = [one for one in caplog.records if one.message == "slices not published"]
    assert 1 == len(lines)
    eventually(lambda: not node.publisher.problem(), "the end of the problem")


def test_a_driver_that_restarts_asks_for_a_list_and_a_watch_and_writes_nothing(
    cluster: SimulatedCluster, nodes: list[Node]
) -> None:
    begin(cluster, nodes, 200).stop()
    since = len(cluster.requests)
    again = Node(cluster.url, 200)
    nodes[:] = [again]
    again.start()
    assert again.settled.wait(PATIENCE)
    rest(cluster)
    assert {"list": 1, "watch": 1, "get": 1} == verbs(cluster, since)


def test_at_rest_a_node_has_one_watch_and_asks_for_nothing_else(
    cluster: SimulatedCluster, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch is what is asked for each hour, at most 15 times; here it lasts a second."""
    assert 3600 / min(_watch.SHORTEST, _slices._SILENCE) <= 20
    monkeypatch.setattr(_watch, "SHORTEST", 1)
    monkeypatch.setattr(_watch, "LONGEST", 1)
    begin(cluster, nodes, 200)
    since = len(cluster.requests)
    eventually(lambda: len(cluster.requests) >= since + 3, "some watches")
    assert {"watch"} == verbs(cluster, since).keys()


def test_all_that_is_asked_is_what_the_role_of_the_component_allows(
    cluster: SimulatedCluster, nodes: list[Node], tmp_path: Path
) -> None:
    (role,) = (o for o in render(overlay(tmp_path, "gopher", "dra")) if o["kind"] == "ClusterRole")
    (rule,) = (rule for rule in role["rules"] if rule["resources"] == ["resourceslices"])
    node = begin(cluster, nodes, 70)
    node.change(d0000=UNHEALTHY)
    assert cluster.wait_for(lambda: any("taints" in device for device in devices(cluster)))
    node.withdraw()
    assert cluster.wait_for(lambda: not cluster.list("ResourceSlice"))
    asked = {one.verb for one in cluster.requests if one.resource == "resourceslices"}
    assert set(rule["verbs"]) == asked
