"""The settings of the FPGA plugin."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

import deviceplugin as dp
from deviceplugin_fpga.health import OF_FME, OF_PORT

Mode: TypeAlias = Literal["af", "region", "regiondevel"]
DeviceIds: TypeAlias = Literal["kernel", "address"]
MODES: Final[Mapping[str, Mode]] = {"af": "af", "region": "region", "regiondevel": "regiondevel"}


@dataclass(frozen=True, kw_only=True)
class FpgaSettings(dp.Settings):
    """The settings of the FPGA plugin."""

    mode: Mode = "af"
    """What is advertised: ports by their programmed function (af), regions that are programmed when
    a pod starts (region), or regions that the pod programs itself (regiondevel)."""
    device_ids: DeviceIds = "kernel"
    """Ids of devices: the kernel's names (kernel), such as dfl-port.0, as Intel's plugin has them,
    or by PCI address (address), which is the same after each boot. Drain a node before you change
    it."""
    aliases: Path | None = field(default=None, metadata={"watch": True})
    """File with names for functions and interfaces, as TOML, JSON or YAML. A device with an alias
    has no other name."""
    node_annotation: bool = False
    """Whether the node's annotation fpga.intel.com/device-plugin-mode overrides mode. It is read
    once, at the start, from the API server (api-server) for this node (node-name). The service
    account needs the right to get nodes."""
    ignore_errors: tuple[str, ...] = ()
    """Error attributes that do not make a device unhealthy, such as pcie1_errors."""
    error_patience: timedelta = timedelta(seconds=5)
    """How long an error must last before a device is unhealthy, and be gone before it is healthy
    again. Fatal errors, and errors in the first discovery, take effect at once."""
    sysfs_dir: Path = Path("/sys")
    """Directory of sysfs."""
    dev_dir: Path = Path("/dev")
    """Directory of device nodes on the host. The plugin does not read it, because it uses sysfs."""
    hook: Path = Path("/opt/intel/fpga-sw/intel-fpga-crihook")
    """Path on the host of the program that the container runtime calls to program regions."""

    def __post_init__(self) -> None:
        """Refuse unknown errors to ignore, and an annotation without a node name."""
        known = sorted({*OF_PORT, *OF_FME})
        for name in self.ignore_errors:
            if name not in known:
                raise dp.ConfigError(f"ignore-errors: {name!r} is not one of {', '.join(known)}")
        if self.node_annotation and not self.node_name:
            raise dp.ConfigError("node-annotation: needs node-name, in a pod spec.nodeName")
