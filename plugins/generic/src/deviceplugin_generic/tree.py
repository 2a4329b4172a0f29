"""A look at the node's devices, and at the names that patterns of paths match."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from deviceplugin.kit import hardware, usb
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_generic.globs import Names

VFIO: Final = "vfio"


@dataclass(frozen=True)
class Roots:
    """Where to look, so that tests can look elsewhere."""

    dev: Path = Path("/dev")
    sys: Path = Path("/sys")
    udev: Path = Path("/run/udev/data")


class Tree(hardware.Tree):
    """A look at sysfs. What has been read is kept: make a new one for each look.

    Args:
        names: From the last look, so that what has not changed is known again.
    """

    def __init__(self, roots: Roots | None = None, names: Names | None = None) -> None:
        self.roots = roots or Roots()
        super().__init__(Sysfs(self.roots.sys), dev=self.roots.dev, udev=self.roots.udev)
        self.names = names or Names()
        self.names.begin()

    @cached_property
    def units(self) -> usb.Units:
        """The USB devices."""
        return usb.Units(self)
