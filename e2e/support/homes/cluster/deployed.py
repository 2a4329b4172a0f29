"""A plugin on a cluster: a namespace of its own, its DaemonSet, and files on the node."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

from homes.cluster.kubectl import Kubectl
from homes.cluster.manifests import CASE, Options, Overlay, Pods, image_of, replaced_volumes
from homes.cluster.node import ClusterNode
from homes.cluster.progress import Progress
from homes.home import Plugin
from homes.pretended_hardware import StandIn

PLUGIN = "app.kubernetes.io/component=device-plugin"
"""The label of a plugin's pods."""
_ASK = (
    "import urllib.request as r;"
    "print(r.urlopen('http://127.0.0.1:9494/{}').read().decode(), end='')"
)
_T = TypeVar("_T")
_HAND = "on-node"
_NEVER = {"ErrImageNeverPull", "InvalidImageName"}
"""Reasons for which a container waits in vain."""


class Deployed:
    """A deployed plugin. Nothing is on the cluster before the first ``apply``."""

    def __init__(
        self,
        root: Path,
        node: ClusterNode,
        options: Options,
        progress: Progress,
        namespace: str = "",
    ) -> None:
        self.namespace = namespace or f"e2e-{token_hex(4)}"
        self.kubectl = Kubectl(self.namespace, options.patience + 60)
        self.folder = Path("/tmp", self.namespace)
        """Its files on the node."""
        self._root, self._node, self._options = root, node, options
        self._progress = progress
        self._pods = Pods(options, self.namespace, node.hostname)
        self._applied = ""
        self.deployments: list[str] = []
        """The names of those that have pods replaced which are deleted."""

    # The plugin

    def apply(
        self, plugin: Plugin, stand_in: StandIn | None = None, *, before: bool = False
    ) -> None:
        """Have the plugin run as it is described; nothing is done if it does already.

        ``before`` has the release before this one run.
        """
        text = self.write_overlay(plugin, stand_in, before=before)
        if text != self._applied:
            self.kubectl("apply", f"--kustomize={self._root}")
            self._applied = text
        self.wait_ready()

    def write_overlay(
        self, plugin: Plugin, stand_in: StandIn | None = None, *, before: bool = False
    ) -> str:
        """Write the kustomization that is applied, and return it."""
        own = {plugin.files: str(self.folder / "files")} if plugin.files else {}
        if stand_in is not None:
            own |= {place: str(path) for place, path in stand_in.host.items()}
        overlay = Overlay(
            plugin,
            self._options,
            self.namespace,
            self._node.hostname,
            stand_in=stand_in,
            before=before,
        )
        written = self._root / "kustomization.yaml"
        written.write_text(overlay.text(self._root))
        rendered = self.kubectl("kustomize", str(self._root))
        overlay.check(rendered)
        image, volumes = self._node.listed(image_of(rendered)), replaced_volumes(rendered, own)
        text = replace(overlay, image=image, volumes=volumes).text(self._root)
        written.write_text(text)
        return text

    def wait_ready(self) -> None:
        self.wait(self._is_ready, "the plugin to be ready")

    def _is_ready(self) -> bool:
        (found,) = self.kubectl.get_own("daemonsets")["items"]
        status = found["status"]
        wanted = status.get("desiredNumberScheduled", 0)
        return (
            bool(
                status.get("observedGeneration") == found["metadata"]["generation"]
                and wanted
                and wanted == status.get("updatedNumberScheduled") == status.get("numberAvailable")
                and wanted == status.get("currentNumberScheduled")
            )
            or self._must_wait()
        )

    def _must_wait(self) -> bool:
        """Return False. Raise ``AssertionError`` if waiting is in vain."""
        for pod in self.pods():
            self._progress.note(why_it_waits(pod))
        return False

    def pods(self) -> list[dict[str, Any]]:
        """Return the plugin's pods that are not being deleted."""
        return self.kubectl.pods(PLUGIN)

    def _plugin_pod(self) -> str:
        (pod,) = self.pods()
        return str(pod["metadata"]["name"])

    def ask(self, path: str, *, check: bool = True) -> str:
        """Return what the plugin serves, from inside, because of its network policy."""
        return self.execute("python3", "-c", _ASK.format(path), check=check)

    def execute(self, *command: str, check: bool = True) -> str:
        """Return what a command in the plugin's container prints."""
        pod, own = self._plugin_pod(), "device-plugin"
        return self.kubectl.execute(pod, *command, container=own, check=check)

    def image(self) -> str:
        """Return the image that the plugin's container runs, once there is its pod."""
        self.wait(lambda: len(self.pods()) == 1, "the plugin's pod")
        (pod,) = self.pods()
        images = {one["name"]: one["image"] for one in pod["spec"]["containers"]}
        return str(images["device-plugin"])

    def registrations(self) -> float:
        """Return how often the kubelet has accepted the plugin's pod; 0 if it does not answer."""
        pattern = r"^deviceplugin_registrations_total\{.*\} (\S+)$"
        return sum(map(float, re.findall(pattern, self.ask("metrics", check=False), re.MULTILINE)))

    def containers(self) -> set[str]:
        """Return the ids of the plugin's containers; none while its pod is being replaced."""
        statuses = [pod["status"].get("containerStatuses", ()) for pod in self.pods()]
        return {one.get("containerID", "") for each in statuses for one in each}

    def wait_rebooted(self, before: set[str]) -> None:
        """Wait until the plugin is ready in other containers than ``before``."""
        # What ran on the node runs no more, which its status may say late.
        words = ("pod", _HAND, "--ignore-not-found", "--grace-period=0", "--force")
        self.kubectl.own("delete", *words)
        self.wait(
            lambda: bool(found := self.containers()) and not before & found,
            "the plugin to be started again",
        )
        self.wait_ready()

    def restart(self) -> None:
        """End the plugin's pod, and wait for the next one."""
        old = self._plugin_pod()
        self.kubectl.own("delete", "pod", old, "--grace-period=1")

        def is_replaced() -> bool:
            # Until then the DaemonSet's status can describe the old one.
            return [old] != [one["metadata"]["name"] for one in self.pods()] != []

        self.wait(is_replaced, "the plugin's next pod")
        self.wait_ready()

    # The node's files

    def on_node(self, command: str) -> str:
        """Return what a shell prints that has the node's /tmp as /host."""
        if not self._exists("pod", _HAND):
            self.run_to("Running", self._pods.on_host(_HAND, "trap exit TERM; sleep 7200 & wait"))
        return self.kubectl.execute(_HAND, "sh", "-c", command)

    def unpack(self, packed: str, place: str = "") -> None:
        """Have what was packed on the node, in its own place or below a folder of the plugin's.

        By a ConfigMap, which can have a megabyte.
        """
        self.make_namespace()
        name = f"unpack-{place or 'here'}"
        metadata = {"name": name, "namespace": self.namespace}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        # Not by "apply", which would copy it into an annotation, which may not be that large.
        self.kubectl(
            "create", "--filename=-", stdin=json.dumps(config | {"data": {"hardware": packed}})
        )
        folder = f"/host/{self.namespace}/{place}" if place else "/host"
        unpack = f"mkdir -p {folder} && base64 -d < /packed/hardware | tar -x -z -p -C {folder}"
        pod = self._pods.on_host(name, unpack)
        pod["spec"]["volumes"].append({"name": "packed", "configMap": {"name": name}})
        mount = {"name": "packed", "mountPath": "/packed", "readOnly": True}
        pod["spec"]["containers"][0]["volumeMounts"].append(mount)
        self.run_to("Succeeded", pod)

    def make_namespace(self) -> None:
        """Make its namespace, in which pods may do what a plugin does."""
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        metadata = {"name": self.namespace, "labels": labels}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.kubectl.apply(made)

    def run_to(self, phase: str, pod: dict[str, Any]) -> None:
        """Create a pod, and wait until it is in a phase."""
        self.kubectl.apply(pod)
        self.wait_phase(pod["metadata"]["name"], phase)

    # Pods

    def wait_phase(self, name: str, phase: str) -> None:
        """Wait for a pod. Raise ``AssertionError`` with its status if it fails instead."""

        def is_there() -> bool:
            pod = self.kubectl.get_own("pod", name)
            found = pod["status"]
            assert found["phase"] == phase or found["phase"] != "Failed", found
            self._progress.note(why_it_waits(pod))
            return bool(found["phase"] == phase)

        self.wait(is_there, f"the pod {name} to be {phase}")

    def wait(self, condition: Callable[[], _T], what: str) -> _T:
        """Wait for ``condition``, and return what it returned."""
        return self._progress.wait(condition, what, self._options.patience)

    def forget_case(self, case: str) -> None:
        """Delete the pods of a case without waiting, because nothing depends on it."""
        words = ("delete", "pods", f"--selector={CASE}={case}", "--wait=false")
        self.kubectl.own(*words)

    def delete_deployment(self, name: str) -> None:
        """Delete a Deployment and, which is not waited for, its pods."""
        words = ("delete", "deployment", name, "--wait=false", "--ignore-not-found")
        self.kubectl.own(*words)

    # The end

    def is_there(self) -> bool:
        return bool(self._applied) and self._exists("namespace", self.namespace)

    def _exists(self, kind: str, name: str) -> bool:
        words = ("get", kind, name, "--ignore-not-found", "--output=name")
        return bool(self.kubectl.own(*words).strip())

    def begin_removal(self) -> None:
        """Delete everything, and wait only for the files of the node."""
        if self._exists("namespace", self.namespace):
            try:
                self.on_node(f"rm -rf /host/{self.namespace}")
            finally:
                # Deleting a namespace with pods takes longer than deleting the pods first.
                words = ("daemonsets", "--all", "--wait=false")
                self.kubectl.own("delete", *words)
                for name in self.deployments:
                    self.delete_deployment(name)
                self.kubectl.own("delete", "pods", "--all", "--wait=false")
        self._applied = ""

    def end_removal(self) -> None:
        """Wait until it is gone."""
        limit = f"--timeout={self._options.patience:g}s"
        if self._exists("namespace", self.namespace):
            self.kubectl.own("wait", "pods", "--all", "--for=delete", limit)
            words = (f"--kustomize={self._root}", "--ignore-not-found", limit)
            # Objects of the namespace may be deleted before kubectl comes to them.
            self.kubectl("delete", *words)
        assert not self._exists("namespace", self.namespace)


def why_it_waits(pod: Mapping[str, Any]) -> str:
    """Return what a container of the pod waits for; empty if unknown.

    Raise ``AssertionError`` if it waits in vain.
    """
    status = pod["status"]
    for one in [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]:
        waiting = one.get("state", {}).get("waiting", {})
        assert waiting.get("reason") not in _NEVER, f"{pod['metadata']['name']}: {waiting}"
        if waiting.get("message"):
            return f"{waiting['reason']}: {waiting['message']}"
    return ""
