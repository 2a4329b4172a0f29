from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import real_api_server
from cluster.dra_api.asking import Asker
from cluster.dra_objects import Simulated


@pytest.fixture
def options() -> dict[str, Any]:
    """Those of the cluster of ``make``; tests parametrise it."""
    return {}


@pytest.fixture
def make(options: dict[str, Any]) -> Iterator[Simulated]:
    with Simulated(**options) as running:
        yield running


@pytest.fixture(scope="module")
def simulated() -> Iterator[Asker]:
    with Simulated() as running:
        yield Asker(running.cluster.url)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """The API server that ``KUBE_APISERVER`` names, asked by its administrator."""
    root: Path = tmp_path_factory.mktemp("real")
    with real_api_server.running(root) as server:
        account = {"metadata": {"name": "default"}}
        server.admin.create("/api/v1/namespaces/default/serviceaccounts", account)
        token = (root / "account-admin" / "token").read_text()
        yield Asker(server.url, token, root / "tls.crt")
