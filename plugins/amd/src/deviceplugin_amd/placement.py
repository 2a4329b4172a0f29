"""Which of the free GPUs and partitions a container should get."""

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import deviceplugin as dp
from deviceplugin.kit import placement
from deviceplugin.kit.sharing import Policy, Shares
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import kfd
from deviceplugin_amd.gpus import Gpu
from deviceplugin_amd.offer import Offer
from deviceplugin_amd.snapshot import Snapshot

_XGMI: Final = 10
_PCIE: Final = 40
_NO_LINK: Final = 50
_SAME_NUMA: Final = 10
_OTHER_NUMA: Final = 20
"""Distances as in AMD's plugin; the distance of two GPUs is the sum."""
_WEIGHTS: Final = 1000
"""More than the kernel's weight of any link, which decides between equal distances."""
_FARTHEST: Final = (_NO_LINK + _OTHER_NUMA + 1) * _WEIGHTS


class Fabric:
    """How near GPUs are to each other. Immutable."""

    def __init__(self, snapshot: Snapshot, sysfs: Sysfs) -> None:
        first = {unit.gpu.address: unit.node for unit in reversed(snapshot.units)}
        links = {address: kfd.links(sysfs, node) if node else {} for address, node in first.items()}
        self._scores: dict[frozenset[str], int] = {}
        for one, other in combinations(snapshot.gpus, 2):
            a, b = first.get(one.address), first.get(other.address)
            link = links[one.address].get(b.number) if a and b else None
            in_hive = bool(a and b and a.get("hive_id") == b.get("hive_id") != 0)
            key = frozenset({one.address, other.address})
            self._scores[key] = _FARTHEST - _distance(one, other, link, in_hive=in_hive)

    def score(self, one: str, other: str) -> int:
        """Return how near two GPUs are, by address: 0 if nothing is known of one of them."""
        return self._scores.get(frozenset({one, other}), 0)


def _distance(one: Gpu, other: Gpu, link: kfd.Link | None, *, in_hive: bool) -> int:
    kind = _XGMI if in_hive or (link and not link.is_pcie) else _PCIE if link else _NO_LINK
    numa = _SAME_NUMA if one.numa == other.numa else _OTHER_NUMA
    weight = min(link.weight, _WEIGHTS - 1) if link else _WEIGHTS - 1
    return (kind + numa) * _WEIGHTS + weight


class _Place(NamedTuple):
    """What a device is, or is a share of."""

    resource: str
    gpu: str
    unit: str


class Placement:
    """Which devices to prefer. Immutable, so an RPC can use it.

    Args:
        fabric: How near GPUs are; None if that is not known.
        offers: All units that are advertised.
        policy: Which device's share is given next.
    """

    def __init__(
        self, fabric: Fabric | None, offers: Iterable[Offer], policy: Policy = "spread"
    ) -> None:
        self._fabric = fabric
        self._policy: Policy = policy
        self._places = {
            device.id: _Place(device.resource, offer.unit.gpu.address, offer.unit.id)
            for offer in offers
            for device in offer.devices
        }

    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> list[dp.Device]:
        """Return the devices that go together best.

        Shares follow the policy. Partitions are of as few GPUs as possible, near to each other.
        Whole GPUs are near to each other.
        """
        known = {device.id: device for device in (*available, *required)}
        places = {one: self._places.get(one, _Place("", one, one)) for one in known}
        if any(place.unit != one for one, place in places.items()):
            return self._shares(places.values()).prefer(available, required, size)
        gpus = {one: place.gpu for one, place in places.items()}
        ids, needed = list(known), [device.id for device in required]
        if len({*gpus.values()}) == len(ids):
            near = lambda one, other: self._score(gpus[one], gpus[other])  # noqa: E731
            chosen = placement.choose(ids, needed, size, near)
        else:
            chosen = placement.choose_by_parent(
                ids, needed, size, parent=gpus.__getitem__, score=self._score
            )
        return [known[one] for one in chosen]

    def _score(self, one: str, other: str) -> int:
        return self._fabric.score(one, other) if self._fabric else 0

    def _shares(self, asked: Collection[_Place]) -> Shares:
        resources = {place.resource for place in asked}
        places = {
            one: (place.gpu, place.unit)
            for one, place in self._places.items()
            if place.resource in resources
        }
        return Shares(places, self._policy)
