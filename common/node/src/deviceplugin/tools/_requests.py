"""What pods request of devices, as the scheduler counts it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from deviceplugin._config.quantities import devices_in

LIVING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Selects pods that hold what they have requested."""


def requested(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the devices that the scheduler sets aside for a pod.

    Init containers run one after the other, beside the sidecars that were started before them. What
    they had, the containers get.
    """
    sidecars: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        own = Counter(_devices(container))
        if container.get("restartPolicy") == "Always":
            sidecars += own
            most |= sidecars
        else:
            most |= sidecars + own
    for container in spec.get("containers") or ():
        sidecars += Counter(_devices(container))
    return dict(most | sidecars)


def _devices(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return devices_in({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
