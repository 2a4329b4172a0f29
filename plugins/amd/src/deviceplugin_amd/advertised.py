"""Which units are advertised and in how many shares, which a container should get, and labels."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

import deviceplugin as dp
from deviceplugin.kit import numa, pieces, placement, sharing
from deviceplugin.kit.labels import clean, key
from deviceplugin.kit.selection import Selection
from deviceplugin.kit.sharing import Policy, Shares
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import described, kfd
from deviceplugin_amd.gpus import DRIVER, Gpu, names
from deviceplugin_amd.settings import DOMAIN, AmdSettings
from deviceplugin_amd.snapshot import Snapshot, Unit

KFD_NODE: Final = "kfd"

_XGMI: Final = 10
_PCIE: Final = 40
_NO_LINK: Final = 50
_SAME_NUMA: Final = 10
_OTHER_NUMA: Final = 20
"""Distances as in AMD's plugin; the distance of two GPUs is the sum."""
_WEIGHTS: Final = 1000
"""More than the kernel's weight of any link, which decides between equal distances."""
_FARTHEST: Final = (_NO_LINK + _OTHER_NUMA + 1) * _WEIGHTS
_OLD_DOMAIN: Final = "beta.amd.com"


@dataclass(frozen=True, slots=True)
class AdvertisedUnit:
    """A unit and its devices: one for each share, or just one."""

    unit: Unit
    devices: tuple[dp.Device, ...]
    amounts: Mapping[str, int]
    """What the unit has of memory, and to compute with."""


def shortfalls(snapshot: Snapshot, settings: AmdSettings) -> Iterator[str]:
    """Yield why GPUs of the node are not advertised, after ``chosen``."""
    selection = Selection(settings.include, settings.exclude)
    yield from selection.shortfalls(gpu.names for gpu in snapshot.gpus)
    for address, reason in snapshot.skipped.items():
        yield f"{address}: {reason}"
    for card in snapshot.waiting:
        if selection.has(names(card)):
            yield f"{card.address}: has no driver: dmesg | grep -i amdgpu"
    for card in snapshot.foreign:
        if selection.has(names(card)):
            yield f"{card.address}: its driver is {card.driver}, not {DRIVER}"


def chosen(snapshot: Snapshot, settings: AmdSettings) -> list[Unit]:
    """Return the units to advertise; ``snapshot.skipped`` gets the reason why others are not.

    A resource name stands for one kind of device: whole GPUs, or partitions of one style.
    """
    selection = Selection(settings.include, settings.exclude)
    units = [unit for unit in snapshot.units if selection.has(unit.gpu.names)]
    if settings.resource_naming_strategy == "single":
        units = _of_one_kind(units, snapshot)
    return _with_room(units, snapshot, settings)


def _of_one_kind(units: Sequence[Unit], snapshot: Snapshot) -> list[Unit]:
    counts = Counter(_kind(gpu) for gpu in {unit.gpu for unit in units})
    most = min(counts, key=lambda kind: (-counts[kind], kind), default="")
    others = [unit for unit in units if unit.gpu.address not in snapshot.claimed]
    for unit in others:
        if (kind := _kind(unit.gpu)) != most:
            snapshot.skipped[unit.gpu.address] = (
                f"it is {kind}, most are {most}, and resource-naming-strategy is single: use mixed"
            )
    return [unit for unit in units if _kind(unit.gpu) == most or unit not in others]


def _with_room(units: Sequence[Unit], snapshot: Snapshot, settings: AmdSettings) -> list[Unit]:
    """Return the units whose resource is not too long a list for the kubelet."""
    names = {unit.id: _resource(unit, settings) for unit in units}
    refused = sharing.excess(Counter(names.values()), settings.shares)
    snapshot.skipped |= {
        unit.gpu.address: refused[names[unit.id]] for unit in units if names[unit.id] in refused
    }
    return [unit for unit in units if names[unit.id] not in refused]


def offers(
    units: Sequence[Unit],
    health: Mapping[str, dp.Health],
    settings: AmdSettings,
    sysfs: Sysfs,
    known: Mapping[str, Mapping[str, int]],
) -> Iterator[AdvertisedUnit]:
    """Yield an offer for each unit, with its health and ``known`` amounts by id."""
    versions = described.versions(sysfs)
    for unit in units:
        facts = {**described.description(unit), **versions}
        amounts = known.get(unit.id) or described.amounts(unit, sysfs)
        device = _device(unit, health[unit.id], settings)
        device = replace(device, attributes=facts, capacity=amounts)
        yield AdvertisedUnit(unit, tuple(sharing.shares(device, settings.shares)), amounts)


def _device(unit: Unit, health: dp.Health, settings: AmdSettings) -> dp.Device:
    gpu = unit.gpu
    return dp.Device(
        unit.id,
        resource=_resource(unit, settings),
        hardware=hardware(unit, settings.dev_dir),
        health=health,
        topology=numa.topology(gpu.numa),
        nodes=recipe(unit, settings.dev_dir),
    )


def hardware(unit: Unit, dev: Path) -> list[str]:
    """Return the pieces that a unit is: its GPU, and its device nodes."""
    return [pieces.pci(unit.gpu.address), *(str(dev / node) for node in unit.nodes)]


def recipe(unit: Unit, dev: Path) -> list[dp.DeviceNode]:
    """Return the device nodes that a container with a unit has."""
    return [dp.DeviceNode(str(dev / node), f"/dev/{node}") for node in (KFD_NODE, *unit.nodes)]


def _resource(unit: Unit, settings: AmdSettings) -> str:
    style, names = str(unit.gpu.style), settings.resources
    name = style if style and settings.resource_naming_strategy == "mixed" else "gpu"
    if unit.number is None:
        return names.gpu(unit.gpu.names, f"{DOMAIN}/{name}")
    return names.part([style], f"{DOMAIN}/{name}")


def _kind(gpu: Gpu) -> str:
    return "whole" if gpu.style.is_whole else str(gpu.style)


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

    ``fabric`` is None if it is not known how near GPUs are.
    """

    def __init__(
        self, fabric: Fabric | None, offers: Iterable[AdvertisedUnit], policy: Policy = "spread"
    ) -> None:
        self._fabric = fabric
        self._places = {
            device.id: _Place(device.resource, offer.unit.gpu.address, offer.unit.id)
            for offer in offers
            for device in offer.devices
        }
        self._shares = Shares(self._places, policy)

    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> list[dp.Device]:
        """Return the devices that go together best.

        Shares follow the policy. Partitions are of as few GPUs as possible, and GPUs are near.
        """
        known = {device.id: device for device in (*available, *required)}
        places = {one: self._places.get(one, _Place("", one, one)) for one in known}
        if any(place.unit != one for one, place in places.items()):
            return self._shares.prefer(available, required, size)
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


def labels(offers: Sequence[AdvertisedUnit], sysfs: Sysfs) -> dict[str, str]:
    """Return all labels; none without GPUs.

    If all units have the same value, it is the value of a label. Otherwise each value has a label
    with the number of units. The older domain always has these too.
    """
    if not offers:
        return {}
    found = dict(_of_node((offer.unit for offer in offers), sysfs))
    facts: dict[str, list[str]] = {}
    for offer in offers:
        for kind, value in _facts(offer.unit, offer.amounts):
            facts.setdefault(kind, []).append(value)
    for kind, values in facts.items():
        found.update(_counted(kind, values))
    return found


def _of_node(units: Iterable[Unit], sysfs: Sysfs) -> Iterator[tuple[str, str]]:
    for kind, name in described.VERSIONS.items():
        if text := sysfs.text(f"module/{DRIVER}/{name}"):
            yield key(DOMAIN, f"gpu.{kind}"), clean(text)
    gpus = {unit.gpu for unit in units}
    styles = {str(gpu.style) for gpu in gpus}
    if len(styles) == 1 and (style := styles.pop()):
        yield key(DOMAIN, "gpu.compute-memory-partition"), style
    compute, memory = (any(gpu.can_divide[what] for gpu in gpus) for what in (0, 1))
    yield key(DOMAIN, "gpu.compute-partitioning-supported"), str(compute).lower()
    yield key(DOMAIN, "gpu.memory-partitioning-supported"), str(memory).lower()


def _facts(unit: Unit, amounts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    yield "device-id", unit.gpu.product
    if unit.gpu.name:
        yield "product-name", clean(unit.gpu.name, "_")
    if memory := amounts.get("memory"):
        yield "vram", f"{round((memory >> 20) / 1024)}G"
    for kind, name in {"simd-count": "simdUnits", "cu-count": "computeUnits"}.items():
        if name in amounts:
            yield kind, str(amounts[name])


def _counted(kind: str, values: Sequence[str]) -> Iterator[tuple[str, str]]:
    counts = Counter(values)
    name = f"gpu.{kind}"
    for value, count in counts.items():
        yield key(_OLD_DOMAIN, f"{name}.{value}"), str(count)
        if len(counts) > 1:
            yield key(DOMAIN, f"{name}.{value}"), str(count)
    if len(counts) == 1:
        yield key(DOMAIN, name), values[0]
        yield key(_OLD_DOMAIN, name), values[0]
