"""The end to end suite's way of using a cluster, against a kubectl that stands in for one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster_home import Cluster, Options
from home import Plugin
from kustomize import render, render_by_kustomize

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(120)  # each is a run of the suite
FAKE = ROOT / "tests/support/fake_kubectl.py"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    kubectl = tmp_path / "bin/kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    kubectl.chmod(0o755)
    return tmp_path


def suite(cluster: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    options = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-n",
        "0",
        "-q",
        f"--logs={cluster}/logs",
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "e2e/test_homes.py", "-m", "gopher", *options, *words],
        cwd=ROOT,
        env={
            "PATH": f"{cluster}/bin:{os.environ['PATH']}",
            "FAKE_CLUSTER": str(cluster),
            "KUBECONFIG": str(cluster / "config"),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def state(cluster: Path) -> Any:
    return json.loads((cluster / "state.json").read_text())


def test_the_suite_passes_and_leaves_nothing_behind(cluster: Path) -> None:
    done = suite(
        cluster,
        "--cluster",
        "--image=registry.example.com:5000/g:7",
        "--pull-policy=Never",
        "--runtime-class=special",
    )
    assert "5 passed, 1 skipped" in done.stdout, done.stdout
    assert "no --restart-kubelet" in done.stdout
    assert ("", {}) == (state(cluster)["namespace"], state(cluster)["pods"])
    assert [] == [*(cluster / "tmp").iterdir()]
    (pod, *others) = [
        manifest["spec"]["template"]["spec"]
        for manifests in state(cluster)["applied"]
        for manifest in manifests
        if manifest["kind"] == "DaemonSet"
    ]
    assert 5 == len(others)
    assert "registry.example.com:5000/g:7" == pod["containers"][0]["image"]
    assert "Never" == pod["containers"][0]["imagePullPolicy"]
    assert "special" == pod["runtimeClassName"]
    assert "node-1" == pod["nodeSelector"]["kubernetes.io/hostname"]


def test_kustomize_makes_the_same_of_what_the_suite_applies(tmp_path: Path) -> None:
    options = Options("registry.example.com:5000/g:7", "Never", "special", node="node-1")
    Cluster(tmp_path, options).write_overlay(Plugin("generic", "a/b", 1, config="devices: []\n"))
    rendered = render_by_kustomize(tmp_path)
    if rendered is None:
        pytest.skip("no kustomize")
    own = {one["kind"]: one for one in render(tmp_path)}
    theirs = {one["kind"]: one for one in rendered}
    for kind in ("Namespace", "ConfigMap", "ServiceAccount"):
        assert own[kind] == theirs[kind]
    (pod, same) = (one["DaemonSet"]["spec"]["template"]["spec"] for one in (own, theirs))
    assert pod["containers"] == same["containers"]
    assert "special" == pod["runtimeClassName"] == same["runtimeClassName"]
    assert pod["nodeSelector"] == same["nodeSelector"]


def test_every_test_has_a_namespace_of_its_own(cluster: Path) -> None:
    suite(cluster, "--cluster", "-k", "come_and_go or uninstalled")
    names = {
        manifest["metadata"]["namespace"]
        for manifests in state(cluster)["applied"]
        for manifest in manifests
        if manifest["kind"] == "DaemonSet"
    }
    assert 2 == len(names)
    assert all(name.startswith("e2e-") for name in names)


def test_what_fails_is_cleaned_up_and_its_logs_are_kept(cluster: Path) -> None:
    done = suite(cluster, "--cluster", "-k", "disturbs", FAKE_BROKEN="logs")
    assert 1 == done.returncode
    assert "error: logs does not work" in done.stdout
    assert "" == state(cluster)["namespace"]
    assert [] == [*(cluster / "tmp").iterdir()]
    (folder,) = (cluster / "logs").iterdir()
    kept = {"objects.yaml", "events.txt", "pods.txt", "plugin.log", "node.txt"}
    assert kept == {path.name for path in folder.iterdir()}
    assert "described\n" == (folder / "pods.txt").read_text()


def test_a_node_that_has_the_resource_already_is_left_alone(cluster: Path) -> None:
    (cluster / "tmp" / "-").mkdir()
    (cluster / "tmp" / "-" / "gopher").touch()
    done = suite(cluster, "--cluster", "-k", "disturbs")
    assert "node-1 has example.com/gopher already" in done.stdout
    assert [] == state(cluster)["applied"]


def test_a_cluster_is_used_only_if_it_is_said_twice(cluster: Path) -> None:
    assert "1 passed" in suite(cluster, "-k", "uninstalled").stdout
    done = suite(cluster, "--cluster", "-k", "uninstalled", KUBECONFIG="")
    assert "--cluster needs KUBECONFIG" in done.stdout
    assert not (cluster / "calls").exists()
