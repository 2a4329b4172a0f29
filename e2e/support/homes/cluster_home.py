"""A real cluster, through kubectl. Every name is made for one test, and everything is removed."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import yaml

from containers.unshare import eventually
from homes.home import LOOK, Given, Plugin, seen

DEPLOYMENTS = Path(__file__).parents[3] / "deployments"
PATIENCE = 180.0
"""Seconds. Pods have to be scheduled and started, and a node tells its status every 10 s."""
PAUSE = 0.5
"""Seconds between two questions to the API server."""
HARDWARE = 30.0
"""Seconds until a ready plugin's devices are known, if there are any."""
END = "that is all"
"""What a pod says when it has said all: its log is read while it is written."""
READ_METRICS = (
    "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9494/metrics').read().decode())"
)


@dataclass(frozen=True)
class Options:
    """What the command line says of a cluster."""

    image: str = ""
    pull_policy: str = "IfNotPresent"
    runtime_class: str = ""
    pod_image: str = "busybox:1.37"
    node: str = ""
    restart_kubelet: str = ""
    patience: float = PATIENCE


class Cluster:
    """See Home. One node of the cluster is looked at: the one that is named, or the first."""

    def __init__(self, root: Path, options: Options) -> None:
        self._root, self._options = root, options
        self._namespace = f"e2e-{token_hex(4)}"
        self._patience = options.patience
        self._node, self._hostname = self._find_node()
        self._plugin: Plugin | None = None

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """Return what kubectl prints."""
        done = subprocess.run(
            ["kubectl", *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=self._patience + 60,
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def get(self, *words: str) -> Any:
        """Return the objects of ``kubectl get``."""
        return json.loads(self.kubectl("get", *words, "--output=json"))

    def _in(self, *words: str) -> tuple[str, ...]:
        return (*words, f"--namespace={self._namespace}")

    def _find_node(self) -> tuple[str, str]:
        """Return the node's name, and its label: with some clouds they differ."""
        name = self._options.node
        nodes = [self.get("node", name)] if name else self.get("nodes")["items"]
        assert nodes, "the cluster has no node"
        found = nodes[0]["metadata"]
        return str(found["name"]), str(found["labels"]["kubernetes.io/hostname"])

    # Installing

    def install(self, plugin: Plugin) -> None:
        # The capacity of a plugin that is gone stays for five minutes.
        if self._matching(plugin):
            pytest.skip(f"{self._node} has {plugin.resource} already: another plugin is there")
        self._plugin = plugin
        self.write_overlay(plugin)
        self.kubectl("apply", f"--kustomize={self._root}")
        self.kubectl(*self._in("rollout", "status", "daemonset", f"--timeout={self._patience:g}s"))

    def write_overlay(self, plugin: Plugin) -> None:
        """Write the kustomization that is applied: the deployment, in this namespace."""
        name = f"{plugin.name}-device-plugin"
        deployments = os.path.relpath(DEPLOYMENTS, self._root.resolve())
        spec: dict[str, Any] = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": self._namespace,
            "resources": [f"{deployments}/{plugin.name}"],
            "components": [f"{deployments}/components/{name}" for name in plugin.components],
            "patches": [{"target": {"kind": "DaemonSet"}, "patch": json.dumps(self._patch())}],
        }
        if self._options.image:
            image, _, tag = self._options.image.rpartition(":")
            assert image, "--image needs a tag"
            assert "/" not in tag, "--image needs a tag"
            spec["images"] = [{"name": name, "newName": image, "newTag": tag}]
        if plugin.config:
            change = [{"op": "add", "path": "/data/config.yaml", "value": plugin.config}]
            spec["patches"].append({"target": {"kind": "ConfigMap"}, "patch": json.dumps(change)})
        (self._root / "kustomization.yaml").write_text(json.dumps(spec))

    def _patch(self) -> dict[str, Any]:
        pod: dict[str, Any] = {
            # Only here: what is on other nodes is not looked at.
            "nodeSelector": {"kubernetes.io/hostname": self._hostname},
            "containers": [{"name": "device-plugin", "imagePullPolicy": self._options.pull_policy}],
        }
        if self._plugin is not None and self._plugin.environment:
            more = self._plugin.environment.items()
            pod["containers"][0]["env"] = [{"name": key, "value": value} for key, value in more]
        if self._options.runtime_class:
            pod["runtimeClassName"] = self._options.runtime_class
        if self._plugin is not None and self._plugin.files:
            (volume,) = self._volumes_with(self._plugin.files)
            pod["volumes"] = [{"name": volume, "hostPath": {"path": f"/tmp/{self._namespace}"}}]
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "any"},
            "spec": {"template": {"spec": pod}},
        }

    def _volumes_with(self, path: str) -> list[str]:
        assert self._plugin is not None
        folder = DEPLOYMENTS / self._plugin.name
        found = yaml.safe_load_all(self.kubectl("kustomize", str(folder)))
        (daemon_set,) = (one for one in found if one["kind"] == "DaemonSet")
        volumes = daemon_set["spec"]["template"]["spec"]["volumes"]
        return [one["name"] for one in volumes if one.get("hostPath", {}).get("path") == path]

    def _allocatable(self) -> dict[str, str]:
        found: dict[str, str] = self.get("node", self._node)["status"]["allocatable"]
        return found

    def _matching(self, plugin: Plugin) -> dict[str, int]:
        """Return what the node has of the plugin's resource; of several, if it is a pattern."""
        found = self._allocatable().items()
        counts = {name: as_number(text) for name, text in found if fnmatch(name, plugin.resource)}
        return {name: count for name, count in counts.items() if count}

    def offer(self, plugin: Plugin) -> tuple[str, int]:
        if plugin.devices is not None:
            self.wait_allocatable(plugin.resource, plugin.devices)
            return plugin.resource, plugin.devices
        try:
            eventually(lambda: bool(self._matching(plugin)), min(HARDWARE, self._patience), PAUSE)
        except AssertionError:
            pytest.skip(f"{self._node} has no hardware for {plugin.resource}")
        return max(self._matching(plugin).items())

    def wait_allocatable(self, resource: str, count: int) -> None:
        def has_them() -> bool:
            return as_number(self._allocatable().get(resource, "0")) == count

        eventually(has_them, self._patience, PAUSE)

    # Files on the node, by pods

    def add_file(self, name: str) -> None:
        self._on_node(f"mkdir -p /host/{self._namespace} && touch /host/{self._namespace}/{name}")

    def remove_file(self, name: str) -> None:
        self._on_node(f"rm /host/{self._namespace}/{name}")

    def _on_node(self, command: str) -> None:
        name = f"on-node-{token_hex(3)}"
        host = {"name": "host", "hostPath": {"path": "/tmp", "type": "Directory"}}
        pod = self._pod(name, command, {})
        pod["spec"]["volumes"] = [host]
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "host", "mountPath": "/host"}]
        self._apply(pod)
        self._wait_phase(name, "Succeeded")

    # Pods

    def _pod(self, name: str, command: str, limits: dict[str, str]) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": self._hostname},
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "main",
                    "image": self._options.pod_image,
                    "imagePullPolicy": self._options.pull_policy,
                    "command": ["sh", "-c", command],
                    "resources": {"limits": limits},
                }
            ],
        }
        metadata = {"name": name, "namespace": self._namespace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _apply(self, manifest: dict[str, Any]) -> None:
        self.kubectl("apply", "--filename=-", stdin=json.dumps(manifest))

    def _wait_phase(self, name: str, phase: str) -> None:
        found: dict[str, Any] = {}

        def is_there() -> bool:
            found.update(self.get(*self._in("pod", name))["status"])
            assert found["phase"] == phase or found["phase"] != "Failed", found
            return bool(found["phase"] == phase)

        eventually(is_there, self._patience, PAUSE)

    def run(self, name: str, resource: str, count: int) -> Given:
        command = f"{LOOK}; echo; echo {END}; trap exit TERM; sleep 3600 & wait"
        pod = self._pod(name, command, {resource: str(count)})
        asks = self._plugin.asks if self._plugin is not None else {}
        env = [{"name": key, "value": value} for key, value in asks.items()]
        pod["spec"]["containers"][0]["env"] = env
        self._apply(pod)
        self._wait_phase(name, "Running")
        said: list[str] = []

        def has_said_all() -> bool:
            said[:] = [self.kubectl(*self._in("logs", name))]
            return said[0].endswith(f"\n{END}\n")

        eventually(has_said_all, self._patience, PAUSE)
        return seen(said[0].removesuffix(f"\n{END}\n"))

    def need_cdi(self) -> None:
        pytest.skip("what CDI a cluster's runtime has is not known")

    def execute(self, name: str, command: str) -> str:
        words = ("exec", name, "--", "sh", "-c", command)
        return self.kubectl(*self._in(*words[:2]), *words[2:], check=False)

    def run_example(self, pod: Mapping[str, Any]) -> str:
        name = pod["metadata"]["name"]
        own = json.loads(json.dumps(pod))
        own["metadata"]["namespace"] = self._namespace
        own["spec"]["tolerations"] = [{"operator": "Exists"}]
        own["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self._hostname}
        for container in own["spec"]["containers"]:
            container |= {"image": self._options.pod_image}
            container |= {"imagePullPolicy": self._options.pull_policy}
        self._apply(own)
        self._wait_phase(name, "Succeeded")
        said = self.kubectl(*self._in("logs", name))
        self.delete(name)
        return said

    def is_running(self, name: str) -> bool:
        return bool(self.get(*self._in("pod", name))["status"]["phase"] == "Running")

    def delete(self, name: str) -> None:
        self.kubectl(*self._in("delete", "pod", name))

    def refusal(self, resource: str, count: int) -> str:
        self._apply(self._pod("greedy", "true", {resource: str(count)}))
        said: list[str] = []

        def is_told() -> bool:
            conditions = self.get(*self._in("pod", "greedy"))["status"].get("conditions", ())
            said[:] = [one["message"] for one in conditions if one.get("reason") == "Unschedulable"]
            return bool(said)

        eventually(is_told, self._patience, PAUSE)
        self.delete("greedy")
        return said[0]

    # The plugin

    def _plugin_pods(self) -> list[str]:
        pods = self.get(*self._in("pods", "--selector=app.kubernetes.io/component=device-plugin"))
        return [str(one["metadata"]["name"]) for one in pods["items"]]

    def _plugin_pod(self) -> str:
        (name,) = self._plugin_pods()
        return name

    def metrics(self) -> str:
        # From inside: the network policy lets nobody else in.
        return self.kubectl(
            *self._in("exec", self._plugin_pod()), "--", "python3", "-c", READ_METRICS
        )

    def restart_plugin(self) -> None:
        old = self._plugin_pod()
        self.kubectl(*self._in("delete", "pod", old, "--grace-period=1"))
        # Until the next one is there the DaemonSet's status can be that of the old one.
        eventually(lambda: self._plugin_pods() not in ([], [old]), self._patience, PAUSE)
        self.kubectl(*self._in("rollout", "status", "daemonset", f"--timeout={self._patience:g}s"))

    def restart_kubelet(self) -> None:
        if not self._options.restart_kubelet:
            pytest.skip("no --restart-kubelet")
        subprocess.run(
            self._options.restart_kubelet, shell=True, check=True, timeout=self._patience
        )

    def uninstall(self) -> None:
        self._remove_files()
        # With the namespace goes what is in it, perhaps before kubectl comes to it.
        words = ("--ignore-not-found", f"--timeout={self._patience:g}s")
        self.kubectl("delete", f"--kustomize={self._root}", *words)
        left = self.kubectl("get", "namespace", self._namespace, "--ignore-not-found")
        assert not left.strip()
        self._wait_gone()

    def _wait_gone(self) -> None:
        """Wait until the node has nothing of the plugin, or the next test would be skipped."""
        plugin = self._plugin
        assert plugin is not None
        eventually(lambda: not self._matching(plugin), self._patience, PAUSE)

    def collect(self, folder: Path) -> None:
        questions = {
            "objects.yaml": ("get", "all,configmaps,networkpolicies", "--output=yaml"),
            "events.txt": ("get", "events", "--sort-by=.lastTimestamp"),
            "pods.txt": ("describe", "pods"),
            "plugin.log": (
                *("logs", "--selector=app.kubernetes.io/component=device-plugin"),
                *("--tail=-1", "--prefix"),
            ),
        }
        for name, words in questions.items():
            (folder / name).write_text(self.kubectl(*self._in(*words), check=False))
        (folder / "node.txt").write_text(self.kubectl("describe", "node", self._node, check=False))

    def _remove_files(self) -> None:
        if self._plugin is not None and self._plugin.files:
            self._on_node(f"rm -rf /host/{self._namespace}")

    def close(self) -> None:
        if self.kubectl("get", "namespace", self._namespace, "--ignore-not-found").strip():
            try:
                self._remove_files()
            finally:
                words = (self._namespace, f"--timeout={self._patience:g}s")
                self.kubectl("delete", "namespace", *words)
            if self._plugin is not None:
                self._wait_gone()


def as_number(quantity: str) -> int:
    """Return the number of devices: 1000 are written as 1k."""
    found = re.fullmatch(r"(\d+)([kMG]?)", quantity)
    assert found is not None, quantity
    thousands: int = 1000 ** " kMG".index(found[2] or " ")
    return int(found[1]) * thousands
