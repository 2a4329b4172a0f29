"""Nodes of KFD: what they are of, and the files of their properties and links."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amd.machines import Machine

_XGMI: Final = 11
_PCIE: Final = 2


@dataclass
class Card:
    """A GPU of the machine as it is now."""

    place: int
    address: str
    folder: Path
    parts: int
    minors: list[int]


@dataclass(frozen=True)
class Node:
    """A node of KFD as it is now."""

    number: int
    card: Card
    part: int

    @property
    def gpu_id(self) -> int:
        """What processes call it by."""
        return (
            zlib.crc32(f"{self.card.address}/{self.card.parts}/{self.part}".encode()) & 0xFFFF | 1
        )

    @property
    def minor(self) -> int:
        """Number of its render node."""
        return self.card.minors[self.part]


def write_properties(folder: Path, values: dict[str, int]) -> None:
    """Write the file of a node or a link."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in values.items()]
    (folder / "properties").write_text("".join(lines))


def write_links(folder: Path, node: Node, nodes: list[Node], machine: Machine) -> None:
    """Write the links of a node to CPUs and to all other nodes."""
    weights, own = machine.links, machine.cpu(node.card.place)
    found: dict[str, list[tuple[int, int, int]]] = {
        "io_links": [(_PCIE, own, weights.cpu)],
        "p2p_links": [(_PCIE, cpu, weights.other_cpu) for cpu in range(machine.cpus) if cpu != own],
    }
    hive = machine.hive(node.card.place)
    for other in nodes:
        if other == node:
            continue
        if other.card is node.card:
            found["io_links"].append((_XGMI, other.number, weights.inside))
        elif hive and hive == machine.hive(other.card.place):
            found["io_links"].append((_XGMI, other.number, weights.hive))
        elif weights.pcie:
            found["p2p_links"].append((_PCIE, other.number, weights.pcie))
    for kind, links in found.items():
        for place, (what, to, weight) in enumerate(links):
            values = {"type": what, "node_from": node.number, "node_to": to, "weight": weight}
            write_properties(folder / kind / str(place), values)
