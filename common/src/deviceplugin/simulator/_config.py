"""The kubelet's configuration, as far as it concerns devices."""

from dataclasses import dataclass
from typing import Literal

from deviceplugin.simulator._release import NEWEST, Release

TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfig:
    """Configuration of a simulated kubelet and of its machine. The defaults are the kubelet's.

    Raises:
        ValueError: ``version`` is not a known release.
    """

    version: str = NEWEST
    """The release of Kubernetes, such as ``1.28``."""

    topology_policy: TopologyPolicy = "none"
    topology_scope: TopologyScope = "container"

    numa_nodes: tuple[int, ...] = (0,)
    """Ids of the machine's NUMA nodes."""

    max_numa_nodes: int = 8
    """With more nodes than this, and a policy other than none, the kubelet refuses to start."""

    stop_grace: float = 300.0
    """Seconds for which the devices of a lost plugin still count in the capacity."""

    pre_start_timeout: float = 30.0
    """Most seconds that PreStartContainer may take."""

    watch_interval: float | None = 1.0
    """Seconds between checks of plugins_registry; with None, only ``watch()`` checks it."""

    sync_loop_patience: float = 300.0
    """Seconds that one admission may take before the kubelet reports itself unhealthy."""

    def __post_init__(self) -> None:
        Release.of(self.version)

    @property
    def release(self) -> Release:
        """The behaviour of the kubelet of ``version``."""
        return Release.of(self.version)
