"""Which nodes an object covers, and which variant each of them gets."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from deviceplugin_operator.crd.specification import Variant, Wanted
from deviceplugin_operator.observed.fleet import NodeFacts

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OF_KUBERNETES: Final = "node.kubernetes.io/"
"""How taints begin that pods of DaemonSets tolerate without being asked."""


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
