"""The component on a stand-in for a cluster: who waits for what when a node is new."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.kinds import NODE, POD
from cluster.pod import NAME
from cluster.small_cluster import PLUGINS, SHELL, SmallCluster, running, why_not
from deviceplugin_testing.conformance._subject import free_port
from manifests.kustomize import overlay
from patience import eventually

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
KEY = "startup.deviceplugin.dev/gopher-device-plugin"
OTHER = {"key": "startup.deviceplugin.dev/gpu-device-plugin", "effect": "NoSchedule"}
OURS = {"key": KEY, "effect": "NoSchedule"}
PLUGIN = "gopher-device-plugin"
RESOURCE = "example.com/gopher"


def deploy(cluster: SmallCluster, place: Path) -> None:
    """Apply what a user would, with the addresses that the stand-in has."""
    file = overlay(place, "gopher", "startup-taint") / "kustomization.yaml"
    container, port = "/spec/template/spec/containers/0", free_port()
    http = {"name": "http", "containerPort": port, "hostPort": port}  # pods have no network
    changes: dict[str, list[tuple[str, str, Any]]] = {
        "Deployment": [("add", "args/-", f"--api={cluster.url}")],
        "DaemonSet": [("replace", "ports/0", http), ("replace", "env/0/value", f":{port}")],
    }
    patches = {
        kind: [{"op": op, "path": f"{container}/{at}", "value": value} for op, at, value in made]
        for kind, made in changes.items()
    }
    added = {
        "patches": [
            {"target": {"kind": kind}, "patch": json.dumps(made)} for kind, made in patches.items()
        ]
    }
    file.write_text(json.dumps({**json.loads(file.read_text()), **added}))
    cluster.kubectl("apply", f"--kustomize={place}")


def pod(name: str, tolerations: list[dict[str, str]]) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox:1.37", "command": ["sleep", "600"]}
    spec = {"containers": [container], "tolerations": tolerations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def taints(cluster: SmallCluster) -> list[dict[str, str]]:
    found = cluster.store.get(NODE, "", NAME)["spec"].get("taints", [])
    return [{key: one[key] for key in ("key", "effect")} for one in found]


def phase(cluster: SmallCluster, name: str) -> str:
    return str(cluster.store.get(POD, "default", name)["status"].get("phase"))


@pytest.mark.slow
def test_pods_wait_for_the_devices_of_a_new_node_and_for_other_taints(tmp_path: Path) -> None:
    tolerant = [{"key": OTHER["key"], "operator": "Exists"}]
    with running({**PLUGINS, **SHELL}) as cluster:
        gophers = cluster.node.path("/etc/gophers")
        gophers.mkdir(parents=True)
        (gophers / "gopher-0").touch()
        cluster.store.change(
            NODE, "", NAME, lambda found: found["spec"].update(taints=[OURS, OTHER])
        )
        cluster.kubectl("apply", "--filename=-", text=json.dumps(pod("any", [])))
        cluster.kubectl("apply", "--filename=-", text=json.dumps(pod("tolerant", tolerant)))
        eventually(lambda: "untolerated taint" in cluster.kubectl("get", "events"), "an Event")
        deploy(cluster, tmp_path)
        eventually(lambda: taints(cluster) == [OTHER], "the taint to go")
        assert cluster.store.get(NODE, "", NAME)["status"]["allocatable"][RESOURCE] != "0"
        eventually(lambda: phase(cluster, "tolerant") == "Running", "the pod")
        assert phase(cluster, "any") == "Pending"
        log = cluster.kubectl("logs", f"deployment/{PLUGIN}-startup-taint", f"-n{PLUGIN}")
        assert 1 == log.count("startup taint removed")
