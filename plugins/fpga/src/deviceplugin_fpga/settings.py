"""What the FPGA plugin can be told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

import deviceplugin as dp
from deviceplugin_fpga.health import OF_FME, OF_PORT

Mode: TypeAlias = Literal["af", "region", "regiondevel"]
MODES: Final[Mapping[str, Mode]] = {"af": "af", "region": "region", "regiondevel": "regiondevel"}


@dataclass(frozen=True, kw_only=True)
class FpgaSettings(dp.Settings):
    """What the FPGA plugin can be told."""

    mode: Mode = "af"
    """What is offered: ports by what is programmed (af), regions that a pod has programmed when it
    starts (region), or regions that a pod can program by itself (regiondevel)."""
    aliases: Path | None = field(default=None, metadata={"watch": True})
    """File with names for functions and interfaces, as TOML, JSON or YAML. A device that has one is
    offered under it alone."""
    node_annotation: bool = False
    """Whether the annotation fpga.intel.com/device-plugin-mode of the node wins over mode. It is
    read once at the start from the API server, which a service account must be allowed to."""
    node_name: str = field(default="", metadata={"env": "NODE_NAME"})
    """Name of the node whose annotation is read."""
    api_server: str = ""
    """URL of the API server; that which Kubernetes tells every pod where not given."""
    ignore_errors: tuple[str, ...] = ()
    """Attributes of errors, such as pcie1_errors, that make no device unhealthy."""
    error_patience: timedelta = timedelta(seconds=5)
    """Time that an error must last before a device is unhealthy, and be gone before it is healthy
    again. Fatal errors do not wait, nor does the first look."""
    sysfs_dir: Path = Path("/sys")
    """Directory of sysfs."""
    dev_dir: Path = Path("/dev")
    """Directory of device nodes on the host. It is not looked at: sysfs knows the nodes."""
    cdi_dir: Path = Path("/var/run/cdi")
    """Directory in which the container runtime looks for CDI specifications. Used in mode region
    only."""
    hook: Path = Path("/opt/intel/fpga-sw/intel-fpga-crihook")
    """Path on the host of the program that the container runtime calls to program regions."""

    def __post_init__(self) -> None:
        """Refuse what cannot be used.

        Raises:
            ConfigError: The node's annotation is asked for, but not of which node; or errors are to
                be ignored that are not looked at.
        """
        known = sorted({*OF_PORT, *OF_FME})
        for name in self.ignore_errors:
            if name not in known:
                raise dp.ConfigError(f"ignore-errors: {name!r} is not one of {', '.join(known)}")
        if self.node_annotation and not self.node_name:
            raise dp.ConfigError("node-annotation: needs node-name, in a pod spec.nodeName")
