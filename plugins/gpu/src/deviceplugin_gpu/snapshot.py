"""What one poll of the driver found: plain values, from which all else is computed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

WSL: Final = "all"
"""Id of the only GPU of the Windows Subsystem for Linux."""
TEGRA: Final = "tegra"
"""Id of the only GPU of a Tegra system that is not read through NVML."""
_INTEGRATED: Final = re.compile(r"\(nvgpu\)|\bThor\b")
"""In the names of integrated GPUs, such as ``Orin (nvgpu)`` and ``NVIDIA Thor``."""
_BARE_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_IN_TEGRA: Final = frozenset({(3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)})
"""Compute capabilities of integrated GPUs, from Tegra K1 to Thor."""
PROHIBITED: Final = 2
"""The compute mode in which no process can use a GPU."""
NOT_REMAPPED: Final = "remapping a broken memory row failed: contact support"
_GIB: Final = 1 << 30
_FAMILIES: Final = (
    ((13, 0), "rubin"),
    ((10, 0), "blackwell"),
    ((9, 0), "hopper"),
    ((8, 9), "ada-lovelace"),
    ((8, 0), "ampere"),
    ((7, 5), "turing"),
    ((7, 0), "volta"),
    ((6, 0), "pascal"),
    ((5, 0), "maxwell"),
    ((3, 0), "kepler"),
)
"""Families by the lowest compute capability of each."""


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
    cores: int = 0
    """CUDA cores; 0 if unknown."""
    brand: str = ""
    addressing: str = ""
    """How it shares addresses with CPUs: ``HMM``, ``ATS`` or ``None``; empty if not supported."""
    mig_capable: bool = False
    mig_enabled: bool = False
    migs: tuple[Mig, ...] = ()
    compute_mode: int = 0
    """As NVML has it, such as ``PROHIBITED``."""
    is_virtual: bool = False
    """Whether it is a vGPU, in a virtual machine."""
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

    @property
    def is_integrated(self) -> bool:
        """Whether it is a part of the processor, as on a Jetson.

        NVIDIA's toolkit knows such a GPU by its index, which is 0, and by no other name. Its files
        and device nodes are those that lists on the node name, which only the toolkit reads.
        """
        is_one = self.uuid == TEGRA or self.compute in _IN_TEGRA
        return is_one or bool(_BARE_UUID.fullmatch(self.uuid) or _INTEGRATED.search(self.name))

    @property
    def family(self) -> str:
        """Its architecture, such as ``ada-lovelace``; empty if unknown."""
        return next((name for lowest, name in _FAMILIES if self.compute >= lowest), "")


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
