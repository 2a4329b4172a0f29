"""Machines with AMD GPUs whose KFD topology somebody has recorded, in numbers.

Recorded, in the test data of ROCm/k8s-device-plugin (commit ed76468): PCI addresses, models, the
number and order of KFD's nodes, render minors, ``simd_count``, memory (VEGA, MI308), hives, the
links' types and weights, and which properties an old kernel lacks. On those topologies themselves,
7,178 files, the plugin finds the same devices and prefers the same groups.

Made after the kernel's sources and documentation: the rest, such as ids, product names, memory of
MI210 and MI300X, NPS modes, RAS counters, KFD's processes, and what dividing a GPU anew gives.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GIB: Final = 1 << 30


@dataclass(frozen=True)
class Links:
    """Distances between nodes of KFD, as the kernel weighs them."""

    inside: int = 0
    """Between partitions of one GPU."""
    hive: int = 0
    """Between GPUs of a hive, by XGMI."""
    pcie: int = 0
    """Between GPUs of two hives."""
    cpu: int = 20
    """Between a GPU and its own CPU."""
    other_cpu: int = 0


@dataclass(frozen=True)
class Machine:
    """What the generator needs."""

    addresses: tuple[str, ...]
    """Of the GPUs, in the order of KFD's nodes."""
    product: int
    name: str
    simds: int
    """Of a partition, or of a GPU that is whole."""
    memory: int
    """Bytes, likewise."""
    cpus: int = 2
    style: tuple[str, str] = ("", "")
    parts: int = 1
    """Partitions of each GPU."""
    dies: int = 1
    """Dies of compute units (XCC) of each GPU."""
    slots: int = 1
    """DRM devices that the driver makes for each GPU, however it is divided."""
    hives: tuple[int, ...] = ()
    """Of each GPU; no hives where not given."""
    links: Links = Links()
    gfx: int = 0
    """Without it the kernel is old, and its nodes have fewer properties."""
    minors: int = 64
    """Most DRM devices that there can be; a BMC's is one of them."""

    def cpu(self, place: int) -> int:
        """Return the CPU that a GPU is near: the first half is near to the first."""
        return place * self.cpus // len(self.addresses)

    def hive(self, place: int) -> int:
        """Return the hive of a GPU; 0 for none."""
        return self.hives[place] if self.hives else 0


def _at(*buses: str) -> tuple[str, ...]:
    return tuple(f"{bus if ':' in bus else f'0000:{bus}'}:00.0" for bus in buses)


VEGA: Final = Machine(_at("19"), 0x6860, "Radeon Instinct MI25", 256, 17163091968, cpus=1)
MI210: Final = Machine(
    _at("63", "43", "03", "26", "e3", "c3", "83", "a3"),
    0x740F,
    "AMD Instinct MI210",
    416,
    64 * _GIB,
    hives=(1, 1, 1, 1, 2, 2, 2, 2),
    links=Links(hive=15, pcie=72, other_cpu=52),
    gfx=90010,
)
MI308: Final = Machine(
    _at("0a", "80", "a4", "c8", "0001:0b", "0001:81", "0001:a5", "0001:c9"),
    0x74A2,
    "AMD Instinct MI308X",
    80,
    51539607552,
    style=("CPX", "NPS1"),
    parts=4,
    dies=4,
    slots=8,
    hives=(1,) * 8,
    links=Links(inside=13, hive=41, other_cpu=41),
    gfx=90402,
)
MI300X: Final = Machine(
    _at("05", "27", "47", "65", "85", "a7", "c7", "e5"),
    0x74A1,
    "AMD Instinct MI300X OAM",
    152,
    24 * _GIB,
    style=("CPX", "NPS4"),
    parts=8,
    dies=8,
    slots=8,
    hives=(1,) * 8,
    links=Links(inside=13, hive=41, other_cpu=41),
    gfx=90402,
    minors=63,
)
SMALL: Final = Machine(
    _at("05", "27", "85", "a7"),
    0x74A1,
    "AMD Instinct MI300X OAM",
    304,
    48 * _GIB,
    style=("SPX", "NPS1"),
    dies=8,
    slots=4,
    gfx=90402,
)
"""No machine that anybody has: quick to change, for tests that change it a thousand times."""
WHOLE: Final = Machine(
    _at("05", "27", "85"),
    0x74A1,
    "AMD Instinct MI300X OAM",
    1216,
    192 * _GIB,
    style=("SPX", "NPS1"),
    dies=8,
    slots=8,
    hives=(1,) * 3,
    gfx=90402,
)
"""GPUs as they are delivered, to be divided."""


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
