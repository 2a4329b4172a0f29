"""The controllers of claims, and the one that evicts pods from tainted devices."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from deviceplugin_testing.simulator._control_plane.api_server.objects import Objects
from deviceplugin_testing.simulator._control_plane.kinds import (
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    Object,
)
from deviceplugin_testing.simulator._control_plane.rules.by_kind import owned_by
from deviceplugin_testing.simulator._control_plane.scheduler.pools import DeviceKey, tolerates
from deviceplugin_testing.simulator._control_plane.scheduler.scheduler import FINALIZER
from deviceplugin_testing.simulator._control_plane.store import ENDED, Store

POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
_OWNERS: Final = {"Node": NODE, "Pod": POD}


class ClaimControllers:
    """Make claims of templates, take them back when their pods have ended, and collect garbage."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._store = objects.store

    def step(self) -> None:
        pods = {one["metadata"]["uid"]: one for one in self._store.list(POD)}
        for pod in pods.values():
            if not is_over(pod):
                self._make_claims(pod)
        for claim in self._store.list(RESOURCE_CLAIM):
            self._release(claim, pods)
        for kind in (RESOURCE_SLICE, RESOURCE_CLAIM):
            for one in self._store.list(kind):
                if self._is_garbage(one):
                    metadata = one["metadata"]
                    self._store.delete(kind, metadata.get("namespace", ""), metadata["name"])

    def _make_claims(self, pod: Object) -> None:
        known = {one["name"] for one in pod["status"].get("resourceClaimStatuses", ())}
        for one in pod["spec"].get("resourceClaims", ()):
            template = one.get("resourceClaimTemplateName")
            if template and one["name"] not in known:
                self._make_claim(pod, one["name"], template)

    def _make_claim(self, pod: Object, name: str, template: str) -> None:
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        found = self._store.find(RESOURCE_CLAIM_TEMPLATE, namespace, template)
        if found is None:
            return  # it is made once there is one
        spec = found["spec"]
        wanted: Mapping[str, Object] = spec.get("metadata", {})
        made = {
            "metadata": {
                "generateName": f"{metadata['name']}-{name}-",
                "labels": wanted.get("labels", {}),
                "annotations": {**wanted.get("annotations", {}), POD_CLAIM: name},
                "ownerReferences": [owned_by(pod)],
            },
            "spec": spec["spec"],
        }
        claim = self._objects.create(RESOURCE_CLAIM, namespace, made)["metadata"]["name"]

        def note(draft: Object) -> None:
            statuses = draft["status"].setdefault("resourceClaimStatuses", [])
            statuses.append({"name": name, "resourceClaimName": claim})

        self._store.change(POD, namespace, metadata["name"], note)

    def _release(self, claim: Object, pods: Mapping[str, Object]) -> None:
        users = claim.get("status", {}).get("reservedFor", [])
        left = [one for one in users if one["uid"] in pods and not is_over(pods[one["uid"]])]
        metadata = claim["metadata"]
        place = (RESOURCE_CLAIM, metadata["namespace"], metadata["name"])
        unused = not left and (bool(users) or "deletionTimestamp" in metadata)

        def release(draft: Object) -> None:
            status = draft.setdefault("status", {})
            status.pop("reservedFor", None)
            if left:
                status["reservedFor"] = left
            if unused:
                status.pop("allocation", None)
                kept = [one for one in draft["metadata"].get("finalizers", ()) if one != FINALIZER]
                draft["metadata"].pop("finalizers", None)
                draft["metadata"] |= {"finalizers": kept} if kept else {}

        if len(left) < len(users) or unused:
            self._store.change(*place, release)
        owner = next((one for one in _owners(metadata) if one["kind"] == "Pod"), None)
        is_needed = owner is None or (owner["uid"] in pods and not is_over(pods[owner["uid"]]))
        if not left and not is_needed and self._store.find(*place) is not None:
            self._store.delete(*place)

    def _is_garbage(self, found: Object) -> bool:
        owners = [one for one in _owners(found["metadata"]) if one["kind"] in _OWNERS]
        namespace = found["metadata"].get("namespace", "")
        return bool(owners) and not any(self._exists(one, namespace) for one in owners)

    def _exists(self, owner: Mapping[str, str], namespace: str) -> bool:
        kind = _OWNERS[owner["kind"]]
        found = self._store.find(kind, namespace if kind.namespaced else "", owner["name"])
        return found is not None and found["metadata"]["uid"] == owner["uid"]


def is_over(pod: Object) -> bool:
    """Return whether the pod's containers do not run and never will."""
    never_ran = "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")
    return pod["status"]["phase"] in ENDED or never_ran


def _owners(metadata: Object) -> Iterable[Mapping[str, str]]:
    owners: list[Mapping[str, str]] = metadata.get("ownerReferences", [])
    return owners


_NO_EXECUTE: Final = "NoExecute"


class DeviceEviction:
    """Deletes pods whose claims have a device with a ``NoExecute`` taint that they don't tolerate.

    A toleration with ``tolerationSeconds`` holds for so long after the taint's ``timeAdded``.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def step(self) -> None:
        taints = dict(self._taints())
        for claim in self._store.list(RESOURCE_CLAIM):
            allocation = claim.get("status", {}).get("allocation") or {}
            for result in allocation.get("devices", {}).get("results", ()):
                key = DeviceKey(result["driver"], result["pool"], result["device"])
                for taint in taints.get(key, ()):
                    if self._is_due(taint, result.get("tolerations", [])):
                        self._evict(claim, taint)

    def _taints(self) -> Iterator[tuple[DeviceKey, list[Object]]]:
        for one in self._store.list(RESOURCE_SLICE):
            spec = one["spec"]
            for device in spec.get("devices", ()):
                found = [t for t in device.get("taints", ()) if t["effect"] == _NO_EXECUTE]
                if found:
                    yield DeviceKey(spec["driver"], spec["pool"]["name"], device["name"]), found

    def _is_due(self, taint: Object, tolerations: list[Object]) -> bool:
        limits = [one.get("tolerationSeconds") for one in tolerations if tolerates(one, taint)]
        if None in limits:
            return False
        since = datetime.fromisoformat(taint["timeAdded"]).timestamp()
        return self._store.seconds() >= since + max((one for one in limits if one), default=0)

    def _evict(self, claim: Object, taint: Object) -> None:
        namespace = claim["metadata"]["namespace"]
        uids = {one["uid"] for one in claim["status"].get("reservedFor", ())}
        for pod in self._store.list(POD, namespace):
            metadata = pod["metadata"]
            if metadata["uid"] not in uids or "deletionTimestamp" in metadata or is_over(pod):
                continue
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByDeviceTaintManager",
                "message": f"Device Taint manager: deleting due to NoExecute taint {taint['key']}",
            }

            def note(draft: Object, condition: Object = condition) -> None:
                draft["status"].setdefault("conditions", []).append(condition)

            self._store.change(POD, namespace, metadata["name"], note)
            self._store.delete(POD, namespace, metadata["name"])
