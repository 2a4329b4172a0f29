"""Reads pods as the API server returns them."""

from collections.abc import Mapping
from typing import Any, Final

from deviceplugin_operator import names
from deviceplugin_operator.rollout.step import Pod

_NO_REASON: Final = ("", "ContainerCreating", "PodInitializing")


def node_of(pod: Mapping[str, Any]) -> str:
    """Return a pod's node, or the one to which a DaemonSet has pinned it before it is scheduled."""
    if node := pod["spec"].get("nodeName"):
        return str(node)
    terms = (
        ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", ())
    )
    for term in terms:
        for one in term.get("matchFields", ()):
            if one["key"] == "metadata.name":
                return str(one["values"][0])
    return ""


def read(found: Mapping[str, Any]) -> Pod:
    """Return what a roll-out has to know of a pod."""
    metadata, status = found["metadata"], found.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    return Pod(
        metadata["name"],
        metadata["uid"],
        metadata["labels"].get(names.REVISION, ""),
        ready.get("status") == "True",
        "deletionTimestamp" in metadata,
        _said(status, conditions),
        ready.get("lastTransitionTime") or "",
    )


def _said(status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, str]]) -> str:
    """Return why a pod does not run: its last message, or that of the kubelet or the scheduler."""
    for one in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        for state in (one.get("state") or {}, one.get("lastState") or {}):
            if words := (state.get("terminated") or {}).get("message", "").strip():
                return str(words.splitlines()[-1])
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "") not in _NO_REASON:
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    scheduled = conditions.get("PodScheduled", {})
    return scheduled.get("message", "") if scheduled.get("status") == "False" else ""
