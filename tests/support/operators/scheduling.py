"""Where pods may be: what the controller of DaemonSets and the scheduler ask of a node."""

from collections.abc import Mapping

from cluster.kinds import Object


def fits(spec: Object, node: Object) -> bool:
    """Return whether selector and affinity of a pod let it be on ``node``."""
    labels = node["metadata"]["labels"]
    if not spec.get("nodeSelector", {}).items() <= labels.items():
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in terms.get("nodeSelectorTerms", ()):
        for one in term["matchExpressions"]:
            inside = labels.get(one["key"]) in one["values"]
            if inside != (one["operator"] == "In"):
                return False
    return True


def is_kept_away(spec: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a pod cannot be where one with ``labels`` is."""
    apart = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return any(one["labelSelector"]["matchLabels"].items() <= labels.items() for one in apart)
