"""The charts on a real API server: installed, upgraded, rolled back and uninstalled by helm."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import versions
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
DAEMON_SET = f"/apis/apps/v1/namespaces/hw/daemonsets/{NAME}"


@dataclass(frozen=True)
class Cluster:
    server: RealApiServer
    account: Path
    chart: Path
    operator: Path

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
def cluster(
    tmp_path_factory: pytest.TempPathFactory, chart_folder: Path, operator_chart: Path
) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("real")
    with running(root) as server:
        yield Cluster(server, root / "account-admin", chart_folder, operator_chart)


def test_a_release_is_installed_upgraded_rolled_back_and_removed(cluster: Cluster) -> None:
    def image_and_config() -> tuple[str, str]:
        pod = cluster.get(DAEMON_SET)["spec"]["template"]["spec"]
        maps = "/api/v1/namespaces/hw/configmaps/gopher-config"
        return pod["containers"][0]["image"], cluster.get(maps)["data"]["config.yaml"]

    every = ("events", "evict", "startup-taint", "udev", "watcher")
    enabled = {"enabled": True, "components": dict.fromkeys(every, True)}
    place = "--namespace=hw"
    cluster.helm("install", "devices", cluster.chart, place, "--create-namespace")
    said = cluster.helm("upgrade", "devices", cluster.chart, place, gopher=enabled)
    assert f"kubectl --namespace hw rollout status daemonset/{NAME}" in said
    first = (f"{NAME}:{versions.current()}", "directory: /etc/gophers\n")
    assert first == image_and_config()
    assert cluster.is_there(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}:events")

    changed = {"enabled": True, "config": {"directory": "/srv"}, "image": {"tag": "0.2.0"}}
    cluster.helm("upgrade", "devices", cluster.chart, place, gopher=changed)
    assert (f"{NAME}:0.2.0", "directory: /srv\n") == image_and_config()
    assert not cluster.is_there(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}:events")
    template = cluster.get(DAEMON_SET)["spec"]["template"]
    assert 64 == len(template["metadata"]["annotations"]["checksum/config"])

    cluster.helm("rollback", "devices", "2", place)
    assert first == image_and_config()
    with pytest.raises(ValueError, match="Additional property gophers is not allowed"):
        cluster.helm("upgrade", "devices", cluster.chart, place, gophers=changed)
    assert first == image_and_config()

    cluster.helm("uninstall", "devices", place)
    assert not cluster.is_there(DAEMON_SET)
    assert cluster.is_there("/api/v1/namespaces/hw")


def test_the_kinds_outlive_the_operator_and_are_upgraded_with_it(cluster: Cluster) -> None:
    place = ("--namespace=devices", "--create-namespace")
    kind = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/deviceplugins.deviceplugin.dev"
    account = "/api/v1/namespaces/devices/serviceaccounts/device-plugin"
    deployment = "/apis/apps/v1/namespaces/devices/deployments/deviceplugin-operator"
    for _ in range(2):  # it takes up what the first one has left
        said = cluster.helm("install", "operator", cluster.operator, *place)
        assert "kubectl --namespace devices rollout status deployment/deviceplugin-operator" in said
        assert [True] * 3 == [*map(cluster.is_there, (kind, account, deployment))]
        cluster.helm("upgrade", "operator", cluster.operator, place[0], crds={"enabled": False})
        assert [True] * 3 == [*map(cluster.is_there, (kind, account, deployment))]
        cluster.helm("uninstall", "operator", place[0])
        assert [True, True, False] == [*map(cluster.is_there, (kind, account, deployment))]


def test_a_plugin_is_not_installed_twice(cluster: Cluster) -> None:
    words = ("--namespace=one", "--create-namespace")
    values = {"simulated": {"enabled": True, "namespace": "one", "components": {"events": True}}}
    said = cluster.helm("install", "one", cluster.chart, *words, **values)
    assert "kubectl label namespace one pod-security.kubernetes.io/enforce=privileged" in said
    with pytest.raises(ValueError, match="invalid ownership metadata"):
        cluster.helm("install", "two", cluster.chart, **values)
    cluster.helm("uninstall", "one", "--namespace=one")
    assert cluster.is_there("/api/v1/namespaces/one")
