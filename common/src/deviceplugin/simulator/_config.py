"""The kubelet's configuration, as far as it matters to devices."""

from dataclasses import dataclass
from typing import Literal

from deviceplugin.simulator._release import NEWEST, Release

TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfig:
    """Configuration of a simulated kubelet and of the machine that it runs on.

    The defaults are the kubelet's.
    """

    version: str = NEWEST
    """The release of Kubernetes, as ``1.28``. ``ValueError`` where it is not a known one."""

    topology_policy: TopologyPolicy = "none"
    topology_scope: TopologyScope = "container"

    numa_nodes: tuple[int, ...] = (0,)
    """Ids of the machine's NUMA nodes."""

    max_numa_nodes: int = 8
    """With more nodes and a policy, the kubelet refuses to start."""

    stop_grace: float = 300.0
    """Seconds for which the devices of a lost plugin are still counted."""

    pre_start_timeout: float = 30.0
    """Seconds that PreStartContainer may take."""

    watch_interval: float | None = 1.0
    """Seconds between two looks at plugins_registry; None leaves it to ``watch()``."""

    sync_loop_patience: float = 300.0
    """Seconds that one admission may take before the kubelet reports itself unhealthy."""

    def __post_init__(self) -> None:
        Release.of(self.version)

    @property
    def release(self) -> Release:
        """What the kubelet of that version does."""
        return Release.of(self.version)
