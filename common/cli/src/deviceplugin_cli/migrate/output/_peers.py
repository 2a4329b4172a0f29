"""Who writes a peer's DaemonSet, and so what becomes of a change to it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deviceplugin_cli.migrate._compare import Made
from deviceplugin_cli.migrate._documents import Document, items, mapping


@dataclass(frozen=True)
class Keeper:
    """Somebody who writes a DaemonSet again after it was changed, or could."""

    what: str
    """Who it is, and what it does: a sentence."""
    stop: str = ""
    """The command that keeps it from that."""
    start: str = ""
    """The command that undoes it."""
    ends: Sequence[str] = ()
    """Commands and sentences that remove the peer; none if it is the DaemonSet that is deleted."""
    leave: str = ""
    """The label by which the keeper itself takes the peer off a node; empty if it has none."""
    stay: str = ""
    """The label by which the peer comes back."""


_OF_GPUS: Final = Keeper(
    "The GPU operator takes patches back, but takes its plugin off nodes by a label.",
    leave="nvidia.com/gpu.deploy.device-plugin=false",
    stay="nvidia.com/gpu.deploy.device-plugin=true",
)


@dataclass(frozen=True)
class Peer:
    """The DaemonSet of a peer, as commands name it."""

    daemon_set: str
    namespace: str
    keeper: Keeper | None
    is_known: bool = True
    """Whether the names are the input's; otherwise whoever runs the commands sets variables."""

    @property
    def kubectl(self) -> str:
        """How a command begins that is for objects of its namespace."""
        return f"kubectl --namespace {self.namespace}" if self.namespace else "kubectl"


_NVIDIA: Final = "nvidia.com"
_SRIOV: Final = "sriovnetwork.openshift.io"
_OPERATORS: Final[Mapping[str, tuple[str, str]]] = {
    _NVIDIA: ("gpu-operator", "gpu-operator"),
    "deviceplugin.intel.com": (
        "inteldeviceplugins-system",
        "inteldeviceplugins-controller-manager",
    ),
    "amd.com": ("kube-amd-gpu", "amd-gpu-operator-controller-manager"),
    _SRIOV: ("sriov-network-operator", "sriov-network-operator"),
}
"""Namespace and Deployment of operators, as their makers install them, by the group of objects."""
_SWITCHES: Final[Mapping[str, str]] = {
    "ClusterPolicy": '{"spec":{"devicePlugin":{"enabled":false}}}',
    "DeviceConfig": '{"spec":{"devicePlugin":{"enableDevicePlugin":false}}}',
}
"""What switches a peer off where more than it would be deleted with the object."""
_GITOPS: Final[Mapping[str, tuple[str, str, str]]] = {
    # By the kind: whose it is, what stops it, and what makes it go on.
    "HelmRelease": ("Flux", '{"spec":{"suspend":true}}', '{"spec":{"suspend":false}}'),
    "Kustomization": ("Flux", '{"spec":{"suspend":true}}', '{"spec":{"suspend":false}}'),
    # What policy it had is not known.
    "Application": ("Argo CD", '{"spec":{"syncPolicy":{"automated":null}}}', ""),
    "ApplicationSet": (
        "Argo CD",
        '{"spec":{"template":{"spec":{"syncPolicy":{"automated":null}}}}}',
        "",
    ),
}
_FLUX: Final[Mapping[str, str]] = {
    "helm.toolkit.fluxcd.io": "HelmRelease",
    "kustomize.toolkit.fluxcd.io": "Kustomization",
}
"""Prefixes of labels that Flux sets, and the kind of the object that they name."""


def peer_of(made: Made) -> Peer:
    """Return the DaemonSet of a peer, and who keeps it."""
    document, keeper = made.found.document, _keeper(made.found.document)
    if release := made.found.release:
        if release.application_set:
            keeper = _of_gitops("ApplicationSet", *release.application_set)
        elif keeper is None or not keeper.stop:
            keeper = replace(keeper or Keeper(""), ends=[f"    {release.removal}"])
    if stop := [f"    {one}" for one in made.migration.stop]:
        of_gpus = made.migration.plugin == "gpu"
        keeper = replace(_OF_GPUS if of_gpus else keeper or Keeper(""), ends=stop)
    if document.kind == "DaemonSet":
        namespace, _, name = document.name.rpartition("/")
        return Peer(shlex.quote(name), namespace and shlex.quote(namespace), keeper)
    if document.kind == "ClusterPolicy":
        return Peer("nvidia-device-plugin-daemonset", "gpu-operator", keeper)
    return Peer("$PEER", "$PEER_NAMESPACE", keeper, is_known=False)


def _keeper(document: Document) -> Keeper | None:
    metadata = mapping(document.content, "metadata")
    kind, name = document.kind, str(metadata.get("name", "NAME"))
    namespace = str(metadata.get("namespace") or "")
    group = str(document.content.get("apiVersion", "")).partition("/")[0]
    if kind == "DaemonSet":
        owners = items(metadata, document.place, "ownerReferences")
        for one in owners[:1]:
            kind, name, namespace = str(one.get("kind")), str(one.get("name")), ""
            group = str(one.get("apiVersion", "")).partition("/")[0]
    if group in _OPERATORS:
        return _of_operator(group, kind, name, namespace)
    if kind in _GITOPS:
        return _of_gitops(kind, name, namespace)
    return _by_marks(mapping(metadata, "labels"), mapping(metadata, "annotations"), kind)


def _by_marks(labels: Mapping[str, Any], notes: Mapping[str, Any], kind: str) -> Keeper | None:
    """Return whose labels and annotations an object has."""
    for key, flux in _FLUX.items():
        if f"{key}/name" in labels:
            where = str(labels.get(f"{key}/namespace") or "")
            return _of_gitops(flux, str(labels[f"{key}/name"]), where)
    tracked = str(notes.get("argocd.argoproj.io/tracking-id") or "").partition(":")[0]
    if name := tracked or str(labels.get("argocd.argoproj.io/instance") or ""):
        return _of_gitops("Application", name, "argocd")
    release = notes.get("meta.helm.sh/release-name")
    if release or not kind:
        where = str(notes.get("meta.helm.sh/release-namespace") or "")
        return _of_helm(str(release or "RELEASE"), where)
    return None


def _of_helm(name: str, namespace: str) -> Keeper:
    where = f" --namespace {shlex.quote(namespace)}" if namespace else ""
    return Keeper(
        "Helm keeps a patch until the release is upgraded, so it is not upgraded meanwhile.",
        ends=[f"    helm uninstall {shlex.quote(name)}{where}"],
    )


def _of_gitops(kind: str, name: str, namespace: str) -> Keeper:
    who, stop, start = _GITOPS[kind]
    where = f" --namespace {shlex.quote(namespace)}" if namespace else ""
    command = f"kubectl{where} patch {kind.lower()} {shlex.quote(name)} --type merge --patch"
    start = f"{command} '{start}'" if start else ""
    return Keeper(
        f"{who} takes patches back, so it stops first; if the {kind} is in Git, stop it there.",
        stop=f"{command} '{stop}'",
        start=start,
        # A HelmRelease that is suspended is deleted without an uninstallation.
        ends=[
            *([f"    {start}"] if start else []),
            f"(Then delete it where it came from: in Git, or the {kind} if that has nothing else.)",
        ],
    )


def _of_operator(group: str, kind: str, name: str, namespace: str) -> Keeper:
    home, deployment = _OPERATORS[group]
    scale = f"kubectl --namespace {home} scale deployment {deployment} --replicas"
    where = f" --namespace {shlex.quote(namespace)}" if namespace else ""
    command, target = f"kubectl{where}", f"{shlex.quote(kind.lower())} {shlex.quote(name)}"
    switch = _SWITCHES.get(kind)
    patch = f"{command} patch {target} --type merge --patch '{switch}'"
    remove = f"    {patch if switch else f'{command} delete {target}'}"
    if group == _NVIDIA:
        return replace(_OF_GPUS, ends=[remove])
    if group == _SRIOV:
        return Keeper(
            "The SR-IOV network operator has no switch for its plugin, so it stops for as long as "
            "ours is there; start it for changes of functions only.",
            stop=f"{scale} 0",
            start=f"{scale} 1",
        )
    return Keeper(
        "Its operator takes patches back, so it stops first (it may have other names with you).",
        stop=f"{scale} 0",
        start=f"{scale} 1",
        ends=[remove, f"    {scale} 1"],
    )
