"""A plugin of cakes, each whole or in halves and quarters that are cut for claims."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from typing_extensions import override

import deviceplugin as dp
from deviceplugin._discovery.found import discover
from deviceplugin._dra.claims.parts import made
from deviceplugin._dra.naming import pool_name
from deviceplugin._inventory.published import Resource
from drivers.driver_node import NODE, DriverNode, gopher, result

RESOURCE = "example.com/cake"
PIECES: Mapping[str, Sequence[int]] = {
    **{f"half@{n}": (n, n + 1) for n in (0, 2)},
    **{f"quarter@{n}": (n,) for n in range(4)},
}
"""The quarters that each part consists of."""


def amounts(quarters: Sequence[int]) -> dict[str, int]:
    return {"quarters": len(quarters), **{f"quarter-{n}": 1 for n in quarters}}


class Kitchen:
    """The hardware: what is cut of each cake, by whomever. It outlives processes, not a reboot."""

    def __init__(self, *cakes: str) -> None:
        self.cakes = list(cakes)
        self.cut: dict[str, str] = {}
        """The identity of each part that is there, by its id."""
        self.strange: dict[str, str] = {}
        """Those that others made."""
        self.numbers = itertools.count(1)
        self.calls: list[tuple[str, ...]] = []

    def boot(self) -> None:
        self.cut, self.strange = {}, {}

    def quarters(self, cake: str) -> list[int]:
        """Return the quarters of ``cake`` that are cut, and fail if two parts have one."""
        ids = [one for one in [*self.cut, *self.strange] if one.startswith(f"{cake}/")]
        found = [n for one in ids for n in PIECES[one.partition("/")[2]]]
        assert len(found) == len(set(found)), f"{ids} overlap"
        return found


class Cakes(dp.Plugin):
    """Cuts cakes. ``faults`` are called by the name of a hook, before and after its work."""

    resource = RESOURCE
    part_timeout = 5.0

    def __init__(self, kitchen: Kitchen) -> None:
        self.kitchen = kitchen
        self.faults: dict[str, Callable[[], object]] = {}
        self.seen: list[Mapping[str, str]] = []
        """What ``made`` was at each discovery."""
        self.groups: Mapping[str, Sequence[str]] = {}
        self.whole = True

    def counters(self, cake: str) -> dp.Counters:
        taken = [
            n
            for one in {**self.kitchen.strange, **self.kitchen.cut}
            if one.startswith(f"{cake}/") and one not in self.made
            for n in PIECES[one.partition("/")[2]]
        ]
        return dp.Counters(
            cake,
            amounts([n for n in range(4) if n not in taken]) | {f"quarter-{n}": 0 for n in taken},
        )

    @override
    def discover(self) -> Iterator[dp.Device]:
        self.seen.append(self.made)
        for cake in self.kitchen.cakes:
            of = self.counters(cake)
            if self.whole:
                yield self.device(cake, dp.Part(of, amounts(range(4)), on_demand=False))
            for name, quarters in PIECES.items():
                groups = self.groups.get(name, ())
                yield self.device(f"{cake}/{name}", dp.Part(of, amounts(quarters), groups))

    def device(self, name: str, part: dp.Part) -> dp.Device:
        return dp.Device(name, envs={"CAKE": name}, hardware=[part.of.name], part=part)

    @override
    def make_part(self, part: dp.Device) -> dp.Device:
        self._called("make", part.id)
        kitchen = self.kitchen
        if part.id in kitchen.strange:
            raise dp.AllocationError(f"somebody else has cut {part.id}")
        kitchen.cut.setdefault(part.id, f"cut-{next(kitchen.numbers)}")
        kitchen.quarters(part.id.partition("/")[0])
        self._fault("made")
        assert part.part is not None
        identity = kitchen.cut[part.id]
        envs = {**part.envs, "CUT": identity}
        return replace(part, envs=envs, part=replace(part.part, identity=identity))

    @override
    def unmake_part(self, part: dp.Device, identity: str) -> None:
        self._called("unmake", part.id, identity)
        if identity in {"", self.kitchen.cut.get(part.id)}:
            self.kitchen.cut.pop(part.id, None)
        self._fault("unmade")

    def _called(self, *call: str) -> None:
        self.kitchen.calls.append(call)
        self._fault(call[0])

    def _fault(self, name: str) -> None:
        self.faults.get(name, lambda: None)()


CAKES = pool_name(NODE, RESOURCE)


def piece(device: str, request: str = "one", **more: Any) -> dict[str, Any]:
    """Return a result of an allocation of a cake, or a part of one."""
    return result(device, request, CAKES, **more)


class CakeNode(DriverNode):
    """A node with gophers, and cakes that are cut for claims by a ``baker``."""

    baker: type[Cakes] = Cakes
    makes_parts = True

    def __init__(self, path: Path, *cakes: str) -> None:
        self.kitchen = Kitchen(*(cakes or ("cake",)))
        self.cakes = self.baker(self.kitchen)
        super().__init__(path, gopher("gary"))
        self.more = {"makers": SimpleNamespace(set=self.know, maker=self.maker)}
        self.restart()

    @override
    def restart(self) -> None:
        faults = self.cakes.faults if hasattr(self, "cakes") else {}
        self.cakes = self.baker(self.kitchen)
        self.cakes.faults = faults
        self.resources[RESOURCE] = Resource(RESOURCE, self.cakes)
        super().restart()
        self.know(made(self.records.all().values(), self.boot_id))

    @override
    def boot(self) -> None:
        self.kitchen.boot()
        super().boot()

    def maker(self, resource: str) -> dp.Plugin | None:
        """Return the plugin that makes parts, unless there is another one now."""
        return self.cakes if resource == RESOURCE and self.makes_parts else None

    def know(self, made: Mapping[tuple[str, str], str]) -> None:
        """Have the plugin know the parts that claims have, and discover."""
        self.cakes.made = {key[1]: identity for key, identity in made.items()}
        self.discover()

    def discover(self) -> None:
        groups, problems = discover(self.cakes)
        assert not problems
        if RESOURCE in self.resources:
            self.resources[RESOURCE].publish(groups[RESOURCE].values())

    def written_parts(self) -> dict[str, str]:
        """Return the parts in records on the disk, each with its identity."""
        records = [json.loads(one.read_text()) for one in self.claims_dir.glob("*.json")]
        return {
            one["id"]: one["part"]["identity"]
            for record in records
            for one in record["devices"]
            if "part" in one
        }

    def is_empty(self) -> bool:
        """Return whether nothing is left of any claim."""
        found = (self.recorded(), self.cdi_files(), self.ownership.claims(), self.kitchen.cut)
        return not any(map(len, found)) and not self.cakes.made


class Baker(Cakes):
    """Cakes that say what they are, and of which others have cut something."""

    @override
    def device(self, name: str, part: dp.Part) -> dp.Device:
        kind = name.partition("/")[2].partition("@")[0] or "whole"
        found = replace(super().device(name, part), attributes={"profile": kind})
        return replace(found, health=dp.Health.unhealthy("cut")) if self._is_cut(name) else found

    @override
    def make_part(self, part: dp.Device) -> dp.Device:
        if self._is_cut(part.id):
            raise dp.AllocationError(f"others have cut of {part.id}")
        return super().make_part(part)

    def _is_cut(self, name: str) -> bool:
        others = {piece for one in self.kitchen.strange for piece in pieces_of(one)}
        return not others.isdisjoint(pieces_of(name))


class BakedNode(CakeNode):
    baker = Baker


def pieces_of(name: str) -> list[tuple[str, int]]:
    """Return the quarters, each with its cake, that a device consists of."""
    cake, _, piece = name.partition("/")
    return [(cake, n) for n in PIECES.get(piece, range(4))]
