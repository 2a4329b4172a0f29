from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cluster import real_api_server, real_controllers
from cluster.dra_api.asking import Asker
from cluster.dra_api.cases import GATES, NO_COUNTERS
from cluster.dra_objects import Objects, Simulated
from cluster.real_controllers import RealCluster


@pytest.fixture
def options() -> dict[str, Any]:
    """Those of the cluster of ``make``; tests parametrise it."""
    return {}


@pytest.fixture
def make(options: dict[str, Any]) -> Iterator[Simulated]:
    with Simulated(**options) as running:
        yield running


@pytest.fixture(scope="module")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with real_controllers.running(tmp_path_factory.mktemp("real")) as found:
        yield found


MISSING = real_controllers.why_not()
REAL = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING or "-"),
    pytest.mark.xdist_group("real-api-server"),
]


@pytest.fixture(params=["simulated", pytest.param("real", marks=REAL)])
def either(request: pytest.FixtureRequest) -> Iterator[Objects]:
    """A simulated cluster with the node n1, and one with the real scheduler and controllers."""
    if request.param == "simulated":
        with Simulated() as running:
            yield running
        return
    cluster: RealCluster = request.getfixturevalue("real_cluster")
    cluster.clear()
    cluster.add_node("n1")
    yield Objects(cluster)


@pytest.fixture(scope="module")
def simulated() -> Iterator[Asker]:
    with Simulated() as running:
        yield Asker(running.cluster.url)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """The API server that ``KUBE_APISERVER`` names, asked by its administrator."""
    with _asked(tmp_path_factory.mktemp("real")) as found:
        yield found


@pytest.fixture(scope="module")
def real_with_lists(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """Another one, with the feature gates ``GATES``."""
    with _asked(tmp_path_factory.mktemp("lists"), GATES) as found:
        yield found


@pytest.fixture(scope="module")
def real_without_counters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    with _asked(tmp_path_factory.mktemp("dropped"), NO_COUNTERS) as found:
        yield found


@contextmanager
def _asked(root: Path, gates: Mapping[str, bool] = MappingProxyType({})) -> Iterator[Asker]:
    on = ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())
    flags = [f"--feature-gates={on}"] if on else []
    with real_api_server.running(root, *flags) as server:
        account = {"metadata": {"name": "default"}}
        server.admin.create("/api/v1/namespaces/default/serviceaccounts", account)
        token = (root / "account-admin" / "token").read_text()
        yield Asker(server.url, token, root / "tls.crt")
