"""What the status of a DaemonSet says."""

from deviceplugin_operator.observed.seen import Object


def is_observed(daemon_set: Object) -> bool:
    """Return whether new pods are created from the current template."""
    observed = (daemon_set.get("status") or {}).get("observedGeneration", 0)
    return bool(observed >= daemon_set["metadata"]["generation"])


def has_nodes(daemon_set: Object) -> bool:
    """Return whether any node is to have a pod."""
    return bool((daemon_set.get("status") or {}).get("desiredNumberScheduled", 0))


def is_whole(daemon_set: Object) -> bool:
    """Return whether all nodes have a ready pod of the current template."""
    counts = daemon_set.get("status") or {}
    wanted = counts.get("desiredNumberScheduled", 0)
    return bool(wanted == counts.get("updatedNumberScheduled", 0) == counts.get("numberReady", 0))
