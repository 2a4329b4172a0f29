"""A snapshot of the node's devices, and of the names that patterns of paths match."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from deviceplugin.kit import hardware, usb
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_generic.configuration.globs import Names

VFIO: Final = "vfio"
VFIO_DEVICES: Final = "vfio-dev"
"""The subsystem of VFIO's nodes of single devices."""


@dataclass(frozen=True)
class Roots:
    """The roots of the file systems. Tests use other directories."""

    dev: Path = Path("/dev")
    sys: Path = Path("/sys")
    udev: Path = Path("/run/udev/data")


class Tree(hardware.Tree):
    """A snapshot of sysfs. It caches what it has read, so each discovery needs a new one.

    Args:
        names: From the last discovery, to reuse what has not changed.
        sysfs: What reads sysfs, if it is not to be read as it is.
    """

    def __init__(
        self, roots: Roots | None = None, names: Names | None = None, sysfs: Sysfs | None = None
    ) -> None:
        self.roots = roots or Roots()
        super().__init__(sysfs or Sysfs(self.roots.sys), dev=self.roots.dev, udev=self.roots.udev)
        self.names = names or Names(str(self.roots.dev))
        self.names.begin()

    @cached_property
    def units(self) -> usb.Units:
        """The USB devices."""
        return usb.Units(self)
