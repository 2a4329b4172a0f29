"""The kubelet's configuration, as far as it concerns devices."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deviceplugin.kit.cdi._files import VERSIONS
from deviceplugin_testing.simulator._host.claim_source import Cluster
from deviceplugin_testing.simulator._host.release import Release
from deviceplugin_testing.simulator._releases import COMPARED

TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfig:
    """Configuration of a simulated kubelet and of its machine. The defaults are the kubelet's.

    Raises:
        ValueError: ``version`` is not a known release.
    """

    version: str = COMPARED
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

    dra: bool | None = None
    """The feature gate DynamicResourceAllocation; by default as in the release."""

    sync_interval: float | None = 1.0
    """Seconds between checks of what is due: claims to prepare and unprepare, slices to delete.
    With None, only ``sync()`` does that."""

    sync_frequency: float = 60.0
    """Seconds until a pod whose claims could not be prepared is tried again, up to half of it
    more."""

    wipe_after: float = 0.0
    """Seconds after a start until the ResourceSlices of the node are deleted. The kubelet does
    that in the background, and can be late."""

    cluster: Cluster | None = None
    """Where claims come from, such as an ``ApiCluster``. Without one, a test gives them."""

    node_name: str = "node"
    """The name of the node, whose ResourceSlices the kubelet deletes."""

    cdi_dirs: tuple[Path, ...] = ()
    """Where the container runtime finds CDI specifications; of equal devices, those in the last
    directory win. Without any, names from claims are found in ``cdi`` below the kubelet's root,
    and those from device plugins are not resolved."""

    cdi_version: str = "1.0.0"
    """The newest version of CDI specifications that the container runtime knows: 0.5.0 for
    containerd 1.7.0, 0.8.0 for 2.0, 1.0.0 for 2.1, 1.1.0 for 2.3."""

    def __post_init__(self) -> None:
        release = Release.of(self.version)
        if self.dra and not release.has_dra_gate:
            raise ValueError(f"Kubernetes {self.version} has no gate DynamicResourceAllocation")
        if self.cdi_version not in VERSIONS:
            known = ", ".join(VERSIONS)
            raise ValueError(f"{self.cdi_version!r} is not a version of CDI: use one of {known}")

    @property
    def has_dra(self) -> bool:
        """Whether pods may have resource claims."""
        return self.release.enables_dra if self.dra is None else self.dra

    @property
    def release(self) -> Release:
        """The behaviour of the kubelet of ``version``."""
        return Release.of(self.version)
