"""The devices that a node's slices offer, in the order in which the scheduler takes them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import Object

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})


_NOT_SIMULATED: Final = ("consumesCounters", "bindingConditions")
"""Fields of devices that the scheduler here does not offer: it could not keep what they say."""


class DeviceKey(NamedTuple):
    """A device, as allocations name it."""

    driver: str
    pool: str
    device: str


class Offer(NamedTuple):
    """A device of a complete pool."""

    key: DeviceKey
    device: Object


class Pools(NamedTuple):
    """What a node's slices offer."""

    offers: list[Offer]
    """By pool name, slice name and the order of the devices."""
    incomplete: bool
    """Whether a pool has less slices than it says. No device is taken from it."""


def pools_of(slices: Iterable[Object], node: str) -> Pools:
    """Return what ``slices`` offer on ``node``. Only the highest generation of a pool counts."""
    by_pool: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for one in slices:
        spec = one["spec"]
        if spec.get("nodeName") == node or spec.get("allNodes"):
            by_pool[spec["driver"], spec["pool"]["name"]].append(one)
    offers: list[Offer] = []
    incomplete = False
    for (driver, pool), found in sorted(by_pool.items(), key=lambda one: one[0][::-1]):
        newest = max(one["spec"]["pool"]["generation"] for one in found)
        current = [one for one in found if one["spec"]["pool"]["generation"] == newest]
        if len(current) != current[0]["spec"]["pool"]["resourceSliceCount"]:
            incomplete = True
            continue
        devices = [*_devices(current)]
        if len({device["name"] for device in devices}) == len(devices):  # or the pool is invalid
            offers += [
                Offer(DeviceKey(driver, pool, one["name"]), one)
                for one in devices
                if not any(one.get(field) for field in _NOT_SIMULATED)
            ]
    return Pools(offers, incomplete)


def _devices(slices: list[Object]) -> Iterator[Object]:
    for one in sorted(slices, key=lambda one: one["metadata"]["name"]):
        yield from one["spec"].get("devices", ())


def untolerated(
    taints: Iterable[Object], tolerations: Iterable[Object], effects: Iterable[str] = _BLOCKING
) -> list[Object]:
    """Return the taints of one of ``effects`` that no toleration is for."""
    tolerations = [*tolerations]
    return [
        taint
        for taint in taints
        if taint["effect"] in effects and not any(tolerates(one, taint) for one in tolerations)
    ]


def tolerates(toleration: Object, taint: Object) -> bool:
    """Return whether ``toleration`` is for ``taint``, of a node or of a device."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    exists = toleration.get("operator") == "Exists"
    return exists or toleration.get("value", "") == taint.get("value", "")
