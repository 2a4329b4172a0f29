"""``kubectl deviceplugin doctor`` and ``sysdump`` by the real kubectl, on a stand-in."""

import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.small_cluster import PLUGINS, SmallCluster, running, why_not
from patience import eventually

BIN = Path(sys.executable).parent
GOPHER, SIMULATED = "gopher-device-plugin", "simulated-device-plugin"
HOT = """\
resources:
  example.com/gpu: {count: 8}
timeline:
  - {at: 1s, do: unhealthy, devices: gpu-3, reason: too hot}
"""
pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
    pytest.mark.slow,  # a kubectl for each step, and plugins
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallCluster]:
    """Give a cluster with two plugins, whose command kubectl finds."""
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    with running(PLUGINS) as made:
        for plugin in ("gopher", "simulated"):
            made.kubectl("apply", f"--kustomize=deployments/{plugin}")
        yield made


def test_the_reasons_of_devices_and_pods_are_found_from_outside(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    files = {"config.yaml": "devices: /etc/device-plugin/hot.yaml", "hot.yaml": HOT}
    config = json.dumps({"data": files})
    space = ("--namespace", SIMULATED)
    cluster.kubectl(*space, "patch", "configmap", "simulated-config", f"--patch={config}")
    cluster.kubectl(*space, "delete", "pod", "--all")
    image = "device-plugin=registry.example/none:1"
    cluster.kubectl("--namespace", GOPHER, "set", "image", "daemonset", GOPHER, image)

    def causes(*words: str) -> dict[str, str]:
        done = cluster.try_kubectl("deviceplugin", "doctor", "--output=json", *words)
        found = json.loads(done.stdout)["causes"]
        return {one["check"]: one["findings"][0]["found"] for one in found}

    eventually(lambda: causes(*space).get("devices", "").startswith("too hot (since "))
    first, found = next(iter(causes().items()))
    assert ("pod", True) == (first, found.startswith("ErrImagePull: failed to pull image"))
    said = cluster.try_kubectl("deviceplugin", "doctor", "example.com/gpu", "--node=node-1").stdout
    assert "warning  devices" in said
    file = tmp_path / "dump.zip"
    cluster.kubectl("deviceplugin", "sysdump", f"--file={file}")
    with zipfile.ZipFile(file) as archive:
        (metrics,) = (one for one in archive.namelist() if one.endswith("/metrics.txt"))
        assert b'resource="example.com/gpu"' in archive.read(metrics)
        assert {"doctor.txt", "objects/cluster/nodes.json"} < {*archive.namelist()}
