"""Facts about PCI functions: identity, driver, device nodes and related functions.

A fact that the kernel does not have is an empty string or None, so that one odd card does not
affect others.
"""

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from deviceplugin.kit import numa
from deviceplugin.kit.hardware import Device, Tree
from deviceplugin.kit.health import absence
from deviceplugin.kit.sysfs import natural

__all__ = ["Function", "at", "functions", "of"]

_VIRTUAL: Final = re.compile("virtfn([0-9]{1,5})")
_CLASS: Final = re.compile("0x([0-9a-f]{6})")
_NUMBER: Final = re.compile("0x([0-9a-f]{4})")
_COUNT: Final = re.compile("[0-9]{1,5}")
_WIDTH: Final = re.compile("[0-9]{1,2}")
"""Of a link; the kernel writes 255 where it is not known."""


def functions(tree: Tree) -> list["Function"]:
    """Return all PCI functions of the node, sorted by address; an empty list without a PCI bus."""
    found = [Function(device) for device in tree.subsystem("pci")]
    return sorted(found, key=lambda one: natural(one.address))


def at(tree: Tree, address: str) -> "Function | None":
    """Return the function at an address such as ``0000:3b:00.0``, or None."""
    return next((one for one in functions(tree) if one.address == address), None)


def of(device: Device) -> "Function | None":
    """Return the PCI function that ``device`` is or that it is behind; None without one."""
    found = device.nearest("pci")
    return Function(found) if found else None


class Function:
    """A PCI function. Functions with the same address are equal."""

    def __init__(self, device: Device) -> None:
        self.device = device
        """The function as a `kit.hardware.Device`."""
        self.address = device.name
        """Its address, such as ``0000:3b:00.0``."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __repr__(self) -> str:
        return f"Function({self.address!r})"

    @property
    def vendor(self) -> int | None:
        """The vendor id, such as 0x8086."""
        return _number(self.device.attribute("vendor"))

    @property
    def product(self) -> int | None:
        """The device id, ``device`` in sysfs: it names the model among those of the vendor."""
        return _number(self.device.attribute("device"))

    @property
    def pci_class(self) -> str:
        """Class, subclass and interface in 6 hex digits, such as ``030000`` for a display."""
        found = _CLASS.fullmatch(self.device.attribute("class").lower())
        return found[1] if found else ""

    @property
    def driver(self) -> str:
        """The driver that is bound to it; empty if there is none."""
        return self.device.own_driver

    @cached_property
    def numa_node(self) -> int | None:
        """The NUMA node that it is near; None also for -1."""
        return numa.nearest_node(one.attribute("numa_node") for one in self.device.line)

    @property
    def lost_lanes(self) -> str:
        """How its PCIe link is narrower than both its ends can be, such as ``8 of 16 lanes``.

        Empty if it is not, and where the kernel does not know. A slot or a riser that is wired with
        fewer lanes is a narrower end. Do not ask it of GPUs: they give lanes up to save power.
        """
        bridge = next((one for one in self.device.line[1:] if one.subsystem == "pci"), None)
        now = _lanes(self.device, "current")
        most = min(_lanes(self.device, "max"), _lanes(bridge, "max") if bridge else 0)
        return f"{now} of {most} lanes" if 0 < now < most else ""

    @property
    def iommu_group(self) -> str:
        """The number of its IOMMU group, which a reboot can change. `kit.vfio` knows the group."""
        name = self.device.tree.link(f"{self.device.path}/iommu_group")
        return name if _COUNT.fullmatch(name) else ""

    @property
    def siblings(self) -> list["Function"]:
        """All functions of the same card, including itself; such as the audio function of a GPU."""
        slot = self.address.rpartition(".")[0]
        found = functions(self.device.tree)
        return [one for one in found if one.address.rpartition(".")[0] == slot]

    @property
    def numbered_functions(self) -> dict[int, "Function"]:
        """Its virtual functions by their numbers, in order. Drivers and libvirt count them so."""
        tree, path = self.device.tree, self.device.path
        numbers = sorted(int(one[1]) for one in map(_VIRTUAL.fullmatch, tree.entries(path)) if one)
        paths = {one: os.path.realpath(f"{path}/virtfn{one}") for one in numbers}
        return {one: Function(tree.device(found)) for one, found in paths.items()}

    @property
    def virtual_functions(self) -> list["Function"]:
        """Its virtual functions, in the order of their numbers."""
        return list(self.numbered_functions.values())

    @property
    def physical_function(self) -> "Function | None":
        """The physical function of a virtual function; None for any other."""
        path = f"{self.device.path}/physfn"
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # what cannot be read is there, and makes it a virtual function
            pass
        return Function(self.device.tree.device(os.path.realpath(path)))

    @property
    def is_divided(self) -> bool:
        """Whether it has virtual functions, which pods then get in its place."""
        text = self.device.attribute("sriov_numvfs")
        return bool(_COUNT.fullmatch(text)) and int(text) > 0

    def nodes(self, *subsystems: str) -> list[Path]:
        """Return the existing device nodes behind it, such as those of ``drm``, in order.

        Nodes of its virtual functions and of other PCI or USB devices are excluded.
        """
        found = [Path(one.node) for one in self.device.behind(*subsystems)]
        there = {path for path in found if not absence(path)}
        return sorted(there, key=lambda path: natural(str(path)))

    def by_path(self, folder: str = "dri") -> Iterator[Path]:
        """Yield udev's links to its nodes in ``/dev/FOLDER/by-path``, in order.

        Their names have the address, such as ``pci-0000:00:02.0-render``.
        """
        links = self.device.tree.dev / folder / "by-path"
        for name in sorted(self.device.tree.entries(str(links)), key=natural):
            if name.startswith(f"pci-{self.address}-"):
                yield links / name


def _lanes(device: Device, which: str) -> int:
    """Return a number of lanes; 0 if it is not known."""
    text = device.attribute(f"{which}_link_width")
    return int(text) if _WIDTH.fullmatch(text) else 0


def _number(text: str) -> int | None:
    found = _NUMBER.fullmatch(text.lower())
    return int(found[1], 16) if found else None
