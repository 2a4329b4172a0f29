"""All that the operator reads and writes of a cluster, besides nodes."""

import logging
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from deviceplugin.apiserver import (
    ApiServer,
    ApiServerError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from deviceplugin_operator import names
from deviceplugin_operator.cluster import objects, progress_note
from deviceplugin_operator.observed import CONFIG_MAPS, DAEMON_SETS, Object, Seen
from deviceplugin_operator.rollout import desired
from deviceplugin_operator.rollout.desired import Revision
from deviceplugin_operator.rollout.step import Pod, Progress
from deviceplugin_operator.watched import Watched

log = logging.getLogger(__name__)

_PODS: Final = "pods"
_KINDS: Final = {DAEMON_SETS: "DaemonSet", CONFIG_MAPS: "ConfigMap", _PODS: "Pod"}
_KEPT: Final = 3
"""Number of old revisions to keep for each DaemonSet."""
_EXISTS: Final = "AlreadyExists"
"""Why the API server refuses to create an object only because there is one of that name."""
_GIVEN: Final = ("name", "namespace", "labels", "ownerReferences")
"""What the API server does not set by itself, of an object's metadata."""


class Cluster:
    """The namespace in which the operator creates objects."""

    def __init__(self, api: ApiServer, seen: Seen, namespace: str) -> None:
        self.namespace = namespace
        self._api = api
        self._seen = seen
        self._written: dict[str, int] = {}
        """The generation of each DaemonSet after our own write, by its UID."""
        ours = {"labelSelector": names.OWNER}
        self._pods = Watched(api, self._path(_PODS), ours, keep=objects.placed_pod)
        self._deleted: set[str] = set()
        """The UIDs of pods that a watch may still show as if they were not."""

    def stop(self) -> None:
        """End the watch."""
        self._pods.stop()

    def _path(self, kind: str, name: str = "") -> str:
        group = "/apis/apps/v1" if kind == DAEMON_SETS else "/api/v1"
        return f"{group}/namespaces/{self.namespace}/{kind}{f'/{name}' if name else ''}"

    def daemon_set(self, owner: str, profile: str) -> Object | None:
        """Return the DaemonSet for the nodes of a profile, if there is one."""
        return self._seen.get(DAEMON_SETS, names.daemon_set(owner, profile))

    def drivers(self, owner: str) -> set[str]:
        """Return the DRA drivers that pods for ``owner`` can be."""
        return desired.drivers(self._seen.of(DAEMON_SETS, owner))

    def know(self, owner: Object, made: Mapping[str, Revision]) -> Object:
        """Write into the status by which hashes ``made`` is known again, before it is applied.

        A status of a release without hashes gets those of the ConfigMaps that have the names in it,
        once. Returns the object as it is then.
        """
        before, name = progress_note.revisions(owner), owner["metadata"]["name"]
        found = dict(before)
        for profile in {**before, **made}:
            known = [*self._known(name, profile, before.get(profile, {}))]
            if profile in made and made[profile].digest not in known:
                known.append(made[profile].digest)
            entry = {"profile": profile, **before.get(profile, {})}
            found[profile] = {**entry, progress_note.HASHES: known}
        self.set_status(owner, {"revisions": [*found.values()]})
        return self.fresh(owner)

    def fresh(self, owner: Object) -> Object:
        """Return ``owner``, as it was, with the status that it has now."""
        found = self._seen.get(names.PLURAL, owner["metadata"]["name"])
        is_it = found and found["metadata"]["uid"] == owner["metadata"]["uid"]
        return {**owner, "status": found.get("status")} if found and is_it else owner

    def _known(self, owner: str, profile: str, entry: Mapping[str, Any]) -> Iterator[str]:
        if progress_note.HASHES in entry:
            yield from entry[progress_note.HASHES]
            return
        for name in sorted({entry.get("applied", ""), entry.get("good", "")} - {""}):
            kept = self._content(owner, profile, name)
            if kept and kept.name == name:
                yield kept.digest

    def _content(self, owner: str, profile: str, name: str) -> Revision | None:
        found = self._seen.get(CONFIG_MAPS, names.config_map(owner, profile, name))
        with suppress(ValueError):
            return desired.of_config_map(found) if found else None
        return None

    def revision(self, owner: Object, profile: str, name: str) -> Revision | None:
        """Return a revision, if its ConfigMap has the content that the status knows it by."""
        kept = self._content(owner["metadata"]["name"], profile, name)
        ours = kept and kept.name == name and kept.digest in progress_note.hashes(owner, profile)
        return kept if ours else None

    def why_lost(self, owner: Object, profile: str, name: str) -> str:
        """Return why there is no such revision."""
        name = names.config_map(owner["metadata"]["name"], profile, name)
        if self._seen.get(CONFIG_MAPS, name) is None:
            return f"the ConfigMap {name} is gone, so nothing can go back to it"
        return f"the ConfigMap {name} has not the hash in the status: nothing of it is applied"

    def keep_config_map(self, owner: Object, profile: str, made: Revision) -> bool:
        """Create the ConfigMap of a revision; return whether it replaces one that differs."""
        wanted = desired.config_map(owner, profile, made, self.namespace)
        name = wanted["metadata"]["name"]
        found = self._seen.get(CONFIG_MAPS, name)
        if found is None:
            self._create(CONFIG_MAPS, wanted)
        elif not objects.is_as(found, wanted):
            self._make_anew(CONFIG_MAPS, found, wanted)
            return True
        return False

    def _create(self, kind: str, made: Object) -> None:
        path = self._path(kind)
        with _about(kind, made["metadata"]["name"]):
            try:
                self._seen.put(kind, self._api.create(path, made))
            except ConflictError:  # the watch is late
                self._seen.put(kind, self._api.get(self._path(kind, made["metadata"]["name"])))

    def _make_anew(self, kind: str, found: Object, wanted: Object) -> None:
        """Delete ``found`` and create ``wanted``, which no change can make of it.

        What the API server would refuse is tried first. If it refuses all the same, ``found`` comes
        back, with a note, so that it is not deleted again for the same.
        """
        before, name = found["metadata"].get("annotations") or {}, found["metadata"]["name"]
        digest = objects.digest(wanted)
        with _about(kind, name):
            if before.get(names.REFUSED) == digest:
                raise InvalidError("its replacement was refused before: delete it by hand")
            try:
                self._api.create(self._path(kind), wanted, dry_run=True)
            except ConflictError as error:
                if error.reason != _EXISTS:
                    raise
        self._delete(kind, found)
        try:
            self._create(kind, wanted)
        except ApiServerError:
            metadata = {key: one for key, one in found["metadata"].items() if key in _GIVEN}
            metadata["annotations"] = {**before, names.REFUSED: digest}
            with suppress(ApiServerError):  # then it is not there, and the status says so
                self._create(kind, {**wanted, **found, "metadata": metadata})
            raise

    def _delete(self, kind: str, found: Object) -> None:
        metadata = found["metadata"]
        with _about(kind, metadata["name"]), suppress(NotFoundError, ConflictError):
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
        name = wanted["metadata"]["name"]
        found = self._seen.get(DAEMON_SETS, name)
        if found is not None and found["spec"]["selector"] == wanted["spec"]["selector"]:
            return self._keep(found, wanted, made.name)
        if found is None:
            self._create(DAEMON_SETS, wanted)
        else:  # a selector cannot be changed
            self._make_anew(DAEMON_SETS, found, wanted)
        if created := self._seen.get(DAEMON_SETS, name):
            self._remember(created)
        return False

    def _keep(self, found: Object, wanted: Object, revision: str) -> bool:
        ours = self._written.get(found["metadata"]["uid"])
        drifted = ours is not None and ours != found["metadata"]["generation"]
        labels = found["spec"]["template"]["metadata"].get("labels") or {}
        moved = labels.get(names.REVISION) != revision
        if ours is None or drifted or moved or not objects.is_as(found, wanted):
            self._replace(found, wanted)
        return drifted

    def _replace(self, found: Object, wanted: Object) -> None:
        metadata = {**found["metadata"], "ownerReferences": wanted["metadata"]["ownerReferences"]}
        metadata.pop("managedFields", None)
        for part in ("labels", "annotations"):
            metadata[part] = {**(metadata.get(part) or {}), **wanted["metadata"].get(part, {})}
        path = self._path(DAEMON_SETS, metadata["name"])
        with _about(DAEMON_SETS, metadata["name"]):
            try:
                done = self._api.replace(
                    path, {**found, "metadata": metadata, "spec": wanted["spec"]}
                )
            except ConflictError:
                self._seen.put(DAEMON_SETS, self._api.get(path))
                raise
            except NotFoundError:
                self._seen.drop(DAEMON_SETS, found)
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
            name = found["metadata"]["name"]
            with _about(DAEMON_SETS, name):
                self._seen.put(DAEMON_SETS, self._api.merge(self._path(DAEMON_SETS, name), changes))

    def pods(self, owner: str, profile: str, *, strictly: bool = False) -> dict[str, Pod]:
        """Return the pods of a DaemonSet by node; of two on a node, the one that stays.

        With ``strictly``, they are as they are now, and not as a watch shows them.
        """
        self._pods.refresh(trusting=not strictly)
        shown = self._pods.items.values()
        self._deleted &= {one.pod.uid for one in shown}
        found: dict[str, Pod] = {}
        for node, of, pod in shown:
            if node and of == (owner, profile) and (node not in found or found[node].leaving):
                found[node] = replace(pod, leaving=pod.leaving or pod.uid in self._deleted)
        return found

    def delete_pod(self, pod: Pod) -> None:
        """Delete a pod, so that the DaemonSet creates another one."""
        with _about(_PODS, pod.name):
            with suppress(NotFoundError, ConflictError):  # it is gone, and a watch is late
                self._api.delete(self._path(_PODS, pod.name), uid=pod.uid)
            self._deleted.add(pod.uid)

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

    def profiles(self, owner: Object) -> set[str]:
        """Return the profiles for which something was created; anybody can label a ConfigMap."""
        name, label = owner["metadata"]["name"], names.PROFILE_LABEL
        sets, maps = (
            {one["metadata"]["labels"].get(label, "") for one in self._seen.of(kind, name)}
            for kind in (DAEMON_SETS, CONFIG_MAPS)
        )
        return sets | (maps & progress_note.revisions(owner).keys())

    def remove(self, kind: str, owner: str, profiles: Collection[str]) -> None:
        """Delete what was created for ``profiles``."""
        for one in self._seen.of(kind, owner):
            if one["metadata"]["labels"].get(names.PROFILE_LABEL, "") in profiles:
                self._delete(kind, one)

    def set_status(self, owner: Object, status: Mapping[str, Any]) -> None:
        """Write the status of ``owner``, if it has changed."""
        before = owner.get("status") or {}
        changes = {key: one for key, one in status.items() if before.get(key) != one}
        if not changes:
            return
        name = owner["metadata"]["name"]
        path = f"/apis/{names.GROUP}/{names.VERSION}/{names.PLURAL}/{name}/status"
        try:
            self._seen.put(names.PLURAL, self._api.merge(path, {"status": changes}))
        except NotFoundError:
            self._seen.drop(names.PLURAL, owner)


@contextmanager
def _about(kind: str, name: str) -> Generator[None]:
    """Name the object in errors: the words of a webhook or a policy need not."""
    try:
        yield
    except ApiServerError as error:
        error.args = (f"{_KINDS[kind]} {name}: {error}",)
        raise
