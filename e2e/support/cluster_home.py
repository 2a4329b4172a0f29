"""A real cluster, through kubectl. Every name is made for one test, and everything is removed."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import yaml

from container import eventually
from home import LOOK, Given, Plugin, seen

DEPLOYMENTS = Path(__file__).parents[2] / "deployments"
PATIENCE = 180.0
"""Seconds. Pods have to be scheduled and started, and a node tells its status every 10 s."""
HARDWARE = 30.0
"""Seconds until a ready plugin's devices are known, if there are any."""
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


class Cluster:
    """See Home. One node of the cluster is looked at: the one that is named, or the first."""

    def __init__(self, root: Path, options: Options) -> None:
        self._root, self._options = root, options
        self._namespace = f"e2e-{token_hex(4)}"
        self._node = options.node or self._first_node()
        self._plugin: Plugin | None = None

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """Return what kubectl prints."""
        done = subprocess.run(
            ["kubectl", *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE + 60,
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def get(self, *words: str) -> Any:
        """Return the objects of ``kubectl get``."""
        return json.loads(self.kubectl("get", *words, "--output=json"))

    def _in(self, *words: str) -> tuple[str, ...]:
        return (*words, f"--namespace={self._namespace}")

    def _first_node(self) -> str:
        names = [node["metadata"]["name"] for node in self.get("nodes")["items"]]
        assert names, "the cluster has no node"
        return str(names[0])

    # Installing

    def install(self, plugin: Plugin) -> None:
        if self._matching(plugin, "capacity"):
            pytest.skip(f"{self._node} has {plugin.resource} already: another plugin is there")
        self._plugin = plugin
        self.write_overlay(plugin)
        self.kubectl("apply", f"--kustomize={self._root}")
        self.kubectl(*self._in("rollout", "status", "daemonset", f"--timeout={PATIENCE:g}s"))

    def write_overlay(self, plugin: Plugin) -> None:
        """Write the kustomization that is applied: the deployment, in this namespace."""
        name = f"{plugin.name}-device-plugin"
        spec: dict[str, Any] = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": self._namespace,
            "resources": [os.path.relpath(DEPLOYMENTS / plugin.name, self._root.resolve())],
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
            "nodeSelector": {"kubernetes.io/hostname": self._node},
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

    def _matching(self, plugin: Plugin, kind: str = "allocatable") -> dict[str, int]:
        """Return what the node has of the plugin's resource; of several, if it is a pattern."""
        found = self.get("node", self._node)["status"][kind].items()
        counts = {name: int(count) for name, count in found if fnmatch(name, plugin.resource)}
        return {name: count for name, count in counts.items() if count}

    def offer(self, plugin: Plugin) -> tuple[str, int]:
        if plugin.devices is not None:
            self.wait_allocatable(plugin.resource, plugin.devices)
            return plugin.resource, plugin.devices
        try:
            eventually(lambda: bool(self._matching(plugin)), HARDWARE, 1)
        except AssertionError:
            pytest.skip(f"{self._node} has no hardware for {plugin.resource}")
        return max(self._matching(plugin).items())

    def wait_allocatable(self, resource: str, count: int) -> None:
        def has_them() -> bool:
            allocatable = self.get("node", self._node)["status"]["allocatable"]
            return int(allocatable.get(resource, "0")) == count

        eventually(has_them, PATIENCE, 1)

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
        self.kubectl(*self._in("delete", "pod", name, "--wait=false"))

    # Pods

    def _pod(self, name: str, command: str, limits: dict[str, str]) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": self._node},
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

        eventually(is_there, PATIENCE, 1)

    def run(self, name: str, resource: str, count: int) -> Given:
        # An empty line ends what is looked at.
        command = f"{LOOK}; echo; trap exit TERM; sleep 3600 & wait"
        self._apply(self._pod(name, command, {resource: str(count)}))
        self._wait_phase(name, "Running")
        said: list[str] = []

        def has_said_all() -> bool:
            said[:] = [self.kubectl(*self._in("logs", name))]
            return said[0].count("\n\n") > 1 and said[0].endswith("\n\n")

        eventually(has_said_all, PATIENCE, 1)
        return seen(said[0].strip())

    def execute(self, name: str, command: str) -> str:
        words = ("exec", name, "--", "sh", "-c", command)
        return self.kubectl(*self._in(*words[:2]), *words[2:], check=False)

    def run_example(self, pod: Mapping[str, Any]) -> str:
        name = pod["metadata"]["name"]
        own = json.loads(json.dumps(pod))
        own["metadata"]["namespace"] = self._namespace
        own["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self._node}
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

        eventually(is_told, PATIENCE, 1)
        self.delete("greedy")
        return said[0]

    # The plugin

    def _plugin_pod(self) -> str:
        pods = self.get(*self._in("pods", "--selector=app.kubernetes.io/component=device-plugin"))
        (name,) = (one["metadata"]["name"] for one in pods["items"])
        return str(name)

    def metrics(self) -> str:
        # From inside: the network policy lets nobody else in.
        return self.kubectl(
            *self._in("exec", self._plugin_pod()), "--", "python3", "-c", READ_METRICS
        )

    def restart_plugin(self) -> None:
        self.kubectl(*self._in("delete", "pod", self._plugin_pod(), "--grace-period=1"))
        self.kubectl(*self._in("rollout", "status", "daemonset", f"--timeout={PATIENCE:g}s"))

    def restart_kubelet(self) -> None:
        if not self._options.restart_kubelet:
            pytest.skip("no --restart-kubelet")
        subprocess.run(self._options.restart_kubelet, shell=True, check=True, timeout=PATIENCE)

    def uninstall(self) -> None:
        self._remove_files()
        self.kubectl("delete", f"--kustomize={self._root}", f"--timeout={PATIENCE:g}s")
        left = self.kubectl("get", "namespace", self._namespace, "--ignore-not-found")
        assert not left.strip()
        plugin = self._plugin
        assert plugin is not None
        eventually(lambda: not self._matching(plugin), PATIENCE, 1)

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
            self._remove_files()
            self.kubectl("delete", "namespace", self._namespace, f"--timeout={PATIENCE:g}s")
