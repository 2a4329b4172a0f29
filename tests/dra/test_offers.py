"""How many devices each protocol offers."""

from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin._app.probes import offered, offered_of
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._telemetry.metrics import Metrics, Offered
from drivers.cakes import RESOURCE as CAKE
from drivers.cakes import CakeNode, piece
from drivers.driver_node import RESOURCE, DriverNode, gopher, result


@pytest.fixture
def node(tmp_path: Path) -> DriverNode:
    return DriverNode(
        tmp_path, gopher("gary"), gopher("gerd"), gopher("hot", health=dp.Health.unhealthy("hot"))
    )


def counts(node: DriverNode) -> list[Offered]:
    return list(offered(node.ownership, node.resources.values()))


def test_each_device_is_offered_by_one_protocol_or_by_none(node: DriverNode) -> None:
    assert [
        Offered(RESOURCE, by_plugin=0, by_dra=frozenset({"gary", "gerd"}), leaving=0)
    ] == counts(node)
    node.hold("gary")
    assert [Offered(RESOURCE, by_plugin=0, by_dra=frozenset({"gerd"}), leaving=0)] == counts(node)
    node.ownership.switch("device-plugin")
    assert [Offered(RESOURCE, by_plugin=0, by_dra=frozenset(), leaving=3)] == counts(node)
    node.prepare(node.allocate("one", result("gerd")))
    node.ownership.published([])
    assert [Offered(RESOURCE, by_plugin=1, by_dra=frozenset(), leaving=0)] == counts(node)


def test_a_part_counts_once_somebody_has_it(tmp_path: Path) -> None:
    node = CakeNode(tmp_path)
    for devices in (1, 2):
        found = offered_of(node.ownership, node.resources[CAKE])
        assert (devices, 7) == (found.count_by_dra, len(found.by_dra))
        node.prepare(node.allocate("one", piece("cake/half@0")))


def test_without_dra_there_are_no_such_metrics(node: DriverNode) -> None:
    node.ownership = Ownership(resources=lambda: node.resources)
    assert [] == counts(node)
    metrics = Metrics()
    metrics.offered = lambda: counts(node)
    assert b"deviceplugin_devices_offered{" not in metrics.expose("")[1]
