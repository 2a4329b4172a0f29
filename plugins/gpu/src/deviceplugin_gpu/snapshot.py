"""What one poll of the driver found: plain values, from which all else is computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

WSL: Final = "all"
"""Id of the only GPU of the Windows Subsystem for Linux."""
NOT_REMAPPED: Final = "remapping a broken memory row failed: contact support"
_GIB: Final = 1 << 30


class Nearness(IntEnum):
    """The nearest component that two GPUs share on the path between them. Higher is nearer.

    The values are NVML's ``nvmlGpuTopologyLevel_t`` in reverse order.
    """

    SYSTEM = 10
    """Across CPUs."""
    NODE = 20
    """One NUMA node, several host bridges."""
    HOST_BRIDGE = 30
    MULTIPLE_SWITCHES = 40
    SINGLE_SWITCH = 50
    INTERNAL = 60
    """One board."""


@dataclass(frozen=True, slots=True)
class Link:
    """How near two GPUs are to each other."""

    path: Nearness = Nearness.SYSTEM
    nvlinks: int = 0
    """Active NVLinks between them; over an NVSwitch, the links that both have to it."""


@dataclass(frozen=True, slots=True)
class Mig:
    """One MIG device: a compute instance of a GPU instance."""

    uuid: str
    index: int
    """Its index among the MIG devices of its GPU, as NVML counts them."""
    gpu_instance: int
    compute_instance: int
    profile: str = ""
    """Such as ``1g.10gb``, ``1c.3g.40gb``, ``1g.10gb+me``; empty if unknown."""
    memory: int = 0
    """Bytes."""
    slices: int = 0
    """Compute slices of its GPU instance."""
    compute_slices: int = 0
    """Compute slices of its compute instance."""
    multiprocessors: int = 0
    placement: tuple[int, int] | None = None
    """The first memory slice of its GPU instance, and how many it has; None if unknown."""
    engines: Mapping[str, int] = field(default_factory=dict)
    """Number of engines by kind: copy, decoder, encoder, jpeg, ofa."""


@dataclass(frozen=True, slots=True)
class License:
    """Whether a virtual GPU has its license now, as its driver says."""

    licensed: bool
    expires: float | None = None
    """In Unix seconds; None if it does not expire, or nobody knows when."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU."""

    index: int
    uuid: str
    name: str = ""
    minor: int | None = None
    """N of ``/dev/nvidiaN``."""
    pci: str = ""
    """PCI address as sysfs writes it, such as ``0000:3b:00.0``."""
    numa: int | None = None
    memory: int = 0
    """Bytes."""
    compute: tuple[int, int] = (0, 0)
    """CUDA compute capability."""
    mig_capable: bool = False
    mig_enabled: bool = False
    migs: tuple[Mig, ...] = ()
    fabric: str = ""
    """Cluster and clique of the NVLink fabric that it is in, ``<UUID>.<number>``."""
    problem: str = ""
    """Why it cannot be used now, such as ``GPU is lost``; empty if nothing is wrong."""
    wear: tuple[str, ...] = ()
    """Why it works and will not for long, or is to be reset soon."""
    slowdown: str = ""
    """Why its hardware runs it slower now; empty if it does not."""
    license: License | None = None
    """None where it needs none, or its driver has never said."""

    @property
    def answers(self) -> bool:
        """Whether the driver answers queries about it, though it may be broken."""
        return self.problem in {"", NOT_REMAPPED}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All GPUs of the node, in NVML's order, and how near they are to each other."""

    gpus: tuple[Gpu, ...] = ()
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    """By the UUIDs of two GPUs, in both orders. A missing pair is far apart."""
    driver: str = ""
    """Version, such as ``580.95.05``."""
    cuda: tuple[int, int] = (0, 0)
    """The newest CUDA that the driver supports."""


def size(number: int) -> str:
    """Return bytes as people write them; empty for none."""
    return f"{number / _GIB:.4g}Gi" if number else ""
