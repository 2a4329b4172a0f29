"""Settings of the Intel GPU plugin."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import deviceplugin as dp
from deviceplugin.kit.configuration import check_resource_name
from deviceplugin.kit.naming import Naming, naming
from deviceplugin.kit.selection import Selection
from deviceplugin.kit.sharing import COUNT, check_count

SharePolicy: TypeAlias = Literal["spread", "packed", "none", "balanced"]
ByPath: TypeAlias = Literal["single", "none", "all"]
MonitoringMode: TypeAlias = Literal["single", "split"]
DeviceIds: TypeAlias = Literal["address", "card"]

DOMAIN: Final = "gpu.intel.com"
DRIVER: Final = "{driver}"
DRIVERS: Final = ("i915", "xe")

_RESOURCE: Final = r"^([-a-z0-9.]|\{driver\})+/([-A-Za-z0-9_.]|\{driver\})+$"


def _check_resource(name: str) -> None:
    check_resource_name(name.replace(DRIVER, "i915"))  # the longer one


def _also(*names: str) -> dict[str, Any]:
    """Return what makes the flags of Intel's plugin work, with one hyphen or two."""
    return {"flag": tuple(f"{hyphens}{name}" for name in names for hyphens in ("--", "-"))}


@dataclass(frozen=True, kw_only=True)
class IntelGpuSettings(dp.Settings):
    """Settings of the Intel GPU plugin."""

    resource_name: str = field(
        default=f"{DOMAIN}/{DRIVER}",
        metadata={"check": _check_resource, "schema": {"pattern": _RESOURCE}},
    )
    """Resource of GPUs. {driver} stands for the driver of a GPU, i915 or xe; without it, GPUs of
    both drivers have one resource."""
    resources: Naming = field(default=Naming(), metadata={"kind": naming(DOMAIN)})
    """Resource names of GPUs and virtual functions by the patterns of include, in the form of the
    file. What no pattern matches has resource-name."""
    shares: int = field(default=1, metadata={**_also("shared-dev-num"), **COUNT})
    """How many containers can have a GPU at once."""
    share_policy: SharePolicy = field(default="spread", metadata=_also("allocation-policy"))
    """Which share is given next: of the GPU of which fewest are used (spread; Intel's plugin calls
    it balanced), of the one of which most are (packed), or of any that the container does not have
    yet (none)."""
    include: tuple[str, ...] = field(default=(), metadata=_also("allow-ids"))
    """GPUs that are offered, all where not given: patterns of PCI addresses (0000:03:00.0), models
    (56c0 or 0x56c0) or drivers (xe)."""
    exclude: tuple[str, ...] = field(default=(), metadata=_also("deny-ids"))
    """GPUs that are not offered, by the same patterns."""
    bypath: ByPath = field(default="single", metadata={"flag": "-bypath"})
    """Which links of /dev/dri/by-path a container gets: those of its GPUs (single), the whole
    directory (all), or none."""
    enable_monitoring: bool = field(default=False, metadata={"flag": "-enable-monitoring"})
    """Whether to offer a device with the nodes of all GPUs, for a container that monitors them."""
    monitoring_mode: MonitoringMode = field(default="single", metadata={"flag": "-monitoring-mode"})
    """Resources of that device: gpu.intel.com/monitoring with all GPUs (single), or
    gpu.intel.com/i915_monitoring and gpu.intel.com/xe_monitoring with those of one driver each
    (split)."""
    device_ids: DeviceIds = "address"
    """Ids of devices: by PCI address, which is the same after each boot, or as Intel's plugin has
    them (card), such as card0-0."""
    error_patience: timedelta = timedelta(seconds=5)
    """Time that an error of which it is not certain that it lasts must last before a device is
    unhealthy, and be gone before it is healthy again."""
    labels_file: Path | None = None
    """File in which Node Feature Discovery finds labels of the node; none is written where not
    given."""
    state_file: Path | None = Path("/run/deviceplugin-intelgpu/state.json")
    """File that keeps over a restart of the plugin which GPUs hang, and whose ids are card0-0 and
    the like. Its directory must not outlive a reboot."""
    sysfs_dir: Path = Path("/sys")
    """Directory of sysfs."""
    dev_dir: Path = Path("/dev")
    """Directory of device nodes."""

    def __post_init__(self) -> None:
        """Check the number of shares, and that no GPU has the resource for monitoring."""
        check_count(self.shares)
        for name in self.monitoring_names if self.enable_monitoring else ():
            if name in self.gpu_names:
                key = "resources" if name in self.resources.resources else "resource-name"
                raise dp.ConfigError(f"{key}: {name} is for monitoring: use another name")

    @property
    def gpu_names(self) -> list[str]:
        """All resources that GPUs can have."""
        by_driver = (self.resource_name.replace(DRIVER, driver) for driver in DRIVERS)
        return list(dict.fromkeys([*by_driver, *self.resources.resources]))

    @property
    def monitoring_names(self) -> list[str]:
        """The resources for monitoring, of each driver."""
        split = self.monitoring_mode == "split"
        return [f"{DOMAIN}/{f'{driver}_' if split else ''}monitoring" for driver in DRIVERS]

    @property
    def selection(self) -> Selection:
        """Which GPUs are offered."""
        return Selection(self.include, self.exclude)
