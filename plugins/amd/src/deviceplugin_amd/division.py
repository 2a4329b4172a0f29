"""How a whole GPU can be divided for claims: its partitions, and what they consume of counters.

A GPU is divided in one mode at a time, and counters say so: each partition of a mode but the finest
has a counter of its own, which it consumes whole and of which partitions of finer modes take one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, NamedTuple

import deviceplugin as dp
from deviceplugin_amd import described
from deviceplugin_amd.gpus import Gpu, Style
from deviceplugin_amd.snapshot import MANY, PARTS, SMALLEST, Unit

_ID: Final = re.compile(r"([0-9a-f:.]{7,16})-([a-z]px)(?:_(nps[0-9]{1,2}))?-([0-9]{1,2})", re.ASCII)
_DIES: Final = "xcc"
_PAGE: Final = 4096


class Place(NamedTuple):
    """The partition that an id stands for, whether it is there or not."""

    address: str
    style: Style
    number: int

    @property
    def id(self) -> str:
        """The id, which is that of such a partition on a GPU that somebody else has divided."""
        return f"{self.address}-{self.style}-{self.number}"


def places(ids: Iterable[str]) -> Iterator[Place]:
    """Yield what the ids of partitions stand for; other ids are skipped."""
    for found in filter(None, map(_ID.fullmatch, ids)):
        yield Place(found[1], Style(found[2], found[3] or ""), int(found[4]))


class Size(NamedTuple):
    """What a whole GPU has: XCC, bytes of memory, SIMD units and compute units."""

    dies: int
    memory: int
    simds: int
    units: int

    def amounts(self, parts: int = 1) -> dict[str, int]:
        """Return what one of equal parts has, by the names in ``described``."""
        memory = self.memory // parts // _PAGE * _PAGE if parts > 1 else self.memory
        found = {
            "memory": memory,
            "simdUnits": self.simds // parts,
            "computeUnits": self.units // parts,
        }
        return {name: amount for name, amount in found.items() if amount}


@dataclass(frozen=True, slots=True)
class Division:
    """The ways to divide a GPU."""

    gpu: Gpu
    """As a whole."""
    size: Size
    counters: dp.Counters
    consumed: Mapping[Place, Mapping[str, int]]
    """What each partition consumes, in the order of the modes, the coarsest first."""

    @classmethod
    def of(cls, gpu: Gpu, size: Size, modes: Iterable[str]) -> "Division":
        """Return the ways to divide a GPU by ``modes``, as far as its driver offers them."""
        counts = {mode: size.dies if mode == SMALLEST else PARTS.get(mode, 0) for mode in modes}
        counts = {mode: count for mode, count in counts.items() if mode in gpu.modes}
        counts = {mode: count for mode, count in counts.items() if 1 < count <= MANY}
        counts = {mode: counts[mode] for mode in counts if not size.dies % counts[mode]}
        by_mode = [
            [Place(gpu.address, Style(mode, gpu.style.memory), number) for number in range(count)]
            for count, mode in sorted((count, mode) for mode, count in counts.items())
        ]
        consumed = {one: {_DIES: size.dies // len(own)} for own in by_mode for one in own}
        amounts = {_DIES: size.dies}
        for coarser, finer in combinations(by_mode, 2):
            for one in coarser:
                name = f"{one.style.compute}-{one.number}"
                amounts[name] = consumed[one][name] = max(counts.values())
                for other in finer:
                    consumed[other][name] = 1
        return cls(gpu, size, dp.Counters(gpu.address, amounts), consumed)

    @property
    def modes(self) -> set[str]:
        """The modes that are possible."""
        return {place.style.compute for place in self.consumed}

    def part(self, whole: dp.Device, place: Place, identity: str) -> dp.Device:
        """Return a partition's device without device nodes; its facts never change."""
        gpu = replace(self.gpu, style=place.style)
        facts = described.description(Unit(gpu, (), None, place.number))
        of_driver = {
            name: one for name, one in whole.attributes.items() if name.startswith("driver")
        }
        consumes = self.consumed.get(place, {_DIES: 0})  # the GPU cannot have it any more
        parts = self.size.dies // (consumes[_DIES] or self.size.dies)
        return replace(
            whole,
            id=place.id,
            hardware=whole.hardware[:1],
            nodes=(),
            attributes={**facts, **of_driver},
            capacity=self.size.amounts(parts),
            part=dp.Part(self.counters, consumes, identity=identity),
        )
