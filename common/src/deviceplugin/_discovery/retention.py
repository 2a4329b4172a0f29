"""Which devices of one resource to list: those that are here and those that left.

A 1.36 kubelet can crash when a device that a pod holds is dropped from the list, so a device that
vanishes is kept, unhealthy, until no pod can hold it any more.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from deviceplugin.model import Device, Health

VANISHED = "it is gone"
HELD_BUT_ABSENT = "a pod holds it, but it has not been found since the plugin started"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long vanished devices are kept, in seconds."""

    grace: float
    """At least, where it is known what pods hold: covers an allocation that is under way."""
    unknown: float
    """Where it is not known what pods hold."""


@dataclass(frozen=True, slots=True)
class KeptDevices:
    """The devices of one resource, here or vanished. Never changes. Times are monotonic seconds."""

    fresh_at: float
    """When a discovery last spoke for this resource."""
    present: Mapping[str, Device] = field(default_factory=dict)
    vanished: Mapping[str, tuple[Device, float]] = field(default_factory=dict)
    """The devices that left, and since when."""

    def __len__(self) -> int:
        return len(self.present) + len(self.vanished)

    def updated(self, present: Mapping[str, Device], now: float) -> "KeptDevices":
        """Return what is kept with ``present`` as all devices that are here at ``now``.

        It refers to ``present`` itself, which must not be changed afterwards.
        """
        vanished = {i: entry for i, entry in self.vanished.items() if i not in present}
        if not self.present.keys() <= present.keys():
            for device_id in self.present.keys() - present.keys():
                vanished[device_id] = _gone(self.present[device_id], VANISHED), now
        return KeptDevices(now, present, vanished)

    def expecting(self, held: AbstractSet[str], now: float) -> "KeptDevices":
        """Return this with those that pods hold but nobody has found here."""
        absent = held - self.present.keys() - self.vanished.keys()
        lost = {device_id: (_gone(Device(device_id), HELD_BUT_ABSENT), now) for device_id in absent}
        return replace(self, vanished={**self.vanished, **lost})

    def retired(
        self, held: AbstractSet[str] | None, now: float, retention: Retention
    ) -> "KeptDevices":
        """Return this without the vanished that no pod can hold any more.

        ``held`` is None where it is not known what pods hold.
        """
        wait = retention.unknown if held is None else retention.grace
        kept = {
            device_id: entry
            for device_id, entry in self.vanished.items()
            if now - entry[1] < wait or device_id in (held or ())
        }
        return replace(self, vanished=kept)

    def devices(self) -> list[Device]:
        """Return all devices, in no particular order."""
        return [*self.present.values(), *(device for device, _ in self.vanished.values())]


def unhealthy(devices: Iterable[Device], reason: str) -> list[Device]:
    """Return ``devices``, those that are healthy as unhealthy for ``reason``."""
    return [_gone(device, reason) if device.health else device for device in devices]


def _gone(device: Device, reason: str) -> Device:
    return replace(device, health=Health.unhealthy(reason))
