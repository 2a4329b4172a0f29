"""What the AMD GPU plugin can be told."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

import deviceplugin as dp
from deviceplugin.kit.sharing import Policy

Naming: TypeAlias = Literal["single", "mixed"]

_MOST_SHARES: Final = 1000


@dataclass(frozen=True, kw_only=True)
class AmdSettings(dp.Settings):
    """What the AMD GPU plugin can be told."""

    resource_naming_strategy: Naming = field(
        default="single",
        metadata={"flag": ("--resource_naming_strategy", "-resource_naming_strategy")},
    )
    """How resources are named: amd.com/gpu for all (single), or amd.com/cpx_nps4 and the like by
    how a GPU is divided (mixed)."""
    shares: int = 1
    """How many containers can have a device at once."""
    share_policy: Policy = "spread"
    """Whose share is given next: of the device of which fewest are used (spread), or of the one of
    which most are (packed)."""
    include: tuple[str, ...] = ()
    """GPUs that are offered, all where not given: patterns of PCI addresses (0000:05:00.0), models
    (74a1) or product names (AMD Instinct MI300X*)."""
    exclude: tuple[str, ...] = ()
    """GPUs that are not offered, by the same patterns."""
    clean_handover: bool = True
    """Whether a device that no pod has is given to nobody while a process still has memory or a
    queue on it."""
    ignore_errors: tuple[str, ...] = ()
    """Blocks of a GPU, such as pcie_bif, whose errors make no device unhealthy."""
    error_patience: timedelta = timedelta(seconds=5)
    """Time that an error of which it is not certain that it lasts must last before a device is
    unhealthy, and be gone before it is healthy again."""
    labels_file: Path | None = None
    """File in which Node Feature Discovery finds labels of the node; none is written where not
    given."""
    state_file: Path | None = Path("/run/deviceplugin-amd/health.json")
    """File that keeps over a restart of the plugin what is wrong with GPUs. Its directory must not
    outlive a reboot."""
    sysfs_dir: Path = Path("/sys")
    """Directory of sysfs."""
    dev_dir: Path = Path("/dev")
    """Directory of device nodes."""

    def __post_init__(self) -> None:
        """Refuse what cannot be used.

        Raises:
            ConfigError: It is no number of shares.
        """
        if not 1 <= self.shares <= _MOST_SHARES:
            raise dp.ConfigError(
                f"shares: {self.shares} is not a number of shares: use 1 to {_MOST_SHARES}"
            )
