"""The controller that evicts pods from devices with a taint that says ``NoExecute``."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from deviceplugin_testing.simulator._control_plane.controllers.claims import is_over
from deviceplugin_testing.simulator._control_plane.kinds import (
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Object,
)
from deviceplugin_testing.simulator._control_plane.scheduler.pools import DeviceKey, tolerates
from deviceplugin_testing.simulator._control_plane.store import Store

_NO_EXECUTE: Final = "NoExecute"


class DeviceEviction:
    """Deletes pods whose claims have a device with a ``NoExecute`` taint that they don't tolerate.

    A toleration with ``tolerationSeconds`` holds for so long after the taint's ``timeAdded``.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def step(self) -> None:
        """Delete the pods whose time has come."""
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
