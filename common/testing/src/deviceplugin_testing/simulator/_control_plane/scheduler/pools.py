"""The devices that a node's slices offer, in the order in which the scheduler takes them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.quantities import amount, in_binary

_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})


class DeviceKey(NamedTuple):
    """A device, as allocations name it."""

    driver: str
    pool: str
    device: str


class Offer(NamedTuple):
    key: DeviceKey
    device: Object


class Pool(NamedTuple):
    """A pool whose devices can be allocated."""

    offered: list[Object]
    """Its devices for the node, in order."""
    devices: list[Object]
    """All of them, those for other nodes and those that are not offered, too."""
    counters: Mapping[tuple[str, str], Fraction]
    """How much there is of each, by the names of its set and itself."""


class Pools(NamedTuple):
    offers: list[Offer]
    """By driver, pool, the name of the slice and the order of the devices."""
    by_key: Mapping[tuple[str, str], Pool]
    """Those that the offers are of, by driver and name."""
    problems: frozenset[str]
    """Whether a pool is ``incomplete`` or ``invalid``. No device is taken from such a pool."""


def pools_of(slices: Iterable[Object], node: str, *, counters: bool = True) -> Pools:
    """Return what ``slices`` offer on ``node``. Only the highest generation of a pool counts.

    Without ``counters``, no device that consumes any is offered.
    """
    by_pool: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for one in slices:
        by_pool[one["spec"]["driver"], one["spec"]["pool"]["name"]].append(one)
    offers: list[Offer] = []
    found: dict[tuple[str, str], Pool] = {}
    problems: set[str] = set()
    for key, several in sorted(by_pool.items()):
        try:
            pool = found[key] = _pool(several, node, counters=counters)
        except _PoolError as error:
            problems.add(str(error))
        else:
            offers += [Offer(DeviceKey(*key, one["name"]), one) for one in pool.offered]
    return Pools(offers, found, frozenset(problems))


class _PoolError(Exception):
    pass


def _pool(slices: list[Object], node: str, *, counters: bool) -> Pool:
    here = _newest([one for one in slices if _is_for(one["spec"], node, counters=counters)])
    count = here[0]["spec"]["pool"]["resourceSliceCount"] if here else 0
    whole = here
    if len(here) != count:
        whole = _newest(slices)
        if _generation(whole[0]) > _generation(here[0]):
            return Pool([], [], {})  # the driver is replacing it
        if len(whole) != count:
            raise _PoolError("incomplete")
    devices, every = [*_items(here, "devices")], [*_items(whole, "devices")]
    sets = [*_items(whole, "sharedCounters")] if counters else []
    amounts = _amounts(sets, "name")
    consumed = (name for one in every for name in consumption(one))
    is_unknown = counters and any(name not in amounts for name in consumed)
    if is_unknown or _repeats(devices) or _repeats(sets):
        raise _PoolError("invalid")
    return Pool([one for one in devices if _is_offered(one, counters=counters)], every, amounts)


def _is_for(spec: Object, node: str, *, counters: bool) -> bool:
    """Return whether a slice counts for ``node``. Counters do for all, wherever devices are."""
    if "sharedCounters" in spec:
        return counters
    return bool(spec.get("nodeName") == node or spec.get("allNodes"))


def _is_offered(device: Object, *, counters: bool) -> bool:
    if device.get("bindingConditions"):
        return False  # they are not simulated
    return counters or not device.get("consumesCounters")


def _generation(one: Object) -> int:
    return int(one["spec"]["pool"]["generation"])


def _newest(slices: list[Object]) -> list[Object]:
    newest = max(map(_generation, slices), default=0)
    current = [one for one in slices if _generation(one) == newest]
    return sorted(current, key=lambda one: one["metadata"]["name"])


def _items(slices: list[Object], field: str) -> Iterator[Object]:
    for one in slices:
        yield from one["spec"].get(field, ())


def _repeats(several: Iterable[Object]) -> bool:
    return any(count > 1 for count in Counter(one["name"] for one in several).values())


def consumption(device: Object) -> dict[tuple[str, str], Fraction]:
    """Return what a device consumes of counters, each by the names of its set and itself."""
    return _amounts(device.get("consumesCounters", ()), "counterSet")


def _amounts(sets: Iterable[Object], key: str) -> dict[tuple[str, str], Fraction]:
    return {
        (one[key], name): amount(counter["value"])
        for one in sets
        for name, counter in one["counters"].items()
    }


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
