"""Which shares a container gets, and which resource gets a device that several match."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import deviceplugin as dp
from deviceplugin_generic.devices import Share

Overlap = Literal["allow", "first", "refuse"]


def resolve(shares: Sequence[Share], overlap: Overlap) -> Iterator[dp.Device]:
    """Yield devices; those whose paths another resource has too are treated as ``overlap`` says."""
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
    """Return ``size`` devices: of as many real ones as can be, and then by the policy.

    ``spread`` begins with the real device that has most shares left, ``pack`` with the one that
    has fewest.
    """
    chosen = list(required)
    by_origin: dict[str, deque[dp.Device]] = defaultdict(deque)
    for device in available:
        by_origin[_origin(device, shares)].append(device)
    used = {_origin(device, shares) for device in chosen}
    sign = -1 if all(_policy(device, shares) == "spread" for device in available) else 1
    order = sorted(by_origin, key=lambda origin: sign * len(by_origin[origin]))
    order.sort(key=lambda origin: origin in used)
    taken = {device.id for device in chosen}
    while len(chosen) < size and any(by_origin.values()):
        for origin in order:
            queue = by_origin[origin]
            while queue and queue[0].id in taken:
                queue.popleft()
            if queue and len(chosen) < size:
                chosen.append(queue.popleft())
    return chosen


def _origin(device: dp.Device, shares: Mapping[str, Share]) -> str:
    return shares[device.id].origin if device.id in shares else device.id


def _policy(device: dp.Device, shares: Mapping[str, Share]) -> str:
    return shares[device.id].policy if device.id in shares else "spread"
