"""Fields of features that are off: the API server drops them, and says nothing."""

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

SHARES: Final = "DRAConsumableCapacity"
KNOWN: Final = (SHARES,)
"""The feature gates that can be off."""
_FIELDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    RESOURCE_SLICE: ("allowMultipleAllocations", "requestPolicy"),
    RESOURCE_CLAIM: ("capacity",),
    RESOURCE_CLAIM_TEMPLATE: ("capacity",),
}


def checked(gates: Mapping[str, bool]) -> Mapping[str, bool]:
    """Return ``gates``; raise ``ValueError`` if there is an unknown one."""
    if unknown := sorted(gates.keys() - set(KNOWN)):
        raise ValueError(f"{unknown[0]} is not simulated; there is {', '.join(KNOWN)}")
    return gates


def without_shares(kind: Kind, new: Object, old: Object | None) -> None:
    """Remove from ``new`` what says that devices are shared, unless ``old`` has any of it."""
    fields = _FIELDS.get(kind, ())
    if old is not None and any(field in one for one in _owners(kind, old) for field in fields):
        return
    for one in _owners(kind, new):
        for field in fields:
            one.pop(field, None)


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
