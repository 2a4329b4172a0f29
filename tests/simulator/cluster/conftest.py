from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import real_api_server
from cluster.dra_api.asking import Asker
from cluster.dra_objects import ManualTime, Objects
from deviceplugin.apiserver import ApiServer
from deviceplugin_testing.simulator import SimulatedCluster


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


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """The API server that ``KUBE_APISERVER`` names, asked by its administrator."""
    root: Path = tmp_path_factory.mktemp("real")
    with real_api_server.running(root) as server:
        account = {"metadata": {"name": "default"}}
        server.admin.create("/api/v1/namespaces/default/serviceaccounts", account)
        token = (root / "account-admin" / "token").read_text()
        yield Asker(server.url, token, root / "tls.crt")
