"""How a whole GPU can be divided for claims: its partitions, and what they consume of counters.

A GPU is divided in one mode at a time, and counters say so: each partition of a mode but the finest
has a counter of its own, which it consumes whole and of which partitions of finer modes take one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import deviceplugin as dp
from deviceplugin_amd import described
from deviceplugin_amd.gpus import Gpu, Style
from deviceplugin_amd.snapshot import PARTS, SMALLEST, Unit

_ID: Final = re.compile(r"([0-9a-f:.]{7,16})-([a-z]px)(?:_(nps[0-9]{1,2}))?-([0-9]{1,2})", re.ASCII)
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
    """What a whole GPU has to compute with."""

    dies: int
    """XCC, each with a part of the compute units."""
    simds: int
    units: int
    """Compute units."""


@dataclass(frozen=True, slots=True)
class Division:
    """The ways to divide a GPU."""

    gpu: Gpu
    """As a whole."""
    size: Size
    counts: Mapping[str, int]
    """Partitions by mode, the coarsest mode first."""

    @classmethod
    def of(cls, gpu: Gpu, size: Size, modes: Iterable[str]) -> "Division":
        """Return the ways to divide a GPU by ``modes``, as far as its driver offers them."""
        found = {mode: size.dies if mode == SMALLEST else PARTS.get(mode, 0) for mode in modes}
        offered = ((count, mode) for mode, count in found.items() if mode in gpu.modes)
        possible = (one for one in offered if one[0] > 1 and size.dies % one[0] == 0)
        return cls(gpu, size, {mode: count for count, mode in sorted(possible)})

    @property
    def counters(self) -> dp.Counters:
        """What the partitions and the whole consume of."""
        most, modes = max(self.counts.values(), default=1), [*self.counts][:-1]
        own = {f"{mode}-{number}": most for mode in modes for number in range(self.counts[mode])}
        return dp.Counters(self.gpu.address, {"xcc": self.size.dies, **own})

    @property
    def places(self) -> Iterator[Place]:
        """The partitions of all modes."""
        for mode, count in self.counts.items():
            style = Style(mode, self.gpu.style.memory)
            yield from (Place(self.gpu.address, style, number) for number in range(count))

    def consumed(self, place: Place) -> Mapping[str, int]:
        """Return what a partition consumes: nothing, if the GPU cannot have it any more."""
        counters, modes = self.counters.amounts, [*self.counts]
        mode, own = place.style.compute, f"{place.style.compute}-{place.number}"
        if place.number >= self.counts.get(mode, 0):
            return {"xcc": 0}
        coarser = modes[: modes.index(mode)]
        found = {name: 1 for name in counters if name.partition("-")[0] in coarser}
        found |= {own: counters[own]} if own in counters else {}
        return found | {"xcc": self.size.dies // self.counts[mode]}

    def amounts(self, parts: int = 1) -> dict[str, int]:
        """Return what one of equal parts has, by the names in ``described``."""
        memory = self.gpu.memory // parts
        found = {
            "memory": memory // _PAGE * _PAGE if parts > 1 else memory,
            "simdUnits": self.size.simds // parts,
            "computeUnits": self.size.units // parts,
        }
        return {name: amount for name, amount in found.items() if amount}

    def part(self, whole: dp.Device, place: Place, identity: str) -> dp.Device:
        """Return a partition's device without device nodes; its facts never change."""
        gpu = replace(self.gpu, style=place.style)
        facts = described.description(Unit(gpu, (), None, place.number))
        of_driver = {name: x for name, x in whole.attributes.items() if name.startswith("driver")}
        return replace(
            whole,
            id=place.id,
            hardware=whole.hardware[:1],
            nodes=(),
            attributes={**facts, **of_driver},
            capacity=self.amounts(self.counts.get(place.style.compute, 1)),
            part=dp.Part(self.counters, self.consumed(place), identity=identity),
        )
