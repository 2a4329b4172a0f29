"""All that the operator reads and writes of a cluster, besides nodes."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from deviceplugin.apiserver import ApiServer, ConflictError, InvalidError, NotFoundError
from deviceplugin_operator import names
from deviceplugin_operator.cluster import progress_note
from deviceplugin_operator.observed.seen import CONFIG_MAPS, DAEMON_SETS, Object, Seen
from deviceplugin_operator.rollout import desired
from deviceplugin_operator.rollout.desired import Revision
from deviceplugin_operator.rollout.step import Pod, Progress

log = logging.getLogger(__name__)

_KEPT: Final = 3
"""Number of old revisions to keep for each DaemonSet."""
_NO_REASON: Final = ("", "ContainerCreating", "PodInitializing")


class Cluster:
    """The namespace in which the operator creates objects."""

    def __init__(self, api: ApiServer, seen: Seen, namespace: str) -> None:
        self.namespace = namespace
        self._api = api
        self._seen = seen
        self._written: dict[str, int] = {}
        """The generation of each DaemonSet after our own write, by its UID."""

    def _path(self, kind: str, name: str = "") -> str:
        group = "/apis/apps/v1" if kind == DAEMON_SETS else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{kind}{f'/{name}' if name else ''}"

    def daemon_set(self, owner: str, profile: str) -> Object | None:
        """Return the DaemonSet for the nodes of a profile, if there is one."""
        return self._seen.get(DAEMON_SETS, names.daemon_set(owner, profile))

    def revision(self, owner: str, profile: str, name: str) -> Revision | None:
        """Return a revision, if its ConfigMap exists and is intact."""
        found = self._seen.get(CONFIG_MAPS, names.config_map(owner, profile, name))
        try:
            return desired.of_config_map(found) if found else None
        except ValueError:
            return None

    def keep_config_map(self, owner: Object, profile: str, made: Revision) -> None:
        """Create the ConfigMap of a revision, and replace one that was changed."""
        wanted = desired.config_map(owner, profile, made, self.namespace)
        name = wanted["metadata"]["name"]
        found = self._seen.get(CONFIG_MAPS, name)
        if found is not None and _is_as(found, wanted):
            return
        if found is not None:
            self._delete(CONFIG_MAPS, found)
        self._create(CONFIG_MAPS, wanted)

    def _create(self, kind: str, made: Object) -> None:
        path = self._path(kind)
        try:
            self._seen.put(kind, self._api.create(path, made))
        except ConflictError:  # the watch is late
            self._seen.put(kind, self._api.get(self._path(kind, made["metadata"]["name"])))

    def _delete(self, kind: str, found: Object) -> None:
        metadata = found["metadata"]
        with suppress(NotFoundError, ConflictError):
            self._api.delete(self._path(kind, metadata["name"]), uid=metadata["uid"])
        self._seen.drop(kind, found)

    def keep_daemon_set(
        self, owner: Object, profile: str, made: Revision, progress: Progress
    ) -> bool:
        """Give the DaemonSet the revision ``made``; return whether somebody had changed it.

        It is replaced as a whole, because an apply would leave what somebody has added.
        """
        wanted = desired.daemon_set(owner, profile, made, self.namespace)
        wanted["metadata"]["annotations"] = {names.ROLLOUT: progress_note.written(progress)}
        found = self._seen.get(DAEMON_SETS, wanted["metadata"]["name"])
        if found is None:
            self._create(DAEMON_SETS, wanted)
            created = self._seen.get(DAEMON_SETS, wanted["metadata"]["name"])
            if created:
                self._remember(created)
            return False
        ours = self._written.get(found["metadata"]["uid"])
        drifted = ours is not None and ours != found["metadata"]["generation"]
        labels = found["spec"]["template"]["metadata"].get("labels") or {}
        moved = labels.get(names.REVISION) != made.name
        if ours is None or drifted or moved or not _is_as(found, wanted):
            self._replace(found, wanted)
        return drifted

    def _replace(self, found: Object, wanted: Object) -> None:
        metadata = {**found["metadata"], "ownerReferences": wanted["metadata"]["ownerReferences"]}
        metadata.pop("managedFields", None)
        for part in ("labels", "annotations"):
            metadata[part] = {**(metadata.get(part) or {}), **wanted["metadata"].get(part, {})}
        path = self._path(DAEMON_SETS, metadata["name"])
        try:
            done = self._api.replace(path, {**found, "metadata": metadata, "spec": wanted["spec"]})
        except ConflictError:
            self._seen.put(DAEMON_SETS, self._api.get(path))
            raise
        except NotFoundError:
            self._seen.drop(DAEMON_SETS, found)
            raise
        except InvalidError:  # it was created with another selector, which cannot be changed
            self._delete(DAEMON_SETS, found)
            raise
        self._seen.put(DAEMON_SETS, done)
        self._remember(done)

    def _remember(self, found: Object) -> None:
        self._written[found["metadata"]["uid"]] = found["metadata"]["generation"]

    def note(self, found: Object, progress: Progress) -> None:
        """Save the progress of a roll-out on its DaemonSet."""
        text = progress_note.written(progress)
        if (found["metadata"].get("annotations") or {}).get(names.ROLLOUT) != text:
            changes = {"metadata": {"annotations": {names.ROLLOUT: text}}}
            path = self._path(DAEMON_SETS, found["metadata"]["name"])
            self._seen.put(DAEMON_SETS, self._api.merge(path, changes))

    def pods(self, owner: str, profile: str) -> dict[str, Pod]:
        """Return the pods of a DaemonSet by node; of two on a node, the one that stays."""
        selector = f"{names.OWNER}={owner},{names.PROFILE_LABEL}={profile}"
        found: dict[str, Pod] = {}
        for page in self._api.pages(self._path("pods"), {"labelSelector": selector}):
            for one in page.items:
                node, pod = one["spec"].get("nodeName") or _pinned(one), _pod(one)
                if node and (node not in found or found[node].leaving):
                    found[node] = pod
        return found

    def delete_pod(self, pod: Pod) -> None:
        """Delete a pod, so that the DaemonSet creates another one."""
        with suppress(NotFoundError, ConflictError):
            self._api.delete(self._path("pods", pod.name), uid=pod.uid)

    def prune(self, owner: Object, profile: str, keep: set[str]) -> None:
        """Delete old ConfigMaps of a profile, except those to ``keep``."""
        own = [
            one
            for one in self._seen.of(CONFIG_MAPS, owner["metadata"]["name"])
            if one["metadata"]["labels"].get(names.PROFILE_LABEL) == profile
        ]
        own.sort(key=lambda one: one["metadata"]["creationTimestamp"], reverse=True)
        for one in own[_KEPT:]:
            if one["metadata"]["labels"].get(names.REVISION) not in keep:
                self._delete(CONFIG_MAPS, one)

    def remove_others(self, owner: str, profiles: set[str]) -> None:
        """Delete what was created for profiles that no longer exist."""
        for kind in (DAEMON_SETS, CONFIG_MAPS):
            for one in self._seen.of(kind, owner):
                if one["metadata"]["labels"].get(names.PROFILE_LABEL, "") not in profiles:
                    self._delete(kind, one)

    def set_status(self, owner: Object, status: Mapping[str, Any]) -> None:
        """Write the status of ``owner``, if it has changed."""
        if owner.get("status") == status:
            return
        name = owner["metadata"]["name"]
        path = f"/apis/{names.GROUP}/{names.VERSION}/{names.PLURAL}/{name}/status"
        try:
            self._seen.put(names.PLURAL, self._api.merge(path, {"status": dict(status)}))
        except NotFoundError:
            self._seen.drop(names.PLURAL, owner)


def _is_as(found: Object, wanted: Object) -> bool:
    """Return whether ``found`` has the labels, the owner and the data of ``wanted``."""
    have, want = found["metadata"], wanted["metadata"]
    return (
        want["labels"].items() <= (have.get("labels") or {}).items()
        and want["ownerReferences"] == have.get("ownerReferences")
        and wanted.get("data") == found.get("data")
        and wanted.get("immutable") == found.get("immutable")
    )


def _pinned(pod: Mapping[str, Any]) -> str:
    """Return the node to which a DaemonSet has pinned a pod that is not scheduled yet."""
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


def _pod(found: Mapping[str, Any]) -> Pod:
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
