"""Which nodes an object covers, and which variant each of them gets."""

from collections.abc import Mapping
from typing import Any

from deviceplugin_operator.crd.specification import Variant, Wanted
from deviceplugin_operator.observed.fleet import Fleet, NodeFacts


def selector(wanted: Wanted) -> Mapping[str, str]:
    """Return the labels that a node must have, by the manifest and by the object."""
    pod = wanted.template.daemon_set["spec"]["template"]["spec"]
    return {**pod.get("nodeSelector", {}), **wanted.node_selector}


def of_daemon_set(daemon_set: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels that a node must have for the pods of a DaemonSet."""
    return daemon_set["spec"]["template"]["spec"].get("nodeSelector") or {}


def variant(wanted: Wanted, node: NodeFacts) -> Variant:
    """Return the variant for ``node``, by its label."""
    general, *others = wanted.variants
    value = node.labels.get(wanted.profile_label)
    return next((one for one in others if one.profile == value), general)


def nodes(wanted: Wanted, of: Variant, fleet: Fleet) -> list[NodeFacts]:
    """Return the nodes that get the variant ``of``, by name."""
    return [one for one in fleet.matching(selector(wanted)) if variant(wanted, one) == of]
