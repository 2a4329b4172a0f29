"""The chart on a real API server: installed, upgraded, rolled back and uninstalled by helm."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import release
from cluster.real_api_server import RealApiServer, running
from cluster.real_api_server import why_not as no_server
from deviceplugin.apiserver import NotFoundError
from manifests.helm import helm, why_not
from manifests.kustomize import Manifest

WHY_NOT = why_not() or no_server()
pytestmark = [
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "-"),
    pytest.mark.xdist_group("real-api-server"),
]
NAME = "gopher-device-plugin"
DAEMON_SET = f"/apis/apps/v1/namespaces/{NAME}/daemonsets/{NAME}"


@dataclass(frozen=True)
class Cluster:
    server: RealApiServer
    account: Path
    chart: Path

    def helm(self, *words: str | Path, **values: Any) -> str:
        """Do what helm does with the chart."""
        token = (self.account / "token").read_text()
        given = [f"--kube-apiserver={self.server.url}", f"--kube-token={token}"]
        ca = f"--kube-ca-file={self.account / 'ca.crt'}"
        return helm(*words, *given, ca, values=values or None)

    def get(self, path: str) -> Manifest:
        found: Manifest = self.server.admin.get(path)
        return found

    def is_there(self, path: str) -> bool:
        """Return whether there is an object that is not about to go."""
        try:
            return "deletionTimestamp" not in self.get(path)["metadata"]
        except NotFoundError:
            return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, chart_folder: Path) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("real")
    with running(root) as server:
        yield Cluster(server, root / "account-admin", chart_folder)


def test_a_release_is_installed_upgraded_rolled_back_and_removed(cluster: Cluster) -> None:
    def image_and_config() -> tuple[str, str]:
        pod = cluster.get(DAEMON_SET)["spec"]["template"]["spec"]
        maps = f"/api/v1/namespaces/{NAME}/configmaps/gopher-config"
        return pod["containers"][0]["image"], cluster.get(maps)["data"]["config.yaml"]

    every = ("events", "evict", "startup-taint", "udev", "watcher")
    enabled = {"enabled": True, "components": dict.fromkeys(every, True)}
    said = cluster.helm("install", "hw", cluster.chart, gopher=enabled)
    assert f"kubectl --namespace {NAME} rollout status daemonset/{NAME}" in said
    first = (f"{NAME}:{release.version()}", "directory: /etc/gophers\n")
    assert first == image_and_config()
    assert cluster.is_there(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}:events")

    changed = {"enabled": True, "config": {"directory": "/srv"}, "image": {"tag": "0.2.0"}}
    cluster.helm("upgrade", "hw", cluster.chart, gopher=changed)
    assert (f"{NAME}:0.2.0", "directory: /srv\n") == image_and_config()
    assert not cluster.is_there(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}:events")
    template = cluster.get(DAEMON_SET)["spec"]["template"]
    assert 64 == len(template["metadata"]["annotations"]["checksum/config"])

    cluster.helm("rollback", "hw", "1")
    assert first == image_and_config()
    with pytest.raises(ValueError, match="Additional property gophers is not allowed"):
        cluster.helm("upgrade", "hw", cluster.chart, gophers=changed)
    assert first == image_and_config()

    cluster.helm("uninstall", "hw")
    assert not cluster.is_there(DAEMON_SET)
    assert not cluster.is_there(f"/api/v1/namespaces/{NAME}")


def test_a_plugin_is_not_installed_twice(cluster: Cluster) -> None:
    words = ("--namespace=one", "--create-namespace")
    values = {"simulated": {"enabled": True, "namespace": "one", "components": {"events": True}}}
    said = cluster.helm("install", "one", cluster.chart, *words, **values)
    assert "kubectl label namespace one pod-security.kubernetes.io/enforce=privileged" in said
    with pytest.raises(ValueError, match="invalid ownership metadata"):
        cluster.helm("install", "two", cluster.chart, **values)
    cluster.helm("uninstall", "one", "--namespace=one")
    assert cluster.is_there("/api/v1/namespaces/one")
