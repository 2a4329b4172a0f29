"""The settings of the AMD GPU plugin."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

import deviceplugin as dp
from deviceplugin.kit.naming import Naming, naming
from deviceplugin.kit.sharing import COUNT, Policy, check_count

DOMAIN: Final = "amd.com"
NamingStrategy: TypeAlias = Literal["single", "mixed"]
Mode: TypeAlias = Literal["DPX", "TPX", "QPX", "CPX"]


@dataclass(frozen=True, kw_only=True)
class AmdSettings(dp.Settings):
    """The settings of the AMD GPU plugin."""

    resource_naming_strategy: NamingStrategy = field(
        default="single",
        metadata={"flag": ("--resource_naming_strategy", "-resource_naming_strategy")},
    )
    """Resource names: amd.com/gpu for all devices (single), or such as amd.com/cpx_nps4, by how a
    GPU is divided (mixed)."""
    resources: Naming = field(default=Naming(), metadata={"kind": naming(DOMAIN, "partitions")})
    """Resource names of whole GPUs by the patterns of include, and of partitions by how their GPU
    is divided (cpx_*), in the form of the file. They go before resource-naming-strategy."""
    shares: int = field(default=1, metadata=COUNT)
    """Number of containers that can have a device at the same time."""
    share_policy: Policy = "spread"
    """Which device gives the next share: the one with the fewest shares in use (spread), or the one
    with the most (packed)."""
    partitions_on_demand: tuple[Mode, ...] = ()
    """Modes, such as CPX, in which a whole GPU is divided when a claim (DRA) has one of its
    partitions; after the last one it is whole again. Takes a privileged container."""
    include: tuple[str, ...] = ()
    """GPUs to offer, by default all: patterns of PCI addresses (0000:05:00.0), models (74a1) or
    product names (AMD Instinct MI300X*)."""
    exclude: tuple[str, ...] = ()
    """GPUs not to offer, by the same patterns."""
    clean_handover: bool = True
    """Whether a device waits for its next pod until no process has memory or a queue on it."""
    ignore_errors: tuple[str, ...] = ()
    """Blocks of a GPU, such as pcie_bif, whose errors are ignored."""
    error_patience: timedelta = timedelta(seconds=5)
    """Time that an error that may pass must last before a device is unhealthy, and be gone before
    it is healthy again."""
    labels_file: Path | None = None
    """File of node labels for Node Feature Discovery; by default none is written."""
    state_file: Path | None = Path("/run/deviceplugin-amd/health.json")
    """File that remembers errors of GPUs over a restart of the plugin. Its directory must not
    outlive a reboot."""
    sysfs_dir: Path = Path("/sys")
    """Directory of sysfs."""
    dev_dir: Path = Path("/dev")
    """Directory of device nodes."""

    def __post_init__(self) -> None:
        """Check the number of shares, and what partitions on demand need."""
        check_count(self.shares)
        if self.partitions_on_demand and self.shares > 1:
            raise dp.ConfigError(f"shares: {self.shares} and partitions-on-demand: use one of them")
        if self.partitions_on_demand and self.state_file is None:
            raise dp.ConfigError("state-file: partitions-on-demand needs one, below /run")
