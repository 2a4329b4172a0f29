"""Machines with Intel GPUs, as the records of them say.

Recorded: PCI addresses, models, drivers, NUMA nodes, numbers of functions and device nodes. Of
Intel's plugin: TIGER_LAKE (labels.md), TWO_DRIVERS (gpu_plugin_test.go), DG1 and MAX (gpu_fakedev,
8x-DG1.json and 8x2-PVC-xelink.json). FLEX: device-faker of intel-resource-drivers-for-kubernetes.
WORKSTATION: a description of a runner for continuous integration.

Made after the kernel's sources and documentation: PCI classes, links of SR-IOV,
``survivability_mode``, ``gpu_health``, events, the management engine.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Card:
    """A GPU on the PCI bus."""

    address: str
    product: str
    driver: str = "i915"
    kind: str = "038000"
    """Its PCI class; 030000 for one that can show pictures."""
    numa: int = -1
    most: int = 0
    """Virtual functions that it can have."""
    count: int = 0
    """Virtual functions that it has."""
    is_discrete: bool = True
    vendor: str = "8086"


@dataclass(frozen=True)
class Machine:
    """What the generator needs: cards in the order in which drivers were bound to them."""

    cards: tuple[Card, ...]
    first: int = 0
    """Number of the first card."""


TIGER_LAKE: Final = Machine(
    (Card("0000:00:02.0", "9a49", kind="030000", is_discrete=False),),
)
TWO_DRIVERS: Final = Machine(
    (
        Card("0042:01:02.0", "9a49", "i915", "030000"),
        Card("0042:01:05.0", "9a48", "xe", "030000"),
    ),
)
DG1: Final = Machine(tuple(Card(f"0000:00:0{number}.0", "4905") for number in range(8)))
MAX: Final = Machine(
    tuple(Card(f"0000:00:0{number}.0", "0bd5", numa=number // 2) for number in range(8))
)
FLEX: Final = Machine((Card("0000:03:00.0", "56c0", numa=0, most=31, count=1),))
WORKSTATION: Final = Machine(
    (
        Card("0000:01:00.0", "2684", "nvidia", "030000", vendor="10de"),
        Card("0000:03:00.0", "56a5", kind="030000"),
        Card("0000:0f:00.0", "164e", "amdgpu", "030000", vendor="1002"),
    ),
)
SMALL: Final = Machine(
    (
        Card("0000:00:02.0", "a780", kind="030000", is_discrete=False),
        Card("0000:3b:00.0", "56c0", "i915", numa=0, most=3),
        Card("0000:5e:00.0", "e211", "xe", "030000", numa=0, most=3),
        Card("0000:86:00.0", "e211", "xe", "030000", numa=1, most=3),
    ),
    first=1,
)
"""Nobody has it: of everything something, for tests that change it a thousand times."""
