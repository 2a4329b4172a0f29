"""The devices that a node's slices offer, in the order in which the scheduler takes them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.quantities import amount, in_binary

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})


_NOT_SIMULATED: Final = ("consumesCounters", "bindingConditions")
"""Fields of devices that the scheduler here does not offer: it could not keep what they say."""


class DeviceKey(NamedTuple):
    """A device, as allocations name it."""

    driver: str
    pool: str
    device: str


class Offer(NamedTuple):
    key: DeviceKey
    device: Object


class Pools(NamedTuple):
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


Amounts = Mapping[str, str]
"""Quantities by the name of a capacity."""


def consumed(device: Object, asked: Amounts, used: Mapping[str, Fraction]) -> Amounts | None:
    """Return what a request for ``asked`` consumes of a device of which others use ``used``.

    None if there is not enough.
    """
    capacities: Mapping[str, Any] = device.get("capacity", {})
    if not asked.keys() <= capacities.keys():
        return None
    found = {name: _consumed(one, asked.get(name)) for name, one in capacities.items()}
    for name, taken in found.items():
        if _violates(taken, capacities[name].get("requestPolicy", {})):
            return None
        if amount(taken) + used.get(name, 0) > amount(capacities[name]["value"]):
            return None
    return found


def total(several: Iterable[Amounts]) -> Mapping[str, Fraction]:
    found: dict[str, Fraction] = defaultdict(Fraction)
    for one in several:
        for name, taken in one.items():
            found[name] += amount(taken)
    return found


def _consumed(capacity: Object, asked: str | None) -> str:
    policy: Mapping[str, Any] = capacity.get("requestPolicy", {})
    if asked is None:
        return str(policy.get("default") or capacity["value"])
    between = policy.get("validRange", {})
    if "min" in between:
        return _in_range(asked, between)
    larger = (one for one in policy.get("validValues", ()) if amount(asked) <= amount(one))
    return next(larger, asked)


def _in_range(asked: str, between: Mapping[str, str]) -> str:
    if amount(asked) < amount(between["min"]):
        return between["min"]
    if "step" not in between:
        return asked
    least, step = ceil(amount(between["min"])), ceil(amount(between["step"]))
    return in_binary(Fraction(least + step * -(-(ceil(amount(asked)) - least) // step)))


def _violates(taken: str, policy: Mapping[str, Any]) -> bool:
    default = policy.get("default")
    if default is not None and amount(taken) == amount(default):
        return False
    if between := policy.get("validRange"):
        if "max" in between and amount(taken) > amount(between["max"]):
            return True
        least, step = ceil(amount(between["min"])), ceil(amount(between.get("step", "1")))
        return bool("step" in between and (ceil(amount(taken)) - least) % step)
    values = policy.get("validValues", ())
    return bool(values) and amount(taken) not in map(amount, values)
