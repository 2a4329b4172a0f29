"""Which pods hold a device that has been unhealthy for long enough."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

SILENCE: Final = 60.0
"""Seconds without an answer of the plugin after which earlier observations are discarded."""

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pod that holds an unhealthy device."""

    namespace: str
    name: str
    resource: str
    device: str
    reason: str
    """Why the device is unhealthy."""
    seconds: float
    """How long the device has been observed unhealthy."""
    left: float
    """Seconds until the pod's time is up; negative if it is."""


class Patience:
    """Measures how long each device has been unhealthy, as observed without a break.

    The time before the start does not count, nor does the time before the plugin was silent for a
    minute. So a pod is evicted late rather than for a device that recovered meanwhile.

    Args:
        of: Returns for how many seconds a device of a resource may be unhealthy.
        resources: The resources to observe; all if it is empty.
    """

    def __init__(self, of: Callable[[str], float], resources: Collection[str] = ()) -> None:
        self._of = of
        self._resources = resources
        self._since: dict[_Key, float] = {}
        self._asked = float("-inf")

    def observe(self, page: Mapping[str, Any], now: float) -> list[Suspect]:
        """Record a plugin's ``/devices``; return the suspects, the longest unhealthy first.

        Args:
            page: The answer of the plugin.
            now: The time, in monotonic seconds.

        Raises:
            LookupError: ``page`` is not such an answer. TypeError and AttributeError mean the same.
        """
        if now - self._asked > SILENCE:
            self._since.clear()
        self._asked = now
        since: dict[_Key, float] = {}
        suspects: list[Suspect] = []
        for resource, device in self._unhealthy(page):
            key = resource, str(device["id"])
            since[key] = self._since.get(key, now)
            suspects += self._of_device(key, device, now - since[key])
        self._since = since
        return sorted(suspects, key=lambda suspect: (suspect.left, suspect.namespace, suspect.name))

    def _unhealthy(self, page: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for resource in page["resources"]:
            name = str(resource["name"])
            if not self._resources or name in self._resources:
                for device in resource["devices"]:
                    if not device["healthy"]:
                        yield name, device

    def _of_device(self, key: _Key, device: Mapping[str, Any], seconds: float) -> Iterator[Suspect]:
        resource, device_id = key
        left = self._of(resource) - seconds
        pods = {(str(h["namespace"]), str(h["pod"])) for h in device.get("holders") or ()}
        for namespace, name in sorted(pods):
            reason = " ".join(str(device.get("reason", "")).split())
            yield Suspect(namespace, name, resource, device_id, reason, seconds, left)
