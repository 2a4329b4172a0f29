from collections.abc import Callable, Iterator

import pytest

from cluster.dra_objects import ManualTime, Objects
from deviceplugin.apiserver import ApiServer
from deviceplugin.simulator import SimulatedCluster


@pytest.fixture
def clock() -> ManualTime:
    return ManualTime()


@pytest.fixture
def cluster(clock: ManualTime) -> Iterator[SimulatedCluster]:
    """A cluster with one node, whose controllers run when the test says so."""
    with SimulatedCluster(controllers=False, clock=clock) as running:
        running.add_node("n1")
        yield running


@pytest.fixture
def make(cluster: SimulatedCluster) -> Objects:
    return Objects(cluster)


@pytest.fixture
def api(cluster: SimulatedCluster) -> ApiServer:
    return ApiServer(cluster.url)


@pytest.fixture
def settle(cluster: SimulatedCluster) -> Callable[[], None]:
    return cluster.settle
