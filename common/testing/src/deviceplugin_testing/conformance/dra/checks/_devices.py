"""Devices in containers: the CDI files that a driver writes."""

from pathlib import Path
from typing import Any, Final

from deviceplugin.kit.cdi import least_version
from deviceplugin.kit.cdi._files import VERSIONS, specification_files
from deviceplugin_testing.conformance._check import CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance.dra._node import CLASS, DraNode
from deviceplugin_testing.conformance.dra._trial import DraTrial, exclusive, prepared, released
from deviceplugin_testing.conformance.dra.checks._claims import first, ready
from deviceplugin_testing.simulator._containers.runtime import Specifications

GROUP: Final = CheckGroup("containers", "Containers")


def run_pod(node: DraNode, name: str) -> Any:
    """Run a pod with a claim for any device, and return what its container got."""
    node.delete_claims()
    request = {"name": "r", "exactly": {"deviceClassName": CLASS}}
    spec = {"devices": {"requests": [request]}}
    node.cluster.create({"kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec})
    resources = {"claims": [{"name": "c"}]}
    container = {"name": "main", "image": "none", "resources": resources}
    claims = [{"name": "c", "resourceClaimName": name}]
    pod = {"containers": [container], "resourceClaims": claims}
    node.cluster.create({"kind": "Pod", "metadata": {"name": name}, "spec": pod})
    node.require(lambda: runs(node, name), "a pod does not run", why=lambda: why_not(node, name))
    return node.kubelet.pod(node.node.pod(name)).started["main"]


def runs(node: DraNode, name: str) -> bool:
    found = node.cluster.get("Pod", name)
    return found is not None and found["status"].get("phase") == "Running"


def why_not(node: DraNode, name: str) -> str:
    """Return what keeps the pod from running, or from ending."""
    try:
        return node.kubelet.pod(node.node.pod(name)).event
    except LookupError:
        return "it is not scheduled"


def end_pod(node: DraNode, name: str) -> None:
    """Delete a pod, and wait until it is gone; raise ``Failed`` if it stays."""
    node.cluster.delete("Pod", name)
    node.require(
        lambda: node.cluster.get("Pod", name) is None,
        "a pod stays in Terminating",
        why=lambda: why_not(node, name),
    )
    node.cluster.delete("ResourceClaim", name)


def pod(trial: DraTrial) -> Any:
    """Run a pod, end it, and return what its container got."""
    node = trial.node()
    got = run_pod(node, "pod")
    end_pod(node, "pod")
    return got


@GROUP.check(
    "pod",
    "Lets a pod with a claim run and end",
    why="It is what a driver is for.",
)
def _pod(trial: DraTrial) -> str:
    trial.once_before(first)
    got = trial.once(pod)
    if got is None:
        raise NotApplicable("the container gets nothing: no CDI devices in the answer")
    return f"{len(got.envs)} variables, {len(got.devices)} device nodes, {len(got.mounts)} mounts"


@GROUP.check(
    "oldest-version",
    "Declares the oldest CDI version that has all it uses",
    why="A runtime ignores a file of a version that it does not know, with all its devices.",
)
def _oldest_version(trial: DraTrial) -> str:
    node = ready(trial)
    claim = node.claim(node.devices[0])
    prepared(node, claim)
    found = _specifications(node)
    released(node, claim)
    if found.problems:
        raise Failed("; ".join(f"{path.name}: {why}" for path, why in found.problems.items()))
    if not found.documents:
        raise NotApplicable("it writes no CDI file")
    for path, document in found.documents.items():
        version, needed = document["cdiVersion"], least_version(document)
        if version != needed:
            raise Failed(f"{path.name} declares {version}, and needs {needed}")
    return ", ".join(sorted({document["cdiVersion"] for document in found.documents.values()}))


@GROUP.check(
    "files-removed",
    "Removes the CDI files of a claim that is released",
    why="Files pile up, and a stale one can give a device to a container that has no claim.",
)
def _files_removed(trial: DraTrial) -> str:
    node = ready(trial)
    before = set(_files(node))
    claim = node.claim(node.devices[0])
    prepared(node, claim)
    released(node, claim)
    left = set(_files(node)) - before
    if left:
        raise Failed(f"left {', '.join(sorted(path.name for path in left))}")
    return "left no file"


@GROUP.check(
    "own-names",
    "Gives no two claims a CDI name that means something else for each",
    why="A container that starts late, or again, would get the device of another claim.",
)
def _own_names(trial: DraTrial) -> str:
    node = ready(trial)
    meanings: dict[str, Any] = {}
    for device in (node.devices[0], node.devices[-1]):
        claim = node.claim(device)
        (answer,) = prepared(node, claim)
        names = {name for each in answer.devices for name in each.cdi_device_ids}
        found = _specifications(node)
        released(node, claim)
        for name in sorted(names & found.devices.keys()):
            edits = found.edits([name])
            if meanings.setdefault(name, edits) != edits:
                raise Failed(f"two claims got {name}, with other edits")
    return f"{len(meanings)} names for 2 claims"


@GROUP.check(
    "first-names",
    "Gives the devices of a claim different first CDI names",
    why="The pod's status shows the health of one device for each first name.",
)
def _first_names(trial: DraTrial) -> str:
    node = ready(trial)
    single = exclusive(node)
    if not single[1:]:
        raise NotApplicable("no two devices that one claim has alone")
    claim = node.claim(*single[:2])
    (answer,) = prepared(node, claim)
    released(node, claim)
    names = [each.cdi_device_ids[0] for each in answer.devices if each.cdi_device_ids]
    if len(names) > len(set(names)):
        raise Failed(f"both devices have {names[0]} first")
    return f"{len(answer.devices)} devices, {len(names)} names"


def _specifications(node: DraNode) -> Specifications:
    return Specifications.read(node.kubelet.cdi_dirs, VERSIONS[-1])


def _files(node: DraNode) -> list[Path]:
    return specification_files(node.kubelet.cdi_dirs[0])
