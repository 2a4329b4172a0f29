"""The operator on a cluster, with one object of its kind, and what becomes of both."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from homes.cluster.deployed import PLUGIN
from homes.cluster.kubectl import Kubectl
from homes.cluster.manifests import DEPLOYMENTS, Options, Pods, image_of
from homes.cluster.node import ClusterNode
from homes.cluster.progress import Progress

SPACE: Final = "deviceplugin-operator"
KIND: Final = "customresourcedefinition/deviceplugins.deviceplugin.dev"
NAME: Final = "e2e"
"""The object."""
RESOURCE: Final = "example.com/e2e-operator"
_FOLDER: Final = DEPLOYMENTS / "operator"
_PREFIX: Final = "/spec/template/spec/containers/0/env/1"


class InstalledOperator:
    """The operator, installed as its page says. ``root`` is an empty folder for an overlay."""

    def __init__(self, root: Path, options: Options, node: ClusterNode, progress: Progress) -> None:
        self.kubectl = Kubectl(SPACE, options.patience + 60)
        self.node = node
        self._root, self._options, self._progress = root, options, progress
        self._limit = f"--timeout={options.patience:g}s"
        self._there: list[str] = []
        self._there = self.left()
        """What somebody has left before, such as rights for DRA."""

    # Installing

    def is_there(self) -> bool:
        """Return whether the cluster has the kind: somebody may use it."""
        return bool(self.kubectl("get", KIND, "--ignore-not-found", "--output=name"))

    def install(self) -> None:
        """Apply the kind, then the operator, and wait for it."""
        self.kubectl("apply", f"--kustomize={_FOLDER / 'crd'}")
        self.kubectl("wait", "--for=condition=Established", KIND, self._limit)
        self.install_operator()

    def install_operator(self) -> None:
        """Apply the operator alone, and wait for it."""
        self._write_overlay()
        self.kubectl("apply", f"--kustomize={self._root}")
        words = ("rollout", "status", "deployment", self._limit)
        self.kubectl.own(*words)

    def _write_overlay(self) -> None:
        folder = os.path.relpath((_FOLDER / "operator").resolve(), self._root.resolve())
        spec: dict[str, Any] = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [folder],
        }
        made = self.kubectl("kustomize", str(_FOLDER / "operator"))
        own = self.node.listed(image_of(made, "operator"))
        image, _, tag = (self._options.operator_image or own).rpartition(":")
        assert image, "--operator-image needs a tag"
        spec["images"] = [{"name": SPACE, "newName": image, "newTag": tag}]
        # Where the node has those of the plugins, too.
        prefix = {"name": "IMAGE_PREFIX", "value": own.rpartition(SPACE)[0]}
        added = [{"op": "replace", "path": _PREFIX, "value": prefix}]
        spec["patches"] = [{"target": {"kind": "Deployment"}, "patch": json.dumps(added)}]
        (self._root / "kustomization.yaml").write_text(json.dumps(spec))

    def remove_operator(self) -> None:
        """Delete the operator, not what it has made."""
        self.kubectl("delete", f"--kustomize={self._root}", "--ignore-not-found", self._limit)

    def remove(self) -> None:
        """Delete everything in the order of the page, and wait until it is gone."""
        if not self.is_there():
            return
        self.kubectl("delete", "dpl", "--all", self._limit)
        self._write_overlay()
        self.remove_operator()
        self.kubectl("delete", f"--kustomize={_FOLDER / 'crd'}", self._limit)
        self.wait(self._is_gone, "nothing to be left of the operator")

    def _is_gone(self) -> bool:
        left = self.left()
        self._progress.note(", ".join(left))
        return not left

    def left(self) -> list[str]:
        """Return what is left of it on the cluster and the node, and was not there before."""
        cluster_wide = ("customresourcedefinitions", "clusterroles", "clusterrolebindings")
        names = [
            f"{kind}/{one['metadata']['name']}"
            for kind in (*cluster_wide, "namespaces")
            for one in self.kubectl.get(kind)["items"]
        ]
        found = [one for one in names if SPACE in one or "deviceplugins.deviceplugin.dev" in one]
        found += self.node.matching(RESOURCE)
        return [one for one in found if one not in self._there]

    # The object

    def apply(self, settings: dict[str, Any], **more: Any) -> None:
        """Have the simulated plugin on the node; fail with kubectl's words if it is refused."""
        spec = {
            "plugin": "simulated",
            "nodeSelector": {"kubernetes.io/hostname": self.node.hostname},
            "simulated": {"resource": RESOURCE, **settings},
            **more,
        }
        if self._options.image:
            spec.setdefault("image", self._options.image)
        made = {
            "apiVersion": "deviceplugin.dev/v1alpha1",
            "kind": "DevicePlugin",
            "metadata": {"name": NAME},
            "spec": spec,
        }
        self.kubectl.apply(made)

    def have(self, devices: int) -> None:
        """Have so many devices on the node, whatever there was before."""
        self.apply({"number-devices": devices}, rollout={"allowFewerDevices": True})
        self.kubectl("wait", f"dpl/{NAME}", "--for=condition=Ready", self._limit)
        self.wait_allocatable(devices)

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Return status, reason and message of a condition of the current spec, or blanks."""
        found = self.kubectl.get("dpl", NAME)
        for one in found.get("status", {}).get("conditions", ()):
            if one["type"] == kind and one["observedGeneration"] == found["metadata"]["generation"]:
                return one["status"], one["reason"], one["message"]
        return "", "", ""

    def wait_message(self, kind: str, part: str) -> str:
        """Wait until a condition's message has ``part``, and return the message."""

        def message() -> str:
            found = self.condition(kind)[2]
            return found if part in found else ""

        what = f"{kind} to say {part!r}"
        return self._progress.wait(message, what, self._options.patience)

    def wait_allocatable(self, count: int) -> None:
        self.wait(
            lambda: self.node.allocatable(RESOURCE) == count,
            f"{self.node.name} to have {count} of {RESOURCE}",
        )

    def wait(self, condition: Any, what: str) -> Any:
        """Wait for ``condition``, and return what it returned."""
        return self._progress.wait(condition, what, self._options.patience)

    # Pods

    def plugin_pods(self) -> set[str]:
        """Return the plugin's pods by UID, with the time of the last start of each container."""
        return {
            f"{one['metadata']['uid']} {status.get('state')}"
            for one in self.kubectl.pods(PLUGIN)
            for status in one["status"].get("containerStatuses", ())
        }

    def hold_a_device(self, name: str) -> None:
        """Run a pod with one device, which goes with the operator's namespace."""
        pods = Pods(self._options, SPACE, self.node.hostname)
        command = "trap exit TERM; sleep 7200 & wait"
        self.kubectl.apply(pods.running(name, command, {RESOURCE: "1"}))
        self.wait(lambda: self.is_running(name), f"the pod {name} to run")

    def is_running(self, name: str) -> bool:
        """Return whether a pod runs, in its first container."""
        status = self.kubectl.get_own("pod", name)["status"]
        restarts = sum(one["restartCount"] for one in status.get("containerStatuses", ()))
        return bool(status["phase"] == "Running" and not restarts)

    def release_device(self, name: str) -> None:
        self.kubectl.own("delete", "pod", name)

    # What is seen from outside

    def fleet(self) -> list[str]:
        """Return what ``deviceplugin fleet`` prints of the resource on the node."""
        words = [sys.executable, "-m", "deviceplugin", "fleet", "--resource", RESOURCE]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        (line,) = (one for one in done.stdout.splitlines() if one.split()[1:2] == [self.node.name])
        return line.split()

    def collect(self, folder: Path) -> None:
        """Write logs and objects to ``folder``, for the analysis of a failure."""
        questions = {
            "objects.yaml": ("get", "dpl,all,configmaps", "--output=yaml"),
            "events.txt": ("get", "events", "--all-namespaces"),
            "pods.txt": ("describe", "pods"),
            "operator.log": ("logs", "deployment/deviceplugin-operator", "--tail=-1"),
            "node.txt": ("describe", "node", self.node.name),
        }
        for name, words in questions.items():
            text = self.kubectl.own(*words, check=False)
            (folder / name).write_text(text)
