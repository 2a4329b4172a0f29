"""Which devices of one resource to list: the present ones and the vanished ones.

A 1.36 kubelet can crash when a device that a pod holds disappears from the list. So a vanished
device is kept as unhealthy until no pod can hold it any more.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from deviceplugin.model import Device, Health

NOTHING_CLOSED: Final[Mapping[str, str]] = MappingProxyType({})
VANISHED = "it is gone"
RECORDED_BUT_ABSENT = (
    "the kubelet has recorded it for a pod, but it has not been found since the plugin started"
)
HELD_BUT_ABSENT = "a pod holds it, but it has not been found since the plugin started"


class Retention(NamedTuple):
    """How long vanished devices are kept, in seconds."""

    grace: float
    """The least time if it is known what pods hold. It covers an allocation that is under way."""
    unknown: float
    """The time if it is unknown what pods hold."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeptDevices:
    """The present and vanished devices of one resource. Immutable; times are monotonic seconds."""

    fresh_at: float
    """The time of the last successful discovery of this resource."""
    present: Mapping[str, Device] = field(default_factory=dict)
    vanished: Mapping[str, tuple[Device, float]] = field(default_factory=dict)
    """The vanished devices, each with the time when it vanished."""

    def __len__(self) -> int:
        return len(self.present) + len(self.vanished)

    def updated(self, present: Mapping[str, Device], now: float) -> "KeptDevices":
        """Return what is kept if ``present`` has all devices that are present at ``now``.

        The result refers to ``present`` itself, which must not be changed afterwards.
        """
        vanished = {i: entry for i, entry in self.vanished.items() if i not in present}
        if not self.present.keys() <= present.keys():
            for device_id in self.present.keys() - present.keys():
                vanished[device_id] = reported(self.present[device_id], VANISHED), now
        return KeptDevices(now, present, vanished)

    def expecting(
        self, held: AbstractSet[str], now: float, reason: str = HELD_BUT_ABSENT
    ) -> "KeptDevices":
        """Return this with the devices added that pods hold but that were never discovered."""
        absent = held - self.present.keys() - self.vanished.keys()
        lost = {device_id: (reported(Device(device_id), reason), now) for device_id in absent}
        return replace(self, vanished={**self.vanished, **lost})

    def retired(
        self,
        held: AbstractSet[str] | None,
        now: float,
        retention: Retention,
        recorded: AbstractSet[str] = frozenset(),
    ) -> "KeptDevices":
        """Return this without the vanished devices that no pod can hold any more.

        ``held`` is None if it is unknown what pods hold. Of those that are ``recorded`` it is.
        """

        def is_kept(device_id: str, since: float) -> bool:
            unknown = held is None or device_id in recorded
            wait = retention.unknown if unknown else retention.grace
            return now - since < wait or device_id in (held or ())

        kept = {
            device_id: entry
            for device_id, entry in self.vanished.items()
            if is_kept(device_id, entry[1])
        }
        return replace(self, vanished=kept)

    def devices(
        self,
        became: Callable[[Device], str] = lambda _device: "",
        closed: Mapping[str, str] = NOTHING_CLOSED,
    ) -> list[Device]:
        """Return all devices, in no particular order.

        Args:
            became: Returns what became of a device that has vanished; empty if it is gone.
            closed: Devices that must not be given out, each with the reason.
        """
        gone = (device for device, _ in self.vanished.values())
        vanished = [reported(device, became(device)) for device in gone]
        if not closed:
            return [*self.present.values(), *vanished]
        there = [reported(one, closed.get(one.id, "")) for one in self.present.values()]
        return [*there, *vanished]


def unhealthy(devices: Iterable[Device], reason: str) -> list[Device]:
    """Return ``devices``, with the healthy ones made unhealthy for ``reason``."""
    return [reported(device, reason) if device.health else device for device in devices]


def reported(device: Device, reason: str) -> Device:
    """Return ``device``, unhealthy for ``reason`` unless that is empty."""
    return replace(device, health=Health.unhealthy(reason)) if reason else device
