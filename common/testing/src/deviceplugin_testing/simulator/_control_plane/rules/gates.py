"""Feature gates of the API server and the scheduler, and the fields that vanish without them."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import (
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    Kind,
    Object,
)
from deviceplugin_testing.simulator._releases import COMPARED

_GATES: Final = {
    "DRAConsumableCapacity": 36,
    "DRAListTypeAttributes": None,
    "DRAPartitionableDevices": 36,
    "DRADeviceCompatibilityGroups": None,
}
"""The gates that are simulated, and the minor release since which they are on by default."""
LISTS: Final = ("ints", "bools", "strings", "versions")
"""The fields of an attribute that has several values."""
Places = Iterator[tuple[Object, str]]
"""Objects, and fields of a feature that they can have."""


class Gates(NamedTuple):
    """Which features are on."""

    shares: bool = True
    """Several claims can share a device."""
    lists: bool = False
    """An attribute can have several values."""
    counters: bool = True
    """Devices can consume counters that they share."""
    groups: bool = False
    """Devices that consume counters can say which others are allocated beside them."""

    @classmethod
    def of(cls, given: Mapping[str, bool], release: str = COMPARED) -> "Gates":
        """Return them as ``given`` by name, and else as ``release`` has them by default.

        Raises:
            ValueError: A gate is unknown, or needs another one that is off.
        """
        if unknown := sorted(given.keys() - _GATES):
            raise ValueError(f"{unknown[0]} is not simulated; there are {', '.join(_GATES)}")
        minor = int(release.partition(".")[2])
        usual = {name: since is not None and minor >= since for name, since in _GATES.items()}
        found = cls(*({**usual, **given}[name] for name in _GATES))
        if found.groups and not found.counters:
            raise ValueError("DRADeviceCompatibilityGroups needs DRAPartitionableDevices")
        return found

    def drop_disabled(self, kind: Kind, new: Object, old: Object | None) -> None:
        """Remove from ``new`` the fields of features that are off, unless ``old`` has any."""
        for is_on, places in (
            (self.shares, _shares),
            (self.lists, _lists),
            (self.counters, _counters),
            (self.groups, _groups),
        ):
            if is_on or (old and any(field in one for one, field in places(kind, old))):
                continue
            for one, field in places(kind, new):
                one.pop(field, None)


def _shares(kind: Kind, made: Object) -> Places:
    for device in _devices(kind, made):
        yield device, "allowMultipleAllocations"
        yield from ((one, "requestPolicy") for one in device.get("capacity", {}).values())
    if kind in {RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE}:
        spec = made["spec"]["spec"] if kind == RESOURCE_CLAIM_TEMPLATE else made["spec"]
        for request in spec["devices"].get("requests") or ():
            for one in (request.get("exactly", {}), *request.get("firstAvailable", ())):
                yield one, "capacity"


def _lists(kind: Kind, made: Object) -> Places:
    for device in _devices(kind, made):
        for one in device.get("attributes", {}).values():
            yield from ((one, name) for name in LISTS)


def _counters(kind: Kind, made: Object) -> Places:
    if kind == RESOURCE_SLICE:
        yield from ((made["spec"], name) for name in ("sharedCounters", "perDeviceNodeSelection"))
    for device in _devices(kind, made):
        for name in ("consumesCounters", "nodeName", "nodeSelector", "allNodes"):
            yield device, name


def _groups(kind: Kind, made: Object) -> Places:
    for device in _devices(kind, made):
        yield from ((one, "compatibilityGroups") for one in device.get("consumesCounters", ()))
    if kind == RESOURCE_CLAIM:
        allocation = made.get("status", {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results", ()):
            yield result, "compatibilityGroups"


def _devices(kind: Kind, made: Object) -> list[Object]:
    found: list[Object] = made["spec"].get("devices", []) if kind == RESOURCE_SLICE else []
    return found
