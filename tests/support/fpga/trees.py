"""Builds /sys and /dev of a node with FPGAs, as the DFL and the OPAE driver have them.

DFL::

    class/fpga_region/region0 -> devices/pci0000:3a/0000:3b:00.0/fpga_region/region0
    devices/pci0000:3a/0000:3b:00.0/class                 0x120000
      fpga_region/region0/dfl-fme.0/dev                   the management engine
        dfl-fme-region.0/fpga_region/region1/compat_id    its interface id, once for each port
      fpga_region/region0/dfl-port.0/afu_id               what is programmed

OPAE::

    class/fpga/intel-fpga-dev.0 -> devices/pci0000:3a/0000:3b:00.0/fpga/intel-fpga-dev.0
      fpga/intel-fpga-dev.0/intel-fpga-fme.0/pr/interface_id
      fpga/intel-fpga-dev.0/intel-fpga-port.0/afu_id
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_fpga import FpgaPlugin, FpgaSettings
from deviceplugin_testing.fixture import FailingKernel

INTERFACE: Final = "ce48969398f05f33946d560708be108a"
AFU: Final = "d8424dc4a4a3c413f89e433683f9040b"
OTHER_AFU: Final = "f7df405cbd7acf7222f144b0b93acd18"
ALL_ONES: Final = "f" * 32


@dataclass(frozen=True)
class Words:
    """What a driver calls things."""

    folder: str
    region: str
    port: str
    fme: str


DFL: Final = Words("fpga_region", "region", "dfl-port.", "dfl-fme.")
OPAE: Final = Words("fpga", "intel-fpga-dev.", "intel-fpga-port.", "intel-fpga-fme.")
BOTH: Final = {"dfl": DFL, "opae": OPAE}


class FpgaTree:
    """A node's FPGAs below ``root``, with one driver. Device nodes are plain files."""

    def __init__(self, root: Path, words: Words) -> None:
        self.sys, self.dev, self.words = root / "sys", root / "dev", words
        self.cdi = root / "cdi"
        self.kernel = FailingKernel()
        self.sysfs = Sysfs(self.sys, self.kernel)
        self.classes = self.sys / "class" / words.folder
        for folder in (self.sys / "devices", self.sys / "dev/char", self.classes, self.dev):
            folder.mkdir(parents=True, exist_ok=True)
        self._minors: Iterator[int] = count()
        self._parts: Iterator[int] = count()
        self._regions: Iterator[int] = count(100)  # those of an FME have numbers of their own

    def plugin(self, mode: str = "af", **changes: Any) -> FpgaPlugin:
        """Return a plugin; /dev is called by its real name."""
        settings = FpgaSettings(sysfs_dir=self.sys, cdi_dir=self.cdi, mode=mode, **changes)  # type: ignore[arg-type]
        return FpgaPlugin(settings, self.sysfs)

    def card(self, address: str = "0000:3b:00.0", *, physical: Path | None = None) -> Path:
        """Make a PCI device; a virtual function if it has a ``physical`` one."""
        folder = self.sys / "devices/pci0000:3a" / address
        folder.mkdir(parents=True)
        values = {"vendor": "0x8086", "device": "0x0b30", "class": "0x120000", "numa_node": "-1"}
        for name, value in values.items():
            (folder / name).write_text(f"{value}\n")
        (folder / "subsystem").symlink_to(self.sys / "bus/pci")
        if physical:
            (folder / "physfn").symlink_to(physical)
        return folder

    def plug_in(self, card: Path) -> None:
        """Have a PCI device on the bus."""
        bus = self.sys / "bus/pci/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / card.name).symlink_to(card)

    def region(self, card: Path, number: int = 0) -> Path:
        """Make what has an FME and its ports below it."""
        folder = card / self.words.folder / f"{self.words.region}{number}"
        folder.mkdir(parents=True)
        (folder / "subsystem").symlink_to(self.classes)
        (self.classes / folder.name).symlink_to(folder)
        return folder

    def fme(self, region: Path, number: int = 0, *interfaces: str) -> Path:
        """Make an FME with an interface id; DFL can have several of it."""
        folder = self._device(region / f"{self.words.fme}{number}")
        for interface in interfaces or (INTERFACE,):
            if self.words is OPAE:
                path = folder / "pr/interface_id"
            else:
                name = f"region{next(self._regions)}"
                path = folder / f"dfl-fme-region.{next(self._parts)}/fpga_region/{name}/compat_id"
            path.parent.mkdir(parents=True)
            path.write_text(f"{interface}\n")
            if self.words is DFL:
                (path.parent / "subsystem").symlink_to(self.classes)
                (path.parents[2] / "subsystem").symlink_to(self.sys / "bus/platform")
                (self.classes / path.parent.name).symlink_to(path.parent)
        return folder

    def port(self, region: Path, number: int = 0, afu: str = AFU, *, on_fme: int = 0) -> Path:
        """Make a port, the ``on_fme``-th of its FME."""
        folder = self._device(region / f"{self.words.port}{number}")
        (folder / "afu_id").write_text(f"{afu}\n")
        (folder / "id").write_text(f"{on_fme}\n")
        return folder

    def simple(self, *afus: str, address: str = "0000:3b:00.0", number: int = 0) -> list[Path]:
        """Make a card with one FME, and a port for each of ``afus``; return the ports."""
        region = self.region(self.card(address), number)
        self.fme(region, number, *([INTERFACE] * (len(afus) if self.words is DFL else 1)))
        return [
            self.port(region, number * 10 + index, afu, on_fme=index)
            for index, afu in enumerate(afus)
        ]

    def renumber(self, folder: Path, number: int) -> None:
        """Give a port or an FME the device number of something that is there."""
        places = self.sys / "dev/char"
        (places / (folder / "dev").read_text().strip()).unlink()
        text = f"{os.major(number)}:{os.minor(number)}"
        (folder / "dev").write_text(f"{text}\n")
        (places / text).symlink_to(folder)

    def set_error(self, folder: Path, attribute: str, value: str = "0x1") -> None:
        """Have a port or an FME report an error."""
        path = folder / "errors" / attribute
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def unload(self) -> None:
        """Take the driver's class away."""
        for entry in self.classes.iterdir():
            entry.unlink()
        self.classes.rmdir()

    def _device(self, folder: Path) -> Path:
        folder.mkdir()
        number = f"240:{next(self._minors)}"
        (folder / "dev").write_text(f"{number}\n")
        (folder / "uevent").write_text(f"DEVNAME={folder.name}\n")
        (folder / "subsystem").symlink_to(self.sys / "bus/platform")
        (self.sys / "dev/char" / number).symlink_to(folder)
        (self.dev / folder.name).touch()
        return folder


def number_of(folder: Path) -> tuple[int, int]:
    """Return the device number of a port or an FME."""
    major, _, minor = (folder / "dev").read_text().partition(":")
    return int(major), int(minor)
