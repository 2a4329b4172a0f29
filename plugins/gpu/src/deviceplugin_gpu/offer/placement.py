"""Which of the free GPUs, MIG devices or replicas a container should get.

Made anew after each discovery, ``Placement(snapshot, units, policy)``, and asked from memory in
an RPC: ``placement.prefer(available, required, size)`` takes and returns the kubelet's ids.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from deviceplugin_gpu.offer.group_search import Group, best_group
from deviceplugin_gpu.offer.resources import Unit
from deviceplugin_gpu.snapshot import Gpu, Link, Path, Snapshot

Policy = Literal["distributed", "packed"]

_NVLINK: Final = 100
"""What an NVLink between two GPUs is worth; more than any path without one."""
_NUMA: Final = 5
"""What the same NUMA node is worth; less than a nearer path."""


class Fabric:
    """How near all GPUs are to each other, as numbers."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._scores = {
            (a.uuid, b.uuid): _score(a, b, snapshot.links.get((a.uuid, b.uuid)))
            for a in snapshot.gpus
            for b in snapshot.gpus
            if a.uuid != b.uuid
        }

    def choose(self, available: Sequence[str], required: Iterable[str], size: int) -> Group:
        """Return the places in ``available`` of the best group of ``size`` GPUs.

        ``available`` are UUIDs in the order that decides between equals; ``required`` are of them.
        """
        needed = {*required}
        scores = [[self._scores.get((a, b), 0) for b in available] for a in available]
        places = [place for place, uuid in enumerate(available) if uuid in needed]
        return best_group(scores, places, size)


class Placement:
    """What to prefer among ``units``; thread-safe, as nothing changes.

    Whole GPUs that nobody shares are chosen by how near they are to each other, everything else by
    ``policy``: ``distributed`` takes from the GPUs with the fewest used units, each from another
    GPU as long as there are any, ``packed`` from those with the most. ``distinct`` has ``packed``
    take each from another GPU too.
    """

    def __init__(
        self, snapshot: Snapshot, units: Iterable[Unit], policy: Policy, *, distinct: bool = False
    ) -> None:
        self._fabric = Fabric(snapshot)
        self._units = {unit.id: unit for unit in units}
        self._policy = policy
        self._distinct = distinct

    def prefer(self, available: Iterable[str], required: Iterable[str], size: int) -> list[str]:
        """Return ``size`` of ``available``, with all of ``required`` among them.

        Always the same for the same question, whatever its order. Where that cannot be, because
        there are too few or more are required, it is all that are available, or the required ones.
        Ids that nothing is known of count as far from everything.
        """
        needed = {*required}
        free = sorted((self._unit(one) for one in needed.union(available)), key=_order)
        size = min(max(size, len(needed)), len(free))
        if all(unit.mig is None and unit.replica is None for unit in free):
            group = self._fabric.choose([unit.uuid for unit in free], needed, size)
            return [free[place].id for place in group.members]
        chosen = _Shares(self._siblings(free), free, self._policy, distinct=self._distinct)
        return [unit.id for unit in sorted(chosen.take(needed, size), key=_order)]

    def _unit(self, device_id: str) -> Unit:
        return self._units.get(device_id) or Unit("", Gpu(len(self._units), device_id))

    def _siblings(self, free: Iterable[Unit]) -> list[Unit]:
        """Return all units of the resources of ``free``, used or not."""
        resources = {unit.resource for unit in free}
        return [unit for unit in self._units.values() if unit.resource in resources]


def _order(unit: Unit) -> tuple[int, int, int, str]:
    return unit.key


def _score(a: Gpu, b: Gpu, link: Link | None) -> int:
    together = a.numa is not None and a.numa == b.numa
    if link is None:
        link = Link(Path.NODE if together else Path.SYSTEM)
    return _NVLINK * link.nvlinks + link.path + (_NUMA if together else 0)


class _Shares:
    """Units of shared or partitioned GPUs, taken one after the other.

    What is said of GPUs holds of the MIG devices of one GPU too, where these are shared.
    """

    def __init__(
        self, units: Iterable[Unit], free: Iterable[Unit], policy: Policy, *, distinct: bool
    ) -> None:
        self._policy = policy
        self._distinct = distinct
        self._stock: dict[str, dict[str, list[Unit]]] = defaultdict(lambda: defaultdict(list))
        self._used: Counter[str] = Counter()
        self._picked: Counter[str] = Counter()
        for unit in units:
            self._used.update({unit.gpu.uuid, unit.uuid})
        for unit in free:
            self._stock[unit.gpu.uuid][unit.uuid].append(unit)
            self._used.subtract({unit.gpu.uuid, unit.uuid})

    def take(self, required: set[str], size: int) -> list[Unit]:
        """Return ``size`` units, those with the ids ``required`` first."""
        stocks = [stock for devices in self._stock.values() for stock in devices.values()]
        taken = [unit for stock in stocks for unit in stock if unit.id in required]
        for unit in taken:
            self._pick(unit)
        while len(taken) < size:
            need = size - len(taken)
            gpu = self._best({uuid: self._left(uuid) for uuid in self._stock}, need)
            devices = {uuid: len(stock) for uuid, stock in self._stock[gpu].items()}
            unit = self._stock[gpu][self._best(devices, need)][0]
            self._pick(unit)
            taken.append(unit)
        return taken

    def _pick(self, unit: Unit) -> None:
        self._stock[unit.gpu.uuid][unit.uuid].remove(unit)
        self._picked.update({unit.gpu.uuid, unit.uuid})

    def _left(self, gpu: str) -> int:
        return sum(len(stock) for stock in self._stock[gpu].values())

    def _best(self, left: dict[str, int], need: int) -> str:
        """Return the first choice among GPUs, or MIG devices, with so many units ``left``."""
        rank = self._packed if self._policy == "packed" else self._distributed
        return min(
            (uuid for uuid, count in left.items() if count),
            key=lambda uuid: rank(uuid, left[uuid], need),
        )

    def _distributed(self, uuid: str, _left: int, _need: int) -> tuple[int, ...]:
        return self._picked[uuid], self._used[uuid]

    def _packed(self, uuid: str, left: int, need: int) -> tuple[int, ...]:
        """Fill up what is in use; then begin on as few idle ones as can be."""
        again = self._picked[uuid] if self._distinct else 0
        used = self._used[uuid] + self._picked[uuid]
        if used:
            return again, 0, -used, left
        return (again, 1, left) if left >= need else (again, 2, -left)
