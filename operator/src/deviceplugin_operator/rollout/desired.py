"""The objects that a ``DevicePlugin`` asks for, and the nodes that they are for: pure functions."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from deviceplugin_operator import names
from deviceplugin_operator.crd.specification import Object, Variant, Wanted
from deviceplugin_operator.fleet import NodeFacts
from deviceplugin_operator.manifests import CONTAINER, Manifest

ACCOUNT: Final = "device-plugin"
"""The service account of plugins without DRA in the operator's namespace; it has no rights."""
CONFIG: Final = "config.yaml"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ARCHITECTURE: Final = "kubernetes.io/arch"
_OF_KUBERNETES: Final = "node.kubernetes.io/"
"""How taints begin that pods of DaemonSets tolerate without being asked."""
_POD: Final = "pod.json"
_VOLUME: Final = "config"
_NAME: Final = 10
"""Digits of its hash that a revision is called by; a DaemonSet has only a few revisions."""


@dataclass(frozen=True)
class Revision:
    """One state of settings, image and manifest."""

    config: str
    pod: Mapping[str, Any]
    """The pod template, without what contains the revision's name."""

    @cached_property
    def digest(self) -> str:
        """A hash of the content, the same in every release."""
        content = json.dumps([self.config, self.pod], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def name(self) -> str:
        """What it is called. Others could find content with this name, so trust ``digest``."""
        return called(self.digest)


def called(digest: str) -> str:
    """Return the name of the revision with this hash."""
    return digest[:_NAME]


def revision(wanted: Wanted, variant: Variant, prefix: str = "") -> Revision:
    """Return the wanted revision of a profile; ``prefix`` is for an image that is not named."""
    pod = deepcopy(wanted.template.daemon_set["spec"]["template"])
    spec = pod["spec"]
    pod["metadata"]["labels"] |= {
        **_labels(wanted.name, variant.profile),
        names.PLUGIN: wanted.plugin,
    }
    spec["serviceAccountName"] = ACCOUNT
    if wanted.driver:
        spec["serviceAccountName"] = names.account(wanted.plugin, wanted.name)
        notes = {names.DRIVER: wanted.driver} | ({names.PROTOCOL: "dra"} if variant.before else {})
        pod["metadata"].setdefault("annotations", {}).update(notes)
    spec.setdefault("nodeSelector", {}).update(wanted.node_selector)
    spec["affinity"] = _affinity(wanted, variant.profile, spec["affinity"])
    _set_image(spec, wanted.image, prefix)
    return Revision(variant.config, pod)


def _labels(owner: str, profile: str) -> dict[str, str]:
    return {names.OWNER: owner, names.PROFILE_LABEL: profile}


def _affinity(wanted: Wanted, profile: str, ours: Manifest) -> Manifest:
    """Return where pods run: on their profile's nodes, apart, and where ``ours`` lets them.

    An image of one's own may be for other architectures than ours.
    """
    same = {"matchLabels": {names.PLUGIN: wanted.plugin}}
    if wanted.plugin == "custom":
        same["matchLabels"][names.OWNER] = wanted.name
    term = {"labelSelector": same, "topologyKey": "kubernetes.io/hostname"}
    apart: Manifest = {"podAntiAffinity": {REQUIRED: [term]}}
    (term,) = ours["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    expressions = [
        one for one in term["matchExpressions"] if not wanted.image or one["key"] != _ARCHITECTURE
    ]
    if wanted.profiles:
        how, values = ("In", [profile]) if profile else ("NotIn", wanted.profiles)
        expressions.append({"key": wanted.profile_label, "operator": how, "values": values})
    if not expressions:
        return apart
    terms = [{"matchExpressions": expressions}]
    return apart | {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def _set_image(spec: Manifest, image: str, prefix: str) -> None:
    (own,) = (one for one in spec["containers"] if one["name"] == CONTAINER)
    before = own["image"]
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        if container["image"] == before:
            container["image"] = image or f"{prefix}{before}"


def config_map(owner: Object, profile: str, made: Revision, namespace: str) -> Manifest:
    """Return the ConfigMap of a revision: all that a roll-back to it needs. No pod mounts it."""
    name = owner["metadata"]["name"]
    labels = {**_labels(name, profile), names.REVISION: made.name}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(names.config_map(name, profile, made.name), namespace, labels, owner),
        "immutable": True,
        "data": {CONFIG: made.config, _POD: json.dumps(made.pod, sort_keys=True)},
    }


def of_config_map(found: Object) -> Revision:
    """Return the revision that a ConfigMap contains, or raise ValueError if it contains none."""
    try:
        made = Revision(found["data"][CONFIG], json.loads(found["data"][_POD]))
        made.digest  # noqa: B018 - it cannot be computed of everything either
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the ConfigMap {found['metadata']['name']} has no revision") from error
    return made


def daemon_set(owner: Object, profile: str, made: Revision, namespace: str) -> Manifest:
    """Return the DaemonSet of a revision. It replaces no pods by itself.

    Its pods have their configuration from it: who may create ConfigMaps, but no DaemonSets, must
    not be able to give them another.
    """
    name = owner["metadata"]["name"]
    labels = _labels(name, profile)
    pod = deepcopy(dict(made.pod))
    pod["metadata"]["labels"][names.REVISION] = made.name
    pod["metadata"].setdefault("annotations", {})[names.CONFIG] = made.config
    field = {"fieldPath": f"metadata.annotations['{names.CONFIG}']"}
    for volume in pod["spec"]["volumes"]:
        if volume["name"] == _VOLUME:
            del volume["configMap"]
            volume["downwardAPI"] = {"items": [{"path": CONFIG, "fieldRef": field}]}
    own = {**labels, names.PLUGIN: pod["metadata"]["labels"][names.PLUGIN]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(names.daemon_set(name, profile), namespace, own, owner),
        "spec": {
            "selector": {"matchLabels": labels},
            # The operator decides which pod is replaced, and when.
            "updateStrategy": {"type": "OnDelete"},
            "template": pod,
        },
    }


def _metadata(name: str, namespace: str, labels: Mapping[str, str], owner: Object) -> Manifest:
    reference = {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.KIND,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels),
        "ownerReferences": [reference],
    }


def driver(pod: Mapping[str, Any]) -> str:
    """Return the DRA driver that pods of a template can be, or an empty string."""
    return str((pod["metadata"].get("annotations") or {}).get(names.DRIVER, ""))


def drivers(sets: Iterable[Object]) -> set[str]:
    """Return the DRA drivers that pods of DaemonSets can be."""
    return {driver(one["spec"]["template"]) for one in sets} - {""}


def is_dra(pod: Mapping[str, Any]) -> bool:
    """Return whether pods of a template offer their devices through DRA."""
    return (pod["metadata"].get("annotations") or {}).get(names.PROTOCOL) == "dra"


def selector(wanted: Wanted) -> Mapping[str, str]:
    """Return the labels that a node must have, by the manifest and by the object."""
    pod = wanted.template.daemon_set["spec"]["template"]["spec"]
    return {**pod.get("nodeSelector", {}), **wanted.node_selector}


def variant(wanted: Wanted, node: NodeFacts) -> Variant:
    """Return the variant for ``node``, by its label."""
    general, *others = wanted.variants
    value = node.labels.get(wanted.profile_label)
    return next((one for one in others if one.profile == value), general)


def covered(pods: Iterable[Mapping[str, Any]], nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
    """Return the nodes on which a DaemonSet with one of the pod templates ``pods`` has a pod."""
    specs = [one["spec"] for one in pods]
    return [node for node in nodes if any(_fits(spec, node) for spec in specs)]


def _fits(spec: Mapping[str, Any], node: NodeFacts) -> bool:
    if not (spec.get("nodeSelector") or {}).items() <= node.labels.items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    if not any(_holds(term, node.labels) for term in terms):
        return False
    tolerations = spec.get("tolerations") or ()
    return all(any(_tolerates(one, taint) for one in tolerations) for taint in _strict(node))


def _holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a node with ``labels`` meets a term of ours, which only has In and NotIn."""
    return all(
        (labels.get(one["key"]) in one.get("values", ())) == (one["operator"] == "In")
        for one in term.get("matchExpressions", ())
    )


def _strict(node: NodeFacts) -> list[Mapping[str, str]]:
    return [
        one
        for one in node.taints
        if one["effect"] != "PreferNoSchedule" and not one["key"].startswith(_OF_KUBERNETES)
    ]


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("key", taint["key"]) != taint["key"]:
        return False
    same = toleration.get("value", "") == taint.get("value", "")
    return toleration.get("operator") == "Exists" or same
