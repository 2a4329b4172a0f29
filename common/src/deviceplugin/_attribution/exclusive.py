"""Refusing a device that a kubelet gives to a second pod."""

import logging
from collections.abc import Collection
from typing import Final

from deviceplugin._attribution.podresources import Holdings, PodResources
from deviceplugin.errors import AllocationError, KubeletUnavailableError

log = logging.getLogger(__name__)

_TIMEOUT: Final = 1.0
"""Seconds for the one question that an Allocate may ask: its node waits."""


def refuse_held(
    resource: str, ids: Collection[str], remembered: Holdings | None, service: PodResources
) -> None:
    """Raise AllocationError if a pod holds one of ``ids``.

    What is remembered may be over by now, so that the pod itself is asked for, and only that:
    a Get waits for nothing that an admission keeps, and collects nothing.
    """
    held = remembered.holders(resource) if remembered else {}
    pods = {hold.owner for device_id in ids for hold in held.get(device_id, ())}
    if not pods:
        return
    try:
        now = service.get(pods, _TIMEOUT)
    except KubeletUnavailableError as error:
        fields = {"resource": resource, "error": str(error)}
        log.warning("pod resources unavailable, allocating anyway", extra=fields)
        return
    taken = sorted(hold for hold in now if hold.resource == resource and hold.device in ids)
    if taken:
        raise AllocationError(
            "held by another pod: "
            + ", ".join(f"{hold.device} ({hold.namespace}/{hold.pod})" for hold in taken),
            device_ids=[hold.device for hold in taken],
        )
