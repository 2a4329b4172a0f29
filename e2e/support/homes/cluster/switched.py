"""The gopher plugin on a cluster, which is switched while pods hold its devices."""

import json
from collections.abc import Collection
from dataclasses import replace
from secrets import token_hex
from typing import Any, Final

import pytest

from homes.case import cases
from homes.cluster.deployed import PLUGIN
from homes.cluster.home import Cluster
from homes.cluster.manifests import CASE, DEPLOYMENTS

GOPHER: Final = replace(
    cases()["gopher"].plugin, components=("dra", "gopher-device-class"), devices=None
)
RESOURCE: Final = GOPHER.resource
DRIVER: Final = "gopher.example.com"
_CLASS: Final = DEPLOYMENTS / "components" / "gopher-device-class" / "deviceclass.yaml"
_LEFT: Final = (
    "import pathlib;"
    f"print(*(p for p in pathlib.Path('/var/run/cdi').iterdir() if '{DRIVER}' in p.name))"
)
"""Prints the driver's files in the directory that it shares with others."""


class Switched:
    """The plugin with what DRA needs, on a cluster home that has nothing installed yet."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def _kubectl(self, *words: str, stdin: str | None = None) -> str:
        kubectl = self.cluster.here.kubectl
        return kubectl.own(*words, stdin=stdin)

    # Installing

    def need_device_class(self) -> None:
        """Skip where unchanged pods get no devices through DRA, or somebody has the class."""
        kubectl = self.cluster.kubectl
        kept = kubectl("create", f"--filename={_CLASS}", "--dry-run=server", "-ojson", check=False)
        if not kept:
            pytest.skip(f"the cluster has no DRA, or the DeviceClass {DRIVER} already")
        if "extendedResourceName" not in json.loads(kept)["spec"]:
            pytest.skip("no DeviceClass has an extendedResourceName here: Kubernetes 1.36 has it")

    def install(self) -> None:
        self.cluster.install(GOPHER)

    def have(self, names: Collection[str]) -> None:
        """Have these gophers, by the device plugin."""
        here = self.cluster.here
        files = f"/host/{here.namespace}/files"
        here.on_node(f"mkdir -p {files} && cd {files} && touch {' '.join(names)}")
        self.cluster.wait_allocatable(RESOURCE, len(names))

    def release(self) -> None:
        """End all pods, while there is a driver that releases their claims; then end DRA."""
        self._kubectl("delete", "pods", f"--selector={CASE}")
        self._kubectl("delete", "resourceclaims", "--all")
        self.to("device-plugin")
        self.wait_offered(0)

    def uninstall(self) -> None:
        """Remove all of it. The kubelet deletes slices of a driver that is gone for 30 s."""
        here = self.cluster.here
        self.cluster.uninstall()
        here.wait(lambda: not self.slices(), "no slice to be left")

    # The protocol

    def to(self, protocol: str) -> None:
        """Change the configuration, which takes effect a little later, without a restart."""
        text = f"directory: {GOPHER.files}\nprotocol: {protocol}\n"
        patch = json.dumps({"data": {"config.yaml": text}})
        self._kubectl("patch", "configmap", "gopher-config", f"--patch={patch}")
        # The kubelet writes the new file when it looks at the pod, which is soon if that changes.
        annotation = f"e2e/changed={token_hex(4)}"
        self._kubectl("annotate", "pods", f"--selector={PLUGIN}", "--overwrite", annotation)

    def begin_dra(self, count: int) -> None:
        """Switch to DRA, and wait until it offers so many and the scheduler knows of it."""
        self.to("dra")
        self.wait_offered(count)
        # Until the node's status says so, the kubelet rejects pods that rely on it.
        self.cluster.wait_allocatable(RESOURCE, 0)

    def slices(self) -> list[dict[str, Any]]:
        """Return the ResourceSlices of the node."""
        found = self.cluster.kubectl.get("resourceslices")["items"]
        place = {"driver": DRIVER, "nodeName": self.cluster.node}
        return [one for one in found if place.items() <= one["spec"].items()]

    def offered(self) -> int:
        """Return how many devices a new pod may get through DRA."""
        devices = (device for one in self.slices() for device in one["spec"].get("devices", ()))
        return sum("taints" not in device for device in devices)

    def wait_offered(self, count: int) -> None:
        self.cluster.here.wait(
            lambda: self.offered() == count, f"DRA to offer {count} of {RESOURCE}"
        )

    def has_a_claim(self, name: str) -> bool:
        """Return whether an unchanged pod got its devices through DRA."""
        return "extendedResourceClaimStatus" in self.cluster.pod(name)["status"]

    def left(self) -> list[str]:
        """Return the claims, and the CDI files of the driver."""
        claims = self._kubectl("get", "resourceclaims", "--output=name").split()
        return [*claims, *self.cluster.here.execute("python3", "-c", _LEFT).split()]

    # Claims of one's own

    def claim(self, name: str) -> dict[str, Any]:
        """Create a ResourceClaim for a device; return a pod that has it and prints its gopher."""
        version, kind = "resource.k8s.io/v1", "ResourceClaim"
        request = {"name": "one", "exactly": {"deviceClassName": DRIVER}}
        metadata = {"name": name, "namespace": self.cluster.here.namespace}
        spec = {"devices": {"requests": [request]}}
        self.create({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
        pod = self.cluster.pods.running(name, "echo $Gopher; trap exit TERM; sleep 7200 & wait", {})
        pod["spec"]["resourceClaims"] = [{"name": "mine", "resourceClaimName": name}]
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "mine"}]}
        return pod

    def create(self, *objects: dict[str, Any]) -> None:
        """Create objects, all at once."""
        made = {"apiVersion": "v1", "kind": "List", "items": objects}
        self._kubectl("create", "--filename=-", stdin=json.dumps(made))

    def said(self, name: str) -> str:
        """Return what a pod has printed, once it has."""
        here = self.cluster.here
        # There are no logs before the container has started.
        return here.wait(
            lambda: here.kubectl.own("logs", name, check=False).strip(), f"the pod {name} to print"
        )

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of the case."""
        kubectl = self.cluster.here.kubectl
        found: list[dict[str, Any]] = kubectl.get_own("pods", f"--selector={CASE}")["items"]
        return found

    def delete(self, *names: str) -> None:
        """Delete pods without waiting."""
        self._kubectl("delete", "pod", *names, "--wait=false", "--ignore-not-found")
