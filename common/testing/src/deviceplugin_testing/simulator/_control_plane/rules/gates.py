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

_GATES: Final = {"DRAConsumableCapacity": True, "DRAListTypeAttributes": False}
"""The gates that are simulated, and their defaults."""
LISTS: Final = ("ints", "bools", "strings", "versions")
"""The fields of an attribute that has several values."""
_SHARES: Final[Mapping[Kind, tuple[str, ...]]] = {
    RESOURCE_SLICE: ("allowMultipleAllocations", "requestPolicy"),
    RESOURCE_CLAIM: ("capacity",),
    RESOURCE_CLAIM_TEMPLATE: ("capacity",),
}


class Gates(NamedTuple):
    """Which features are on."""

    shares: bool = True
    """Several claims can share a device."""
    lists: bool = False
    """An attribute can have several values."""

    @classmethod
    def of(cls, given: Mapping[str, bool]) -> "Gates":
        """Return them as ``given`` by name; raise ``ValueError`` for a gate that is unknown."""
        if unknown := sorted(given.keys() - _GATES):
            raise ValueError(f"{unknown[0]} is not simulated; there are {', '.join(_GATES)}")
        return cls(*({**_GATES, **given}[name] for name in _GATES))

    def drop_disabled(self, kind: Kind, new: Object, old: Object | None) -> None:
        """Remove from ``new`` the fields of features that are off, unless ``old`` has any."""
        if not self.shares:
            _drop(_SHARES.get(kind, ()), _sharing(kind, new), _sharing(kind, old))
        if not self.lists and kind == RESOURCE_SLICE:
            _drop(LISTS, _attributes(new), _attributes(old))


def _drop(fields: tuple[str, ...], new: Iterator[Object], old: Iterator[Object]) -> None:
    if any(field in one for one in old for field in fields):
        return
    for one in new:
        for name in fields:
            one.pop(name, None)


def _sharing(kind: Kind, made: Object | None) -> Iterator[Object]:
    """Yield what can say that it is shared: devices and their capacities, or requests."""
    if made is None:
        return
    if kind == RESOURCE_SLICE:
        for device in made["spec"].get("devices", ()):
            yield device
            yield from device.get("capacity", {}).values()
    elif kind in _SHARES:
        spec = made["spec"]["spec"] if kind == RESOURCE_CLAIM_TEMPLATE else made["spec"]
        for request in spec["devices"].get("requests") or ():
            yield request.get("exactly", {})
            yield from request.get("firstAvailable", ())


def _attributes(made: Object | None) -> Iterator[Object]:
    for device in made["spec"].get("devices", ()) if made else ():
        yield from device.get("attributes", {}).values()
