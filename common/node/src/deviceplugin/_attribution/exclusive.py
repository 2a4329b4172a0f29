"""Refusing a device that the kubelet gives to a second pod."""

import logging
from collections.abc import Collection
from typing import Final

from deviceplugin._attribution.forgotten import Forgotten
from deviceplugin._attribution.podresources import Holdings, PodResources
from deviceplugin.errors import AllocationError, KubeletUnavailableError

log = logging.getLogger(__name__)

_TIMEOUT: Final = 1.0
"""Seconds for the only request that an Allocate may make, because the node waits for it."""


def refuse_held(
    resource: str,
    ids: Collection[str],
    remembered: Holdings | None,
    service: PodResources,
    forgotten: Forgotten,
) -> None:
    """Raise AllocationError if a pod holds one of ``ids``.

    A remembered pod may have ended by now, so the kubelet is asked about these pods only, by Get:
    it does not wait for the admission that is under way, and does not collect finished pods. What
    it has forgotten, they hold all the same.
    """
    held = remembered.holders(resource) if remembered else {}
    pods = {hold.owner for device_id in ids for hold in held.get(device_id, ())}
    if not pods:
        return
    try:
        now = forgotten.among(service.get(pods, _TIMEOUT))
    except KubeletUnavailableError as error:
        fields = {"resource": resource, "error": str(error)}
        log.warning("pod resources unavailable, allocating anyway", extra=fields)
        return
    taken = sorted(
        hold for hold in now.holds or () if hold.resource == resource and hold.device in ids
    )
    if taken:
        raise AllocationError(
            "held by another pod: "
            + ", ".join(f"{hold.device} ({hold.namespace}/{hold.pod})" for hold in taken),
            device_ids=[hold.device for hold in taken],
        )
