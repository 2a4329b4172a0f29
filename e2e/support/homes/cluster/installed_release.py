"""A plugin of a release on a cluster, installed as users do it, and what is left in the end."""

import json
import subprocess
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

import yaml

from homes.case import Case
from homes.cluster.deployed import Deployed
from homes.cluster.kubectl import Kubectl
from homes.cluster.manifests import Pods, replaced_volumes
from homes.cluster.release import Release
from homes.cluster.session import HARDWARE, Session

FILES = (
    "cd /host/var/lib/kubelet && find device-plugins plugins_registry"
    " ! -type d ! -name kubelet_internal_checkpoint"
)
"""Sockets and links, below the root directory of most kubelets."""
_HAND = "on-host"
_EXCEPT = {"events", "events.events.k8s.io"}
"""What a cluster forgets by itself."""
Change = dict[str, Any]
"""What a pod has in addition: variables, mounts and volumes, for pretended hardware."""


class Way(Protocol):
    """A way to install a plugin."""

    def install(self, release: Release, change: Change) -> None:
        """Install it, or change it to that release."""

    def uninstall(self) -> None:
        """Remove it, by what was installed last."""


class Manifests:
    """``kubectl apply`` of install-PLUGIN.yaml; below an overlay if anything is to be changed."""

    def __init__(self, plugin: str, root: Path, kubectl: Kubectl) -> None:
        self._file, self._root, self._kubectl = f"install-{plugin}.yaml", root, kubectl
        self._installed: tuple[str, ...] = ()

    def install(self, release: Release, change: Change) -> None:
        text = release.read(self._file)
        self._installed = (f"--filename={release.address(self._file)}",)
        if change:
            (self._root / self._file).write_bytes(text)
            overlay = {"resources": [self._file], "patches": [_patch(change)]}
            (self._root / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
            self._installed = (f"--kustomize={self._root}",)
        self._kubectl("apply", *self._installed)

    def uninstall(self) -> None:
        # A namespace may be gone with what is in it before kubectl comes to that.
        self._kubectl("delete", *self._installed, "--ignore-not-found")


def _patch(change: Change) -> dict[str, Any]:
    spec = {"template": {"spec": change}}
    made = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "x"}, "spec": spec}
    return {"target": {"kind": "DaemonSet"}, "patch": json.dumps(made)}


class Chart:
    """``helm upgrade --install`` of the chart, with values for what is to be changed."""

    def __init__(self, plugin: str, root: Path, limit: float) -> None:
        self._plugin, self._root, self._limit = plugin, root, limit
        self._name = f"e2e-{token_hex(4)}"

    def install(self, release: Release, change: Change) -> None:
        release.read(release.chart)
        values: dict[str, Any] = {"enabled": True}
        if change:
            (container,) = change["containers"]
            values |= {key: container[key] for key in ("env", "volumeMounts")}
            values |= {key: change[key] for key in ("volumes", "nodeSelector")}
        path = self._root / "values.yaml"
        path.write_text(yaml.safe_dump({self._plugin: values}))
        chart = release.address(release.chart)
        self._helm("upgrade", "--install", self._name, chart, f"--values={path}")

    def uninstall(self) -> None:
        self._helm("uninstall", self._name, "--wait")

    def _helm(self, *words: str) -> None:
        command = ["helm", *words, "--namespace=default", f"--timeout={self._limit:g}s"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def objects_of(kubectl: Kubectl, name: str) -> list[str]:
    """Return all objects with the label of an application, of whatever kind, and its namespace."""
    listed = kubectl("api-resources", "--verbs=list", "--output=name").split()
    kinds = ",".join(kind for kind in listed if kind not in _EXCEPT)
    label = f"--selector=app.kubernetes.io/name={name}"
    words = ("get", kinds, "--all-namespaces", label, "--ignore-not-found", "--output=name")
    space = kubectl("get", "namespace", name, "--ignore-not-found", "--output=name")
    return sorted({*kubectl(*words).split(), *space.split()})


class InstalledRelease:
    """One plugin, which has the namespace of its manifests, and what a test needs beside it."""

    def __init__(self, root: Path, session: Session, case: Case) -> None:
        self.case, self.root, self._session = case, root, session
        self.name = f"{case.plugin.name}-device-plugin"
        options, node, progress = session.options, session.node, session.progress
        self.plugin = Deployed(root, node, options, progress, namespace=self.name)
        self.beside = Deployed(root, node, options, progress)
        """A namespace for pods, and a folder on the node."""
        self._pods = Pods(options, self.beside.namespace, node.hostname)
        self._kubectl = session.kubectl
        self.pretends = session.options.pretend_hardware and case.hardware is not None

    def way(self, name: str) -> Way:
        """Return a way to install the plugin."""
        if name == "chart":
            return Chart(self.case.plugin.name, self.root, self._session.options.patience)
        return Manifests(self.case.plugin.name, self.root, self._kubectl)

    def prepare(self, release: Release) -> Change:
        """Make the namespace for pods, and pretended hardware; return how the plugin finds that."""
        self.beside.make_namespace()
        hand = self._pods.on_host(_HAND, "trap exit TERM; sleep 7200 & wait", "/")
        self.beside.run_to("Running", hand)
        if not self.pretends or self.case.hardware is None:
            return {}
        made = self._session.pack(self.case.hardware, self.beside.folder / HARDWARE)
        self.beside.unpack(made.packed)
        pod: Change = {"containers": [{"name": "device-plugin", "env": []}], "volumes": []}
        made.stand_in.show(pod)
        text = release.read(f"install-{self.case.plugin.name}.yaml").decode()
        own = {place: str(path) for place, path in made.stand_in.host.items()}
        for name, path in replaced_volumes(text, own).items():
            pod["volumes"].append({"name": name, "hostPath": {"path": path}})
        return pod | {"nodeSelector": {"kubernetes.io/hostname": self._session.node.hostname}}

    def on_host(self, command: str) -> str:
        """Return what a shell prints that has the root of the node as /host."""
        return self.beside.kubectl.execute(_HAND, "sh", "-c", command, check=False)

    def add_files(self) -> None:
        """Create two of the files that are devices, where the plugin has such."""
        if folder := self.case.plugin.files:
            self.on_host(f"touch /host{folder}/gary /host{folder}/gina")

    def devices(self) -> dict[str, int]:
        """Return how many healthy devices the plugin has, by resource, if there are any."""
        found = {
            one["name"]: sum(device["healthy"] for device in one["devices"])
            for one in json.loads(self.plugin.ask("devices"))["resources"]
        }
        return {resource: count for resource, count in found.items() if count}

    def image(self) -> tuple[str, str]:
        """Return the image that the plugin's pod names, and what the node knows it by."""
        (pod,) = self.plugin.pods()
        (status,) = (
            one for one in pod["status"]["containerStatuses"] if one["name"] == "device-plugin"
        )
        return self.plugin.image(), str(status["imageID"])

    def hold(self, name: str, resource: str) -> None:
        """Run a pod with one device."""
        pod = self._pods.running(name, "trap exit TERM; sleep 7200 & wait", {resource: "1"})
        asks = [{"name": key, "value": value} for key, value in self.case.plugin.asks.items()]
        pod["spec"]["containers"][0]["env"] = asks
        self.beside.run_to("Running", pod)

    def pod(self, name: str) -> Any:
        """Return a pod that was run."""
        return self.beside.kubectl.get_own("pod", name)

    def left(self) -> list[str]:
        """Return all objects of the plugin on the cluster, of whatever kind, and its namespace."""
        return objects_of(self._kubectl, self.name)

    def files(self) -> set[str]:
        """Return the files by which plugins and the kubelet find each other."""
        return set(self.on_host(FILES).split())

    def close(self) -> None:
        """Remove what is beside the plugin: pods, files and pretended hardware."""
        words = ("--ignore-not-found", f"--timeout={self._session.options.patience:g}s")
        own = f"/host{self.beside.folder}"
        if folder := self.case.plugin.files:
            own += f" /host{folder}/gary /host{folder}/gina"
        self.on_host(f"rm -rf {own}")
        self._kubectl("delete", "namespace", self.beside.namespace, *words)
