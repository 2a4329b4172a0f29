"""The devices of nodes as the API server has them: node status, and slices and claims of DRA.

Pure functions over objects of anybody, other vendors' too. A resource that a device plugin and a
driver have on one node is counted once, also in the middle of a switch: they are the same devices.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from deviceplugin._config.slices import (
    HELD,
    PART,
    SHARES,
    Counts,
    amount,
    consumption,
    counters,
    newest,
    shares,
    taint,
)
from deviceplugin._inventory.divided import PROFILES, Piece, Profiles, divide, profile_of, total
from deviceplugin.tools._class_names import RESOURCE, WRONG, Names, Object

GROUP: Final = "resource.k8s.io"
API: Final = f"/apis/{GROUP}/v1"
Place = tuple[str, str]
"""A node, empty for devices that are not of one node, and a resource."""
_Pool = tuple[str, str]
"""A driver and the name of a pool."""
_T = TypeVar("_T")


def tolerant(reduce: Callable[[Any], _T]) -> Callable[[Any], _T | None]:
    """Return ``reduce``, but with None for an object that is not as it should be."""

    def read(found: Any) -> _T | None:
        try:
            return reduce(found)
        except WRONG:
            return None

    return read


_RANKS: Final = {"": 0, HELD: 1, "taint": 2}


class _Unit(NamedTuple):
    """What counts as one device: counters that possible parts of it share are one."""

    place: Place
    key: str
    shares: int
    taint: str
    """Why no claim gets it: HELD if a pod of the device plugin has it, ``taint``, or empty."""
    part: Piece | None = None
    """What it takes of counters, if it takes any."""


class Slice(NamedTuple):
    """What is kept of a ResourceSlice."""

    pool: _Pool
    generation: int
    size: int
    """How many slices the pool has in this generation."""
    node: str
    units: Mapping[str, _Unit]
    """By name of the device."""
    counters: Counts


def slice_of(found: Object, names: Names) -> Slice:
    spec = found["spec"]
    driver, node, pool = str(spec["driver"]), str(spec.get("nodeName") or ""), spec["pool"]
    units = {str(one["name"]): _unit(one, driver, node, names) for one in spec.get("devices") or ()}
    sizes = int(pool["generation"]), int(pool["resourceSliceCount"])
    return Slice((driver, str(pool["name"])), *sizes, node, units, counters(spec))


def _unit(device: Object, driver: str, node: str, names: Names) -> _Unit:
    attributes, name = device.get("attributes") or {}, str(device["name"])
    place = node or str(device.get("nodeName") or ""), names.of(driver, attributes)
    consumes, groups = consumption(device)
    sets = (f"/{one['counterSet']}" for one in device.get("consumesCounters") or ())
    why, part = taint(device, driver), None
    if consumes:
        profile = profile_in_slice(attributes)
        part = Piece(name, profile, consumes, groups, held=why == HELD, usable=not why)
    return _Unit(place, min(sets, default=name), shares(device), why, part)


def profile_in_slice(attributes: Mapping[str, Any]) -> str:
    """Return the profile of a device in a slice, which may not say whether it is a whole."""
    plain = {name.rpartition("/")[2]: value for name, value in attributes.items()}
    known: dict[str, object] = {one: plain[one].get("string") for one in PROFILES if one in plain}
    is_part = str(plain.get("resource", {}).get("string")).endswith(PART)
    return profile_of(known, on_demand=is_part or any(known.values()))


class Claimed(NamedTuple):
    """A device that a claim holds."""

    pool: _Pool
    device: str
    shares: int
    place: Place
    """As far as the claim says it, for a device that is in no slice."""


def claimed_by(found: Object, names: Names) -> list[Claimed]:
    """Return what a ResourceClaim holds. Admin access holds nothing."""
    allocation = (found.get("status") or {}).get("allocation") or {}
    node = _node_of(allocation)
    classes = _classes_of(found["spec"])
    return [
        Claimed(
            pool := (str(one["driver"]), str(one["pool"])),
            str(one["device"]),
            amount((one.get("consumedCapacity") or {}).get(SHARES)),
            (node, names.by_class.get(classes.get(one["request"], "")) or _by_pool(pool, node)),
        )
        for one in (allocation.get("devices") or {}).get("results") or ()
        if not one.get("adminAccess")
    ]


def _node_of(allocation: Object) -> str:
    with suppress(*WRONG):
        (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
        (match,) = term["matchFields"]
        (name,) = match["values"]
        return str(name)
    return ""


def _classes_of(spec: Object) -> dict[str, str]:
    """Return the DeviceClass of each request, by its name in results."""
    found = {}
    for one in (spec.get("devices") or {}).get("requests") or ():
        found[one["name"]] = (one.get("exactly") or {}).get("deviceClassName", "")
        for each in one.get("firstAvailable") or ():
            found[f"{one['name']}/{each['name']}"] = each.get("deviceClassName", "")
    return found


def _by_pool(pool: _Pool, node: str) -> str:
    """Return the resource in the name of a pool, as this product writes it, or the driver."""
    own = pool[1].removeprefix(f"{node}/")
    return own if own != pool[1] and RESOURCE.fullmatch(own) else pool[0]


@dataclass(slots=True)
class _InSlices:
    """What drivers offer of one resource on one node."""

    total: int = 0
    healthy: int = 0
    withheld: int = 0
    """Devices that no claim gets, for pods of a device plugin may have them."""
    held: int = 0
    lost: int = 0
    """Devices that claims hold and that are in no slice, such as after a switch back."""
    drivers: set[str] = field(default_factory=set[str])
    problems: list[str] = field(default_factory=list[str])
    profiles: Profiles = field(default_factory=dict)

    def add(self, driver: str, unit: _Unit) -> None:
        self.drivers.add(driver)
        self.total += unit.shares
        self.healthy += 0 if unit.taint else unit.shares
        self.withheld += unit.shares if unit.taint == HELD else 0


_Named = dict[tuple[_Pool, str], _Unit]


def _in_slices(slices: Iterable[Slice], claims: Iterable[Claimed]) -> dict[Place, _InSlices]:
    found: dict[Place, _InSlices] = defaultdict(_InSlices)
    devices, uncounted = _Named(), _Named()
    complete: list[Sequence[Slice]] = []
    for parts, is_complete in newest(slices):
        names = {(one.pool, name): unit for one in parts for name, unit in one.units.items()}
        if is_complete:
            devices |= names
            complete.append(parts)
        else:
            uncounted |= names
            _note_incomplete(parts, {unit.place for unit in names.values()}, found)
    claims = list(claims)
    _count_units(devices, uncounted, claims, found)
    _count_parts(complete, {(one.pool, one.device) for one in claims}, found)
    return found


def _count_units(
    devices: _Named,
    uncounted: _Named,
    claims: Iterable[Claimed],
    found: Mapping[Place, _InSlices],
) -> None:
    units: dict[tuple[_Pool, Place, str], _Unit] = {}
    for (pool, _), unit in devices.items():
        key = pool, unit.place, unit.key
        units[key] = min(units.get(key, unit), unit, key=lambda one: _RANKS[one.taint])
    for (pool, place, _), unit in units.items():
        found[place].add(pool[0], unit)
    held: Counter[tuple[_Pool, Place, str]] = Counter()
    for one in claims:
        name = one.pool, one.device
        if name in devices:
            held[one.pool, devices[name].place, devices[name].key] += one.shares
        else:
            found[uncounted[name].place if name in uncounted else one.place].lost += one.shares
    for at, count in held.items():
        found[at[1]].held += min(count, units[at].shares)


def _count_parts(
    pools: Iterable[Sequence[Slice]],
    taken: Collection[tuple[_Pool, str]],
    found: Mapping[Place, _InSlices],
) -> None:
    """Count the parts of ``pools``, of which claims have those in ``taken``."""
    for slices in pools:
        amounts = {name: amount for one in slices for name, amount in one.counters.items()}
        sets: dict[tuple[Place, str], list[Piece]] = {}
        for one in slices if amounts else ():
            for name, unit in one.units.items():
                if part := unit.part:
                    is_held = part.held or (one.pool, name) in taken
                    sets.setdefault((unit.place, unit.key), []).append(part._replace(held=is_held))
        for (place, _), pieces in sets.items():
            own = {name: amounts.get(name, 0) for one in pieces for name in one.consumes}
            found[place].profiles = total([found[place].profiles, divide(own, pieces)])


def _note_incomplete(
    parts: Sequence[Slice], places: Collection[Place], found: Mapping[Place, _InSlices]
) -> None:
    one = parts[0]
    driver, name = one.pool
    for place in places or {(one.node, _by_pool(one.pool, one.node))}:
        text = f"pool {name} of {driver} is incomplete: {len(parts)} of {one.size} slices"
        found[place].problems.append(text)
        found[place].drivers.add(driver)


class Count(NamedTuple):
    """The devices of one resource on one node, or on none in particular."""

    total: int
    healthy: int
    """How many work and can be given out, whoever holds them."""
    held: int | None
    """How many pods and claims have; None if that is unknown."""
    drivers: Sequence[str] = ()
    """The DRA drivers that offer some."""
    problem: str = ""
    """Why what drivers offer is not known; empty if it is."""
    profiles: Profiles = {}  # noqa: RUF012 - never changed
    """The parts that can be made of some, by profile."""


def count(
    status: Mapping[Place, tuple[int, int]],
    pods: Mapping[Place, int] | None,
    slices: Iterable[Slice],
    claims: Iterable[Claimed] | None,
) -> dict[Place, Count]:
    """Return what there is of each resource on each node.

    ``status`` has capacity and allocatable of nodes; ``pods`` what pods hold of that, without what
    they have through DRA. None of these means that it is unknown.
    """
    found = _in_slices(slices, claims or ())
    counts = {}
    for place in [*status, *(one for one in found if one not in status)]:
        total, healthy = status.get(place, (0, 0))
        dra = found.get(place) or _InSlices()
        own = None if pods is None else pods.get(place, 0)
        # Device plugins list a device as unhealthy while a claim may have it, and slices have it as
        # held while a pod may: whoever has it, it works.
        withheld = dra.withheld if own is None else min(dra.withheld, own)
        total_now = max(total, dra.total)
        healthy = min(total_now, max(min(total, healthy + dra.lost), dra.healthy + withheld))
        held = own if claims is not None or not dra.drivers else None
        counts[place] = Count(
            total_now,
            healthy,
            None if held is None else held + dra.held + dra.lost,
            sorted(dra.drivers),
            "; ".join(dra.problems),
            dra.profiles,
        )
    return counts
