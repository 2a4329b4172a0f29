"""The framework's devices for units, and which of them a container may have and should get."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Final, Literal

import deviceplugin as dp
from deviceplugin.kit import numa, sharing
from deviceplugin.kit.placement import choose
from deviceplugin.kit.sharing import Shares
from deviceplugin_gpu.advertised.units import Unit
from deviceplugin_gpu.configuration.settings import GpuSettings
from deviceplugin_gpu.snapshot import Gpu, Link, Nearness, Snapshot, size

Policy = Literal["distributed", "packed"]
_POLICIES: Final[Mapping[Policy, sharing.Policy]] = {"distributed": "spread", "packed": "packed"}
_MOST: Final = 1 << 63
_NO_PARTS: Final[Mapping[str, dp.Part]] = {}
_KNOWN: Final = (("GPU-", "MIG-"), ("MIG-",))
"""How the UUIDs of devices begin, and of those that are not made yet, whose id is another."""
_NVLINK: Final = 100
"""Score of an NVLink between two GPUs; more than any path without one."""
_NUMA: Final = 5
"""Score of the same NUMA node; less than a nearer path."""


@dataclass(frozen=True, slots=True)
class Divided:
    """GPUs of which parts can be made for claims. By default there are none."""

    snapshot: Snapshot
    """Without the MIG devices of claims, and without GPUs that cannot be given as a whole."""
    planned: Mapping[str, Unit] = field(default_factory=dict)
    """The parts, made or not, by id."""
    described: Mapping[str, dp.Part] = field(default_factory=dict)
    """What they and the whole GPUs take, by id."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why parts or whole GPUs cannot be used, by their UUID or id."""
    warnings: tuple[str, ...] = ()


def with_problems(
    health: Mapping[str, dp.Health], units: Iterable[Unit], problems: Mapping[str, str]
) -> dict[str, dp.Health]:
    """Return ``health`` by id, with ``problems`` of GPUs and parts that are otherwise healthy."""
    own = {unit.id: problems[unit.uuid] for unit in units if unit.uuid in problems}
    return {**health, **{one: dp.Health.unhealthy(own[one]) for one in own if health[one]}}


def refuse_divided(units: Iterable[Unit], divided: Collection[str]) -> None:
    """Raise AllocationError if a whole GPU is divided now."""
    for unit in units:
        if unit.mig is None and unit.gpu.uuid in divided:
            raise dp.AllocationError(f"GPU {unit.gpu.uuid} is divided: MIG is on for its parts")


def describe(
    units: Sequence[Unit],
    health: Mapping[str, dp.Health],
    nodes: Mapping[str, Sequence[dp.DeviceNode]],
    cdi_names: Mapping[str, str],
    snapshot: Snapshot,
    parts: Mapping[str, dp.Part] = _NO_PARTS,
) -> list[dp.Device]:
    """Return a device for each unit. All but health is by id for those that have it."""
    found: list[dp.Device] = []
    first: dict[str, dp.Device] = {}
    for unit in units:
        if (device := first.get(unit.uuid)) is None:
            device = first[unit.uuid] = dp.Device(
                unit.id,
                resource=unit.resource,
                share_of="" if unit.replica is None else unit.uuid,
                hardware=_hardware(unit),
                health=health[unit.id],
                topology=numa.topology(unit.gpu.numa),
                nodes=nodes.get(unit.id, ()),
                cdi_names=[cdi_names[unit.id]] if unit.id in cdi_names else (),
                attributes=_attributes(unit, snapshot),
                capacity=_capacity(unit),
                part=parts.get(unit.id),
            )
        found.append(replace(device, id=unit.id, health=health[unit.id]))  # MPS serves some shares
    return found


def _hardware(unit: Unit) -> list[str]:
    """Return what the unit is: a GPU is also its MIG devices, but these are not the GPU."""
    if unit.mig:
        return [unit.uuid]
    return [unit.gpu.uuid, *(mig.uuid for mig in unit.gpu.migs)]


def refuse(units: Sequence[Unit], settings: GpuSettings) -> None:
    """Raise AllocationError if one container may not have these replicas."""
    if all(unit.replica is None for unit in units):
        return
    if settings.sharing.one_at_most and len(units) > 1:
        raise dp.AllocationError(
            f"{len(units)} devices requested, but more than 1 of a shared resource gives no "
            "more computing power: request 1 (failRequestsGreaterThanOne)"
        )
    gpus = {unit.gpu.uuid for unit in units}
    if settings.distinct_gpus and len(gpus) < len(units):
        raise dp.AllocationError(
            f"{len(units)} devices requested are of {len(gpus)} different GPUs (distinct-gpus)"
        )


def _attributes(unit: Unit, snapshot: Snapshot) -> dict[str, str | int]:
    """Return facts, by the names and types of NVIDIA's DRA driver where it has them."""
    gpu, mig = unit.gpu, unit.mig
    start, count = (mig.placement if mig else None) or (None, None)
    found: dict[str, str | int | None] = {
        "index": None if unit.is_planned else unit.index if mig else gpu.index,
        "model": gpu.name,  # an earlier name, as is the string of the memory
        "profile": mig.profile if mig else "",
        "memory": size(mig.memory if mig else gpu.memory),
        "pci": gpu.pci,
        "parentUUID": gpu.uuid if mig else "",
        "placementStart": start,
        "placementSize": count,
        "architecture": gpu.family.replace("-", " ").title(),
        "cudaComputeCapability": _version(gpu.compute),
        "driverVersion": dp.Version(snapshot.driver),
        "cudaDriverVersion": _version(snapshot.cuda),
        "type": "mig" if mig else "gpu",
        "uuid": unit.uuid if unit.uuid.startswith(_KNOWN[unit.is_planned]) else None,
        "minor": None if mig else gpu.minor,
        "productName": gpu.name,
        "brand": gpu.brand,
        "addressingMode": gpu.addressing,
        "nvlinkPeers": _peers(gpu, snapshot) if gpu.pci and not mig else None,
        "vgpuLicensed": gpu.license.licensed if gpu.license else None,
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _version(numbers: tuple[int, int]) -> dp.Version:
    return dp.Version(".".join(map(str, numbers)) if any(numbers) else "")


def _peers(gpu: Gpu, snapshot: Snapshot) -> int | None:
    """Return how many GPUs of the node it has NVLinks to; None if not all are known."""
    others = [one.uuid for one in snapshot.gpus if one.uuid != gpu.uuid]
    links = [snapshot.links.get((gpu.uuid, one)) for one in others]
    return None if None in links else sum(bool(link and link.nvlinks) for link in links)


def _capacity(unit: Unit) -> dict[str, int]:
    """Return what is known. With an amount that has no place in 63 bits a device is not valid."""
    if unit.mig is None:
        found = {"memory": unit.gpu.memory, "cores": unit.gpu.cores}
        return {name: amount for name, amount in found.items() if 0 < amount < _MOST}
    found = {"memory": unit.mig.memory, "multiprocessors": unit.mig.multiprocessors}
    for kind, count in unit.mig.engines.items():
        found[f"{kind}s" if kind.endswith("coder") else f"{kind}Engines"] = count
    return found if unit.mig.engines and max(found.values()) < _MOST else {}


def nearness(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """Return how near GPUs are to each other, as numbers, by the UUIDs of two."""
    pairs = permutations(snapshot.gpus, 2)
    return {(a.uuid, b.uuid): _score(a, b, snapshot.links.get((a.uuid, b.uuid))) for a, b in pairs}


class Placement:
    """Which of ``units`` to prefer. It is immutable, and so thread-safe.

    Whole GPUs that are not shared are chosen by how near they are to each other. All others are
    chosen by ``policy``. ``distributed`` takes from the GPUs with the fewest used units, each from
    another GPU if possible. ``packed`` takes from those with the most; with ``distinct``, each from
    another GPU too.
    """

    def __init__(
        self, snapshot: Snapshot, units: Iterable[Unit], policy: Policy, *, distinct: bool = False
    ) -> None:
        self._nearness = nearness(snapshot)
        self._units = {unit.id: unit for unit in units}
        places = {one: (unit.resource, *_parents(unit)) for one, unit in self._units.items()}
        self._shares = Shares(places, _POLICIES[policy], distinct=distinct)

    def prefer(self, available: Iterable[str], required: Iterable[str], size: int) -> list[str]:
        """Return ``size`` of ``available``, with all of ``required`` among them.

        The same request has the same result, in whatever order. If too few are available, all of
        them are returned; if more are required than ``size``, the required ones. Unknown ids count
        as far from everything.
        """
        needed = {*required}
        asked = needed.union(available)
        known = [unit for one in asked if (unit := self._units.get(one))]
        if any(unit.mig or unit.replica is not None for unit in known):
            return self._shares.choose(asked, needed, size)
        free = sorted(asked, key=self._order)
        size = min(max(size, len(needed)), len(free))
        return choose(free, needed, size, self._score)

    def _score(self, a: str, b: str) -> int:
        return self._nearness.get((a, b), 0)

    def _order(self, device_id: str) -> tuple[int, int, int, str]:
        unit = self._units.get(device_id)
        return unit.key if unit else (len(self._units), -1, -1, device_id)


def _parents(unit: Unit) -> tuple[str, ...]:
    return (unit.gpu.uuid, unit.mig.uuid) if unit.mig else (unit.gpu.uuid,)


def _score(a: Gpu, b: Gpu, link: Link | None) -> int:
    together = a.numa is not None and a.numa == b.numa
    if link is None:
        link = Link(Nearness.NODE if together else Nearness.SYSTEM)
    return _NVLINK * link.nvlinks + link.path + (_NUMA if together else 0)
