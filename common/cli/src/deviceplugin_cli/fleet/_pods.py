"""What pods have requested, as the scheduler counts it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from deviceplugin.apiserver import devices_in

LIVING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Selects pods that hold what they have requested."""


class Held(NamedTuple):
    """What a pod holds, on which node."""

    node: str
    devices: Mapping[str, int]


def held(pod: Mapping[str, Any]) -> Held:
    """Return the devices of a pod, and its node; an empty name if it has none yet."""
    spec = pod["spec"]
    return Held(spec.get("nodeName") or "", requested(spec))


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
    return dict(most | (sidecars + _sum(spec.get("containers") or ())))


def _sum(containers: Iterable[Mapping[str, Any]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in containers:
        total.update(_devices(container))
    return total


def _devices(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return devices_in({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
