"""What is applied to a cluster: the plugin's deployment, changed for a test, and pods."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from homes.home import Plugin
from homes.pretended_hardware import StandIn

DEPLOYMENTS = Path(__file__).parents[4] / "deployments"
_WITH_PODS = {"DaemonSet", "Deployment"}
PATIENCE = 180.0
"""Seconds. Pods must be scheduled and started, and a node updates its status every 10 s."""


@dataclass(frozen=True)
class Options:
    """The options for a cluster."""

    image: str = ""
    operator_image: str = ""
    pull_policy: str = "IfNotPresent"
    runtime_class: str = ""
    pod_image: str = "busybox:1.37"
    node: str = ""
    restart_kubelet: str = ""
    reboot: str = ""
    chaos: float = 0.0
    """Minutes of random faults."""
    chaos_clock: bool = False
    """Whether they set the node's clock."""
    chaos_node: bool = False
    """Whether they have the programs of the node hang."""
    chaos_faults: str = ""
    """The names of those that are made; all where it is empty."""
    node_fault: tuple[str, ...] = ()
    """More of them: NAME=COMMAND."""
    before: str = ""
    """The folder of the release before: a checkout, whose deployments/ are applied."""
    before_tag: str = ""
    """Of its images; that of its manifests where it is not given."""
    patience: float = PATIENCE
    release: str = ""
    """The address of a release, or its folder."""
    next_release: str = ""
    """That of the release that it is upgraded to."""
    pretend_hardware: bool = False
    """Whether a node without hardware gets the pretended hardware of the cases."""


@dataclass(frozen=True)
class Overlay:
    """The deployment of a plugin, on one node and in one namespace."""

    plugin: Plugin
    options: Options
    namespace: str
    hostname: str
    volumes: Mapping[str, str] = field(default_factory=dict)
    """Directories of the node that replace those of the deployment, by the names of volumes."""
    stand_in: StandIn | None = None
    """The pretended hardware of the node."""
    before: bool = False
    """Whether it is the release before."""
    image: str = ""
    """How the node lists the image of the manifests."""

    @property
    def deployments(self) -> Path:
        """Return the folder with the release's deployments."""
        return Path(self.options.before, "deployments") if self.before else DEPLOYMENTS

    def text(self, place: Path) -> str:
        """Return the kustomization, for the folder ``place``."""
        name = f"{self.plugin.name}-device-plugin"
        deployments = os.path.relpath(self.deployments.resolve(), place.resolve())
        spec: dict[str, Any] = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": self.namespace,
            "resources": [f"{deployments}/{self.plugin.name}"],
            "components": [f"{deployments}/components/{one}" for one in self.plugin.components],
            "patches": [
                {"target": {"kind": "DaemonSet"}, "patch": json.dumps(self._patch())},
                *map(self._patch_of_its_own, self._of_their_own()),
            ],
        }
        if image := self._image():
            spec["images"] = [{"name": name, **image}]
        if self.plugin.config:
            texts = {"config.yaml": self.plugin.config, **self.plugin.beside}
            change = [
                {"op": "add", "path": f"/data/{one}", "value": text} for one, text in texts.items()
            ]
            spec["patches"].append({"target": {"kind": "ConfigMap"}, "patch": json.dumps(change)})
        return json.dumps(spec)

    def check(self, manifests: str) -> None:
        """Raise ``AssertionError`` if a change has met nothing, which kustomize passes over."""
        found = [*filter(None, yaml.safe_load_all(manifests))]
        made = {(one["kind"], one["metadata"]["name"]): one for one in found}
        image = image_of(manifests)
        name, wanted = f"{self.plugin.name}-device-plugin", self._image()
        title, _, tag = image.rpartition(":")
        assert wanted.items() <= {"newName": title, "newTag": tag}.items(), (
            f"{name} has the image {image}, which is not called {name} there: nothing of {wanted}"
        )
        configs = [one.get("data", {}) for one in found if one["kind"] == "ConfigMap"]
        texts = [one.get("config.yaml") for one in configs]
        kept = not self.plugin.config or self.plugin.config in texts
        assert kept, f"{name} has no ConfigMap with a config.yaml to replace: it has {[*made]}"
        for component in self._of_their_own():
            assert ("Deployment", f"{name}-{component}") in made, (
                f"the component {component} has no Deployment {name}-{component}: {[*made]}"
            )

    def _of_their_own(self) -> list[str]:
        """Return the components that have a pod of their own, beside the plugin's."""
        folder = self.deployments / "components"
        return [
            one for one in self.plugin.components if (folder / one / "deployment.yaml").exists()
        ]

    def _patch_of_its_own(self, component: str) -> dict[str, Any]:
        words = {"args": [*self.plugin.arguments[component]]}
        container = {"name": component, "imagePullPolicy": self.options.pull_policy, **words}
        patch = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "any"},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }
        name = f"{self.plugin.name}-device-plugin-{component}"
        return {"target": {"kind": "Deployment", "name": name}, "patch": json.dumps(patch)}

    def _image(self) -> dict[str, str]:
        """Return what the image is to be called otherwise than in the manifests."""
        made = {}
        if given := self.options.image or self.image:
            image, _, tag = given.rpartition(":")
            assert image, "--image needs a tag"
            assert "/" not in tag, "--image needs a tag"
            made = {"newName": image, "newTag": tag}
        if self.before and self.options.before_tag:
            made["newTag"] = self.options.before_tag
        return made

    def _patch(self) -> dict[str, Any]:
        container: dict[str, Any] = {
            "name": "device-plugin",
            "imagePullPolicy": self.options.pull_policy,
            "env": [
                {"name": name, "value": text} for name, text in self.plugin.environment.items()
            ],
        }
        pod: dict[str, Any] = {
            # Only on this node, because the others are not checked.
            "nodeSelector": {"kubernetes.io/hostname": self.hostname},
            "containers": [container],
            "volumes": [
                {"name": name, "hostPath": {"path": path}} for name, path in self.volumes.items()
            ],
        }
        if self.stand_in is not None:
            self.stand_in.show(pod)
        pod["containers"] += [
            {"name": name, "imagePullPolicy": self.options.pull_policy, "args": [*words]}
            for name, words in self.plugin.arguments.items()
            if name not in self._of_their_own()
        ]
        if self.options.runtime_class:
            pod["runtimeClassName"] = self.options.runtime_class
        # A changed configuration gets a new pod, because the kubelet updates an old one late.
        digest = hashlib.sha256(self.plugin.config.encode()).hexdigest()[:16]
        metadata = {"annotations": {"e2e/config": digest}}
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "any"},
            "spec": {"template": {"metadata": metadata, "spec": pod}},
        }


def image_of(manifests: str, container: str = "device-plugin") -> str:
    """Return the image of a container of the DaemonSet or Deployment in ``manifests``."""
    found = (one for one in yaml.safe_load_all(manifests) if one["kind"] in _WITH_PODS)
    own = (each for one in found for each in one["spec"]["template"]["spec"]["containers"])
    return next(str(one["image"]) for one in own if one["name"] == container)


def replaced_volumes(manifests: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the replacements of the node's directories, by the names of their volumes.

    ``own`` has them by the directories that the DaemonSet in ``manifests`` mounts. Raise
    ``AssertionError`` if it does not mount one: the plugin would see the node's own.
    """
    (daemon_set,) = (one for one in yaml.safe_load_all(manifests) if one["kind"] == "DaemonSet")
    places = {
        one["name"]: one.get("hostPath", {}).get("path")
        for one in daemon_set["spec"]["template"]["spec"].get("volumes", ())
    }
    missing = [*{*own} - {*places.values()}]
    name = daemon_set["metadata"]["name"]
    assert not missing, f"{name} has no volume of {', '.join(missing)} to replace: it has {places}"
    return {name: own[place] for name, place in places.items() if place in own}


CASE = "e2e/case"
"""The label of a case's pods."""


@dataclass(frozen=True)
class Pods:
    """Creates the pods of one case, on one node and in one namespace."""

    options: Options
    namespace: str
    hostname: str
    case: str = ""

    def running(self, name: str, command: str, limits: Mapping[str, str]) -> dict[str, Any]:
        """Return a pod with one container, which runs ``command`` in a shell."""
        container = {
            "name": "main",
            "image": self.options.pod_image,
            "imagePullPolicy": self.options.pull_policy,
            "command": ["sh", "-c", command],
            "resources": {"limits": dict(limits)},
            # Nodes are made in some of them, which not every runtime lets a container do.
            "securityContext": {"capabilities": {"add": ["MKNOD"]}},
        }
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": self.hostname},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        metadata = {"name": name, "namespace": self.namespace, "labels": self._labels()}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def on_host(self, name: str, command: str, path: str = "/tmp") -> dict[str, Any]:
        """Return a pod that has the node's /tmp, or another directory, as /host."""
        made = self.running(name, command, {})
        mount = {"name": "host", "mountPath": "/host"}
        made["spec"]["containers"][0]["volumeMounts"] = [mount]
        host = {"name": "host", "hostPath": {"path": path, "type": "Directory"}}
        made["spec"]["volumes"] = [host]
        return made

    def example(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Return a pod of demo/examples, with our image and on our node."""
        own: dict[str, Any] = json.loads(json.dumps(pod))
        # That of another case may still be there.
        name = "-".join(filter(None, (own["metadata"]["name"], self.case)))
        own["metadata"] |= {"name": name, "namespace": self.namespace, "labels": self._labels()}
        own["spec"]["tolerations"] = [{"operator": "Exists"}]
        own["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.hostname}
        for container in own["spec"]["containers"]:
            container |= {"image": self.options.pod_image}
            container |= {"imagePullPolicy": self.options.pull_policy}
        return own

    def _labels(self) -> dict[str, str]:
        return {CASE: self.case} if self.case else {}
