"""What the two protocols say of a device, in the terms of `Ownership`."""

from typing import Final, Literal, NamedTuple

from deviceplugin.model import Device

Mode = Literal["device-plugin", "dra"]
"""Which protocol offers devices."""

HELD: Final = "held"
"""The taint of a device that a pod holds, or may get, through the device plugin."""
UNHEALTHY: Final = "unhealthy"
UNKNOWN: Final = "not known yet: what pods hold through the device plugin"
BY_DRA: Final = "offered through DRA"
LEAVING_DRA: Final = "still offered through DRA"
LEAVING_PLUGIN: Final = "still offered through the device plugin"


Claimed = Literal["", "device", "share"]
"""How a claim holds a device: under its own name, or as a share of the device that it is part of.
Empty if none does."""


class OfferState(NamedTuple):
    """What DRA says of a device now."""

    device: Device
    offered: bool
    """Whether it belongs into the slices, with or without a taint."""
    taint: str
    """Why no claim should get it, as the value of a label; empty if nothing is in the way."""
    reason: str
    """The same in words."""
    claimed: Claimed = ""


def of(device: Device, *, offered: bool, closed: str, claimed: Claimed) -> OfferState:
    """Return what to say of ``device``; ``closed`` is why no claim may get it, or empty."""
    if closed:
        return OfferState(device, offered, HELD, closed, claimed)
    if not device.health:
        return OfferState(device, offered, UNHEALTHY, device.health.reason, claimed)
    return OfferState(device, offered, "", "", claimed)
