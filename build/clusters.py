"""Kinds of clusters: by what a node shows of which it is, and how an image comes to it."""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of cluster."""

    sign: str
    """Matches a fact of each of its nodes; a group is the cluster's name."""
    command: str
    """Imports an archive: with FILE it runs here, once, else on each node, with it as its input."""
    component: str = ""
    """What the deployment needs there, a folder of deployments/components."""
    prefix: str = ""
    """What names of images begin with there."""


KINDS: Final[Mapping[str, Kind]] = {
    "kind": Kind(r"provider kind://.+/(.+)/.+", "kind load image-archive FILE --name CLUSTER"),
    "k3d": Kind(r"provider k3s://k3d-(.+)-\w+-\d+", "k3d image import FILE --cluster CLUSTER"),
    "minikube": Kind(
        r"label minikube\.k8s\.io/name=(.+)", "minikube image load FILE --profile CLUSTER"
    ),
    "Docker Desktop": Kind("node docker-desktop", "docker load --input FILE"),
    "MicroK8s": Kind(
        r"label microk8s\.io/cluster=true", "sudo microk8s ctr image import -", "microk8s"
    ),
    "k3s": Kind(r"kubelet .+\+k3s.+", "sudo k3s ctr images import -"),
    "RKE2": Kind(
        r"kubelet .+\+rke2.+",
        "sudo /var/lib/rancher/rke2/bin/ctr --address /run/k3s/containerd/containerd.sock "
        "--namespace k8s.io images import -",
    ),
    "k0s": Kind(
        r"kubelet .+\+k0s.*", "sudo k0s ctr --namespace k8s.io images import -", "kubelet-root"
    ),
    # It looks for a name without a registry only where its registries.conf says.
    "CRI-O": Kind("runtime cri-o://.+", "sudo podman load", prefix="localhost/"),
    "containerd": Kind("runtime containerd://.+", "sudo ctr --namespace k8s.io images import -"),
}
"""The first whose sign a node shows."""


class StepError(Exception):
    """What failed, and what to do."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster."""

    name: str
    address: str
    architecture: str
    facts: tuple[str, ...]
    """What signs are compared with; the last is its container runtime."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Node":
        """Return the node that an object of the API describes."""
        metadata, status = found["metadata"], found.get("status", {})
        addresses = {one["type"]: one["address"] for one in status.get("addresses", ())}
        about = status.get("nodeInfo", {})
        facts = [f"label {key}={value}" for key, value in metadata.get("labels", {}).items()]
        facts += [f"node {metadata['name']}", f"provider {found['spec'].get('providerID')}"]
        facts += [f"kubelet {about.get('kubeletVersion')}"]
        facts += [f"runtime {about.get('containerRuntimeVersion')}"]
        name, address = metadata["name"], addresses.get("InternalIP", metadata["name"])
        return cls(name, address, about.get("architecture", "unknown"), tuple(facts))

    @property
    def is_here(self) -> bool:
        """Whether it is this machine: only an address of its own can be bound."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as made:
            try:
                made.bind((self.address, 0))
            except OSError:
                return False
        return True

    def kind(self) -> Kind:
        """Return the kind of cluster that it is of, with the name of this one."""
        for name, kind in KINDS.items():
            for found in filter(None, (re.fullmatch(kind.sign, fact) for fact in self.facts)):
                print(f"the cluster is {name}: {self.name} has {found[0]!r}")
                return replace(
                    kind, command=kind.command.replace("CLUSTER", "".join(found.groups()))
                )
        raise StepError(f"node {self.name}: {self.facts[-1]}: no import is known: use --registry")
