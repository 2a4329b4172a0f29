"""The feature gate of devices that several claims share, and the fields that it is for."""

from collections.abc import Iterator, Mapping
from typing import Final

from deviceplugin_testing.simulator._control_plane.kinds import (
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    Kind,
    Object,
)
from deviceplugin_testing.simulator._control_plane.rules.claims import requests_of

GATE: Final = "DRAConsumableCapacity"
_FIELDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    RESOURCE_SLICE: ("allowMultipleAllocations", "requestPolicy"),
    RESOURCE_CLAIM: ("capacity",),
    RESOURCE_CLAIM_TEMPLATE: ("capacity",),
}


def checked(gates: Mapping[str, bool]) -> bool:
    """Return whether devices can be shared; raise ``ValueError`` for another gate."""
    if unknown := sorted(gates.keys() - {GATE}):
        raise ValueError(f"{unknown[0]} is not simulated; there is {GATE}")
    return gates.get(GATE, True)


def without_shares(kind: Kind, new: Object, old: Object | None) -> None:
    """Remove from ``new`` what says that devices are shared, unless ``old`` has any of it."""
    fields = _FIELDS.get(kind, ())
    if old is not None and any(field in one for one in _owners(kind, old) for field in fields):
        return
    for one in _owners(kind, new):
        for name in fields:
            one.pop(name, None)


def _owners(kind: Kind, made: Object) -> Iterator[Object]:
    """Yield what can have such fields: devices and their capacities, or requests."""
    if kind == RESOURCE_SLICE:
        for device in made["spec"].get("devices", ()):
            yield device
            yield from device.get("capacity", {}).values()
    elif kind in _FIELDS:
        spec = made["spec"]["spec"] if kind == RESOURCE_CLAIM_TEMPLATE else made["spec"]
        for request in requests_of(spec):
            yield request.get("exactly", {})
            yield from request.get("firstAvailable", ())
