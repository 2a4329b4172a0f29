"""Which shares a container gets, and which resource gets a device that several match."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import deviceplugin as dp
from deviceplugin.kit.sharing import Policy, Shares
from deviceplugin_generic.discovery.devices import Share

Overlap = Literal["allow", "first", "refuse"]


def resolve(shares: Sequence[Share], overlap: Overlap) -> Iterator[dp.Device]:
    """Yield devices. ``overlap`` decides on those whose paths another resource has too."""
    owners: dict[str, str] = {}
    others: dict[str, set[str]] = defaultdict(set)
    for share in shares if overlap != "allow" else ():
        for path in share.paths:
            owners.setdefault(path, share.device.resource)
            others[path].add(share.device.resource)
    for share in shares:
        device = share.device
        if overlap == "first" and any(owners[path] != device.resource for path in share.paths):
            continue
        rivals = {name for path in share.paths for name in others.get(path, ())} - {device.resource}
        if overlap == "refuse" and rivals:
            reason = f"also matched by {', '.join(sorted(rivals))}"
            device = replace(device, health=dp.Health.unhealthy(reason))
        yield device


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
