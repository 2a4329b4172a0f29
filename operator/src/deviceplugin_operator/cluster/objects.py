"""Objects of Kubernetes: what pods and DaemonSets say, and Events, for ``kubectl describe``."""

import hashlib
import json
import logging
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from deviceplugin.apiserver import ApiServer, ApiServerError
from deviceplugin_operator import names
from deviceplugin_operator.observed import Object
from deviceplugin_operator.rollout.desired import REQUIRED
from deviceplugin_operator.rollout.step import Pod

log = logging.getLogger(__name__)

_NO_REASON: Final = ("", "ContainerCreating", "PodInitializing")
_EVENTS: Final = "/api/v1/namespaces/default/events"
"""Events of cluster-scoped objects are in this namespace."""
_LONGEST: Final = 1000


class Placed(NamedTuple):
    """A pod of a DaemonSet of ours."""

    node: str
    of: tuple[str | None, str | None]
    """The object and the profile that it is for."""
    pod: Pod


def placed_pod(found: Mapping[str, Any]) -> Placed:
    """Return what is kept of a pod."""
    labels = found["metadata"]["labels"]
    of = labels.get(names.OWNER), labels.get(names.PROFILE_LABEL)
    return Placed(node_of(found), of, pod_of(found))


def node_of(pod: Mapping[str, Any]) -> str:
    """Return a pod's node, or the one to which a DaemonSet has pinned it before it is scheduled."""
    if node := pod["spec"].get("nodeName"):
        return str(node)
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    for term in affinity.get(REQUIRED, {}).get("nodeSelectorTerms", ()):
        for one in term.get("matchFields", ()):
            if one["key"] == "metadata.name":
                return str(one["values"][0])
    return ""


def pod_of(found: Mapping[str, Any]) -> Pod:
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
    kinds = ("initContainerStatuses", "containerStatuses")
    for one in (one for kind in kinds for one in status.get(kind) or ()):
        for state in (one.get("state") or {}, one.get("lastState") or {}):
            if words := (state.get("terminated") or {}).get("message", "").strip():
                return str(words.splitlines()[-1])
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "") not in _NO_REASON:
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    scheduled = conditions.get("PodScheduled", {})
    return scheduled.get("message", "") if scheduled.get("status") == "False" else ""


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


def digest(wanted: Object) -> str:
    """Return a hash of what an object is to have."""
    content = json.dumps([wanted.get("spec"), wanted.get("data")], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def is_as(found: Object, wanted: Object) -> bool:
    """Return whether ``found`` has the labels, the owner and the data of ``wanted``."""
    have, want = found["metadata"], wanted["metadata"]
    return (
        want["labels"].items() <= (have.get("labels") or {}).items()
        and want["ownerReferences"] == have.get("ownerReferences")
        and wanted.get("data") == found.get("data")
        and wanted.get("immutable") == found.get("immutable")
    )


def notify(api: ApiServer, about: Object, kind: str, reason: str, message: str) -> None:
    """Create an Event about an object. If that fails, the status still says the same."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = about["metadata"]
    name = f"{metadata['name']}.{uuid.uuid4().hex[:12]}"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {
            "apiVersion": f"{names.GROUP}/{names.VERSION}",
            "kind": names.KIND,
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "type": kind,
        "reason": reason,
        "message": message[:_LONGEST],
        "source": {"component": "deviceplugin-operator"},
        "reportingComponent": "deviceplugin-operator",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        api.create(_EVENTS, event)
    except ApiServerError as error:
        log.info("event not created", extra={"reason": reason, "error": str(error)})
