"""The framework's devices for units, and which of them a container may have and should get."""

from collections.abc import Iterable, Mapping, Sequence
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
_NVLINK: Final = 100
"""Score of an NVLink between two GPUs; more than any path without one."""
_NUMA: Final = 5
"""Score of the same NUMA node; less than a nearer path."""


def describe(
    units: Sequence[Unit],
    health: Mapping[str, dp.Health],
    nodes: Mapping[str, Sequence[dp.DeviceNode]],
    cdi_names: Mapping[str, str],
) -> list[dp.Device]:
    """Return a device for each unit. Device nodes and CDI names are by id, for those with any."""
    return [
        dp.Device(
            unit.id,
            resource=unit.resource,
            share_of="" if unit.replica is None else unit.uuid,
            hardware=_hardware(unit),
            health=health[unit.id],
            topology=numa.topology(unit.gpu.numa),
            nodes=nodes.get(unit.id, ()),
            cdi_names=[cdi_names[unit.id]] if unit.id in cdi_names else (),
            attributes=_attributes(unit),
        )
        for unit in units
    ]


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


def _attributes(unit: Unit) -> dict[str, str | int]:
    gpu, mig = unit.gpu, unit.mig
    attributes = {
        "index": unit.index,
        "model": gpu.name,
        "profile": mig.profile if mig else "",
        "memory": size(mig.memory if mig else gpu.memory),
        "pci": gpu.pci,
        "parentUUID": gpu.uuid if mig else "",
    }
    found: dict[str, str | int] = {name: value for name, value in attributes.items() if value}
    if gpu.license:
        found["vgpuLicensed"] = gpu.license.licensed
    if mig and mig.placement:
        start, count = mig.placement
        found |= {"placementStart": start, "placementSize": count}
    return found


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
        self._policy = policy
        self._distinct = distinct

    def prefer(self, available: Iterable[str], required: Iterable[str], size: int) -> list[str]:
        """Return ``size`` of ``available``, with all of ``required`` among them.

        The same request has the same result, in whatever order. If too few are available, all of
        them are returned; if more are required than ``size``, the required ones. Unknown ids count
        as far from everything.
        """
        needed = {*required}
        free = sorted((self._unit(one) for one in needed.union(available)), key=_order)
        size = min(max(size, len(needed)), len(free))
        if all(unit.mig is None and unit.replica is None for unit in free):
            return choose([unit.uuid for unit in free], needed, size, self._score)
        return self._shares(free).choose([unit.id for unit in free], needed, size)

    def _score(self, a: str, b: str) -> int:
        return self._nearness.get((a, b), 0)

    def _unit(self, device_id: str) -> Unit:
        return self._units.get(device_id) or Unit("", Gpu(len(self._units), device_id))

    def _shares(self, free: Iterable[Unit]) -> Shares:
        """Return the parents of all units, used or not, of the resources of ``free``."""
        resources = {unit.resource for unit in free}
        own = [unit for unit in self._units.values() if unit.resource in resources]
        places = {unit.id: _parents(unit) for unit in sorted([*own, *free], key=_order)}
        return Shares(places, _POLICIES[self._policy], distinct=self._distinct)


def _parents(unit: Unit) -> tuple[str, ...]:
    return (unit.gpu.uuid, unit.mig.uuid) if unit.mig else (unit.gpu.uuid,)


def _order(unit: Unit) -> tuple[int, int, int, str]:
    return unit.key


def _score(a: Gpu, b: Gpu, link: Link | None) -> int:
    together = a.numa is not None and a.numa == b.numa
    if link is None:
        link = Link(Nearness.NODE if together else Nearness.SYSTEM)
    return _NVLINK * link.nvlinks + link.path + (_NUMA if together else 0)
