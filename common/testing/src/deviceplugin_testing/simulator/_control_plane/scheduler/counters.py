"""What is left of the counters that the devices of a pool share, and which go together on them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.scheduler.pools import (
    DeviceKey,
    Offer,
    Pools,
    consumption,
)

Groups = Mapping[str, Iterable[str]]
"""The compatibility groups of a device, by counter set."""


def groups_of(device: Object) -> Groups:
    """Return the groups that a device has on each counter set that it consumes of."""
    several = device.get("consumesCounters", ())
    return {one["counterSet"]: one.get("compatibilityGroups", ()) for one in several}


class Ledger:
    """The counters of all pools, while devices are looked for.

    ``allocated`` are the devices of claims, with the groups that they had then; what is in no slice
    any more consumes nothing. As in Kubernetes 1.36, pools of one name share their counters even if
    they are of two drivers, and nothing is left of a pool while any of its counters is exceeded.
    Without ``groups``, no device with compatibility groups goes with any other.
    """

    def __init__(
        self, pools: Pools, allocated: Mapping[DeviceKey, Groups], *, groups: bool
    ) -> None:
        self._pools = pools
        self._allocated = allocated
        self._has_groups = groups
        self._left: dict[str, dict[tuple[str, str], Fraction]] = {}
        self._taken: defaultdict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
        self._groups: dict[tuple[str, str], dict[str, list[frozenset[str]]]] = {}

    def take(self, offer: Offer) -> bool:
        """Take what a device consumes, if it can be beside the others; return whether it can."""
        key, beside = offer.key, self._beside(offer.key)
        for name, own in groups_of(offer.device).items():
            several = [frozenset(own), *beside.get(name, ())]
            if any(several) and not (self._has_groups and frozenset.intersection(*several)):
                return False
        if key.pool not in self._left:
            self._left[key.pool] = self._left_in(key)
        self._count(offer, 1)
        for name, own in groups_of(offer.device).items():
            beside[name].append(frozenset(own))
        if all(self._taken[key.pool, *name] <= left for name, left in self._left[key.pool].items()):
            return True
        self.give_back(offer)
        return False

    def give_back(self, offer: Offer) -> None:
        """Undo what ``take`` did."""
        self._count(offer, -1)
        for name, own in groups_of(offer.device).items():
            self._beside(offer.key)[name].remove(frozenset(own))

    def _count(self, offer: Offer, sign: int) -> None:
        for name, much in consumption(offer.device).items():
            self._taken[offer.key.pool, *name] += sign * much

    def _left_in(self, key: DeviceKey) -> dict[tuple[str, str], Fraction]:
        pool = self._pools.by_key[key[:2]]
        left = dict(pool.counters)
        for device in pool.devices:
            if key._replace(device=device["name"]) in self._allocated:
                for name, much in consumption(device).items():
                    left[name] -= much
        return left

    def _beside(self, key: DeviceKey) -> dict[str, list[frozenset[str]]]:
        """Return the groups of all that consume of the counter sets of the pool of ``key``."""
        place = key[:2]
        if place not in self._groups:
            found: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
            now = {one["name"]: groups_of(one) for one in self._pools.by_key[place].devices}
            for other, then in self._allocated.items():
                for name in {**now.get(other.device, {}), **then} if other[:2] == place else ():
                    found[name].append(frozenset(then.get(name, ())))
            self._groups[place] = found
        return self._groups[place]
