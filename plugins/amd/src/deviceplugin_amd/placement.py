"""Which of the free GPUs and partitions a container should get."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import deviceplugin as dp
from deviceplugin.kit import placement
from deviceplugin.kit.sharing import Policy, Shares
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import kfd
from deviceplugin_amd.gpus import Gpu
from deviceplugin_amd.look import Found

_XGMI: Final = 10
_PCIE: Final = 40
_NO_LINK: Final = 50
_SAME_NUMA: Final = 10
_OTHER_NUMA: Final = 20
"""Distances as AMD's plugin counts them, of which the sum is the distance of two GPUs."""
_WEIGHTS: Final = 1000
"""The kernel's weight of a link decides between equals: it is less."""
_FARTHEST: Final = (_NO_LINK + _OTHER_NUMA + 1) * _WEIGHTS


class Fabric:
    """How near GPUs are to each other. Never changes."""

    def __init__(self, found: Found, sysfs: Sysfs) -> None:
        first = {unit.gpu.address: unit.node for unit in reversed(found.units)}
        links = {address: kfd.links(sysfs, node) if node else {} for address, node in first.items()}
        self._scores: dict[frozenset[str], int] = {}
        for one, other in combinations(found.gpus, 2):
            a, b = first.get(one.address), first.get(other.address)
            link = links[one.address].get(b.number) if a and b else None
            in_hive = bool(a and b and a.get("hive_id") == b.get("hive_id") != 0)
            key = frozenset({one.address, other.address})
            self._scores[key] = _FARTHEST - _distance(one, other, link, in_hive=in_hive)

    def score(self, one: str, other: str) -> int:
        """Return how near two GPUs are, by address; 0 where nothing is known of one."""
        return self._scores.get(frozenset({one, other}), 0)


def _distance(one: Gpu, other: Gpu, link: kfd.Link | None, *, in_hive: bool) -> int:
    kind = _XGMI if in_hive or (link and link.is_xgmi) else _PCIE if link else _NO_LINK
    numa = _SAME_NUMA if one.numa == other.numa else _OTHER_NUMA
    weight = min(link.weight, _WEIGHTS - 1) if link else _WEIGHTS - 1
    return (kind + numa) * _WEIGHTS + weight


@dataclass(frozen=True, slots=True)
class Place:
    """What a device is of."""

    resource: str
    gpu: str
    unit: str


class Placement:
    """What to prefer among the devices of a look. Never changes, so it can be asked in an RPC.

    Args:
        fabric: How near GPUs are.
        places: What each device is of, by id, in order.
        policy: Whose share is given next.
    """

    def __init__(
        self, fabric: Fabric | None, places: Mapping[str, Place], policy: Policy = "spread"
    ) -> None:
        self._fabric = fabric
        self._places = places
        self._policy: Policy = policy

    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> list[dp.Device]:
        """Return the devices that go together best.

        Shares go by the policy. Partitions are of as few GPUs as can be, and these near to each
        other; whole GPUs are near to each other.
        """
        known = {device.id: device for device in (*available, *required)}
        places = {one: self._places.get(one) or Place("", one, one) for one in known}
        if any(place.unit != one for one, place in places.items()):
            return self._shares(places.values()).prefer(available, required, size)
        ids, needed = list(known), [device.id for device in required]
        if len({place.gpu for place in places.values()}) == len(ids):
            near = lambda one, other: self._score(places[one].gpu, places[other].gpu)  # noqa: E731
            chosen = placement.choose(ids, needed, size, near)
        else:
            chosen = placement.choose_by_parent(
                ids, needed, size, parent=lambda one: places[one].gpu, score=self._score
            )
        return [known[one] for one in chosen]

    def _score(self, one: str, other: str) -> int:
        return self._fabric.score(one, other) if self._fabric else 0

    def _shares(self, asked: Iterable[Place]) -> Shares:
        resources = {place.resource for place in asked}
        return Shares(
            {
                one: (place.gpu, place.unit)
                for one, place in self._places.items()
                if place.resource in resources
            },
            self._policy,
        )
