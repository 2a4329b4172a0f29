"""Which API server a program asks that is told nothing."""

from pathlib import Path

import pytest

from deviceplugin.errors import ConfigError
from deviceplugin_cli.kubeconfig import find_api_server

CONFIG = """
current-context: a
clusters: [{name: k, cluster: {server: "https://k"}}, {name: l, cluster: {server: "https://l"}}]
contexts: [{name: a, context: {cluster: k}}, {name: b, context: {cluster: l}}]
"""
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KUBECONFIG", *POD):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_kubeconfig_counts_more_than_the_pod(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as error:
        find_api_server()
    assert (
        f"no kubeconfig {home}/.kube/config, and this is not a pod: "
        "KUBERNETES_SERVICE_HOST and _PORT are not set"
    ) == str(error.value)
    for name, value in POD.items():
        monkeypatch.setenv(name, value)
    assert "https://10.0.0.1:443" == find_api_server().url
    file = home / "config"
    file.write_text(CONFIG)
    assert "https://k" == find_api_server([file]).url
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert "https://k" == find_api_server().url
    assert "https://l" == find_api_server(context="b").url
    monkeypatch.setenv("KUBECONFIG", str(home / "missing"))
    assert "https://10.0.0.1:443" == find_api_server().url
    with pytest.raises(ConfigError, match="no kubeconfig"):
        find_api_server(context="b")
