"""Which shares a container gets, and which resource gets a device that several match."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import deviceplugin as dp
from deviceplugin.kit import pieces
from deviceplugin.kit.sharing import Policy, Shares
from deviceplugin_generic.discovery.devices import Share

Overlap = Literal["allow", "first", "refuse"]


def resolve(shares: Sequence[Share], overlap: Overlap) -> Iterator[dp.Device]:
    """Yield devices. ``overlap`` decides on those that are the same hardware."""
    if overlap == "allow":
        yield from (share.device for share in shares)
        return
    own = {share.origin: _own(share.device) for share in shares}
    resources = {share.origin: share.device.resource for share in shares}
    taken: dict[str, list[str]] = defaultdict(list)
    for origin, some in own.items():
        if overlap == "refuse" or not any(piece in taken for piece in some):
            for piece in some:
                taken[piece].append(origin)
    for share in shares:
        device = share.device
        rivals = {other for piece in own[share.origin] for other in taken[piece]} - {share.origin}
        if rivals and overlap == "first":
            continue
        if rivals:
            names = ", ".join(sorted({resources[one] for one in rivals}))
            device = replace(device, health=dp.Health.unhealthy(f"also matched by {names}"))
        yield device


def _own(device: dp.Device) -> Collection[str]:
    """Return the pieces of a device; of one that has only control nodes, their paths."""
    return pieces.of(device) or device.hardware


def preferred(
    available: Sequence[dp.Device],
    required: Iterable[dp.Device],
    size: int,
    shares: Mapping[str, Share],
) -> list[dp.Device]:
    """Return ``size`` devices: shares of as many real devices as possible, then by the policy.

    ``spread`` begins with the real device that has the fewest used shares, ``pack`` with the one
    that has the most.
    """
    known = [shares[device.id] for device in available if device.id in shares]
    resources = {share.device.resource for share in known}
    places = {
        one: share.origin for one, share in shares.items() if share.device.resource in resources
    }
    policy: Policy = "spread" if all(share.policy == "spread" for share in known) else "packed"
    return Shares(places, policy, distinct=True).prefer(available, required, size)
