"""Devices as sysfs tells of them, with what udev has added where its database can be read."""

import os
import posixpath
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import digits
from typing import Final

from deviceplugin_generic import files
from deviceplugin_generic.globs import Names

VFIO: Final = "vfio"
KINDS: Final = {stat.S_IFCHR: "char", stat.S_IFBLK: "block"}
"""Kinds of device nodes, and what sysfs calls them."""
_IDS: Final = {"usb": ("idVendor", "idProduct"), "pci": ("vendor", "device")}
_NUMBERS: Final = {
    "usb": re.compile("([0-9a-fA-F]{4})"),
    "pci": re.compile("0x([0-9a-fA-F]{4})"),
}
"""How the kernel writes vendor and product."""
_BRIDGE: Final = "0x06"


@dataclass(frozen=True)
class Roots:
    """Where to look, so that tests can look elsewhere."""

    dev: Path = Path("/dev")
    sys: Path = Path("/sys")
    udev: Path = Path("/run/udev/data")


class Tree:
    """A look at sysfs. What has been read is kept: make a new one for each look.

    Args:
        names: From the last look, so that what has not changed is known again.
    """

    def __init__(self, roots: Roots | None = None, names: Names | None = None) -> None:
        self.roots = roots or Roots()
        self._sys = os.path.realpath(self.roots.sys)
        self.names = names or Names()
        self.names.begin()
        self.events = files.read(f"{self._sys}/kernel/uevent_seqnum").strip()
        """How many events the kernel had sent when the look began; empty if it does not say."""
        self._known: dict[str, SysDevice] = {}
        self._of_nodes: dict[str, SysDevice | None] = {}
        self._subsystems: dict[str, list[SysDevice]] = {}
        self._are_nodes: dict[str, bool] = {}
        self._slots: dict[str, Counter[tuple[str, str, str, str]]] = {}

    def device(self, path: str) -> "SysDevice":
        """Return the device in the directory ``path``, which is free of links."""
        if path not in self._known:
            self._known[path] = SysDevice(self, path)
        return self._known[path]

    def subsystem(self, name: str) -> list["SysDevice"]:
        """Return the devices of a subsystem, by the order of their paths."""
        if name not in self._subsystems:
            folders = (f"{self._sys}/class/{name}", f"{self._sys}/bus/{name}/devices")
            paths = {
                os.path.realpath(posixpath.join(folder, entry))
                for folder in folders
                for entry in files.names(folder)
            }
            self._subsystems[name] = [self.device(path) for path in sorted(paths)]
        return self._subsystems[name]

    def is_crowded(self, device: "SysDevice") -> bool:
        """Return whether others of its subsystem are in its slot of a USB device."""
        name = device.subsystem
        if name not in self._slots:
            parts = (one for one in self.subsystem(name) if one.nearest("usb"))
            self._slots[name] = Counter(one.slot for one in parts)
        return self._slots[name][device.slot] > 1

    @cached_property
    def doubled_serials(self) -> frozenset[str]:
        """Serial numbers that several USB devices have, whatever they are."""
        units = [one for one in self.subsystem("usb") if one.nearest("usb") is one]
        numbers = Counter(one.attribute("serial") for one in units)
        return frozenset(text for text, number in numbers.items() if number > 1 and text)

    def of_node(self, path: str) -> "SysDevice | None":
        """Return the device of the node at ``path``, if it is one that sysfs knows."""
        try:
            status = os.stat(path)  # noqa: PTH116 - thousands of these
        except OSError:
            return None
        kind = KINDS.get(stat.S_IFMT(status.st_mode))
        link = self._of_number(kind, status.st_rdev) if kind else ""
        if link and link not in self._of_nodes:
            found = os.path.realpath(link)
            self._of_nodes[link] = self.device(found) if os.path.isdir(found) else None  # noqa: PTH112
        return self._of_nodes.get(link)

    def is_node(self, path: str) -> bool:
        """Return whether there is a device node at ``path``, which need not be seen from here."""
        if path not in self._are_nodes:
            self._are_nodes[path] = self._is_node(posixpath.normpath(path))
        return self._are_nodes[path]

    def _is_node(self, path: str) -> bool:
        try:
            return stat.S_IFMT(os.stat(path).st_mode) in KINDS  # noqa: PTH116
        except OSError:
            return path.startswith("/dev/") and path[5:] in self._node_names

    @cached_property
    def _node_names(self) -> frozenset[str]:
        """Names below ``/dev`` of all nodes that the kernel makes."""
        folders = [f"{self._sys}/dev/{kind}" for kind in KINDS.values()]
        paths = [f"{folder}/{name}" for folder in folders for name in files.names(folder)]
        return frozenset(name for path in paths if (name := files.node_name(path)))

    def identity(self, kind: str, number: int) -> tuple[int, int] | None:
        """Return what no other device's directory ever has, or None if sysfs knows no such one."""
        try:
            status = os.stat(self._of_number(kind, number))  # noqa: PTH116 - thousands of these
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns

    def _of_number(self, kind: str, number: int) -> str:
        return f"{self._sys}/dev/{kind}/{os.major(number)}:{os.minor(number)}"

    def contains(self, path: str) -> bool:
        """Tell whether ``path`` is below the root of sysfs."""
        return path.startswith(f"{self._sys}/devices/")


class SysDevice:
    """A device in sysfs. What is not there is an empty text."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self.path = path
        self.name = posixpath.basename(path)
        self._attributes: dict[str, str] = {}

    def attribute(self, name: str) -> str:
        """Return an attribute, less one newline at its end."""
        if name not in self._attributes:
            self._attributes[name] = files.read(f"{self.path}/{name}").removesuffix("\n")
        return self._attributes[name]

    @cached_property
    def subsystem(self) -> str:
        """Such as ``tty``. A USB device is known by its numbers too."""
        return files.link(f"{self.path}/subsystem") or ("usb" if self.attribute("idVendor") else "")

    @cached_property
    def driver(self) -> str:
        """The driver of the device or of the nearest one above it that has any."""
        return next((name for one in self.line if (name := files.link(f"{one.path}/driver"))), "")

    @cached_property
    def node(self) -> str:
        """Path of its device node, below ``/dev`` as the roots have it."""
        name = files.node_name(self.path)
        return posixpath.join(self._tree.roots.dev, name) if name else ""

    @cached_property
    def line(self) -> tuple["SysDevice", ...]:
        """The device itself and those above it, the nearest first."""
        parent = posixpath.dirname(self.path)
        return (self, *(self._tree.device(parent).line if self._tree.contains(parent) else ()))

    def nearest(self, *subsystems: str) -> "SysDevice | None":
        """Return the nearest USB or PCI device, whichever is asked for, or None.

        The interfaces of a USB device are not devices of their own.
        """
        for one in self.line:
            if one.subsystem in subsystems and not (one.subsystem == "usb" and ":" in one.name):
                return one
        return None

    @cached_property
    def owner(self) -> "SysDevice":
        """The USB or PCI device that it is or is part of; or else the nearest device above it.

        That is what can be plugged in, and itself where nothing is above it.
        """
        above = (one for one in self.line[1:] if one.subsystem)
        return self.nearest("usb", "pci") or next(above, self)

    def number(self, which: int) -> int | None:
        """Return vendor (0) or product (1) of the nearest USB or PCI device."""
        parent = self.nearest("usb", "pci")
        text = parent.attribute(_IDS[parent.subsystem][which]) if parent else ""
        found = _NUMBERS[parent.subsystem].fullmatch(text) if parent else None
        return int(found[1], 16) if found else None

    @cached_property
    def group(self) -> str:
        """Number of the IOMMU group of the nearest PCI device."""
        pci = self.nearest("pci")
        return files.link(f"{pci.path}/iommu_group") if pci else ""

    @cached_property
    def port(self) -> str:
        """The USB port or the PCI address of its owner; empty where that is neither."""
        parent = self.nearest("usb", "pci")
        return parent.name if parent else ""

    @cached_property
    def group_port(self) -> str:
        """The first PCI address in its IOMMU group, bridges left out, whatever is bound there."""
        pci = self.nearest("pci")
        folder = f"{pci.path}/iommu_group/devices" if pci else ""
        members = [
            self._tree.device(os.path.realpath(f"{folder}/{name}")) for name in files.names(folder)
        ]
        names = [one.name for one in members if not one.attribute("class").startswith(_BRIDGE)]
        return min(names, default=self.port)

    @cached_property
    def serial(self) -> str:
        """Serial number of the device, or of the nearest above it up to its USB or PCI device.

        What is further above says nothing of it: a root hub has the name of its controller there.
        """
        own = self.nearest("usb", "pci")
        until = self.line.index(own) + 1 if own else len(self.line)
        return next((text for one in self.line[:until] if (text := one.attribute("serial"))), "")

    @cached_property
    def _below_usb(self) -> "tuple[SysDevice, ...]":
        """The device itself and those above it, as far as they are parts of a USB device."""
        own = self.nearest("usb")
        return self.line[: self.line.index(own)] if own else ()

    @cached_property
    def interface(self) -> str:
        """Configuration and number of the USB interface, such as ``1.0``; of no device above."""
        found = (one.name for one in self._below_usb if one.attribute("bInterfaceNumber"))
        return next(found, "").partition(":")[2]

    @cached_property
    def index(self) -> str:
        """Which part of its USB interface it is, by what is the same after it is plugged in again.

        That is the device behind a receiver, the kernel's index, the number of a port, and of
        input devices the kind.
        """
        hids = [one.name for one in self._below_usb if one.subsystem == "hid"]
        behind = hids[0].rpartition(".")[0] if len(hids) > 1 else ""
        numbers = (text for one in self._below_usb if (text := one.attribute("port_number")))
        port = next(numbers, "0")
        kind = self.name.rstrip(digits) if self.subsystem == "input" else ""
        parts = (behind, self.attribute("index"), "" if port == "0" else port, kind)
        return ".".join(filter(None, parts))

    @cached_property
    def slot(self) -> tuple[str, str, str, str]:
        """Where it is among the parts of its owner, as far as the kernel does not count there."""
        return self.owner.path, self.interface, self.subsystem, self.index

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """What udev knows of it; empty where udev's database cannot be read."""
        return dict(line[2:].split("=", 1) for line in self._udev("E:") if "=" in line)

    @property
    def links(self) -> list[str]:
        """Paths of the links that udev has made to it."""
        return [f"/dev/{line[2:]}" for line in self._udev("S:")]

    def _udev(self, start: str) -> list[str]:
        number = self.attribute("dev")
        kind = "b" if self.subsystem == "block" else "c"
        name = f"{kind}{number}" if number else f"+{self.subsystem}:{self.name}"
        lines = files.read(str(self._tree.roots.udev / name)).splitlines()
        return [line for line in lines if line.startswith(start)]

    def behind(self, subsystems: tuple[str, ...]) -> Iterator["SysDevice"]:
        """Yield devices with nodes below this one; not those of USB devices behind a hub."""
        if self.subsystem in subsystems and self.node:
            yield self
        for name in sorted(files.names(self.path)):
            path = f"{self.path}/{name}"
            if not os.path.isdir(path) or os.path.islink(path):  # noqa: PTH112, PTH114
                continue
            child = self._tree.device(path)
            if child.attribute("idVendor") or child.attribute("class").startswith("0x"):
                continue  # a USB or PCI device of its own
            if child.attribute("sfnum"):
                continue  # a sub-function, which is given by itself
            yield from child.behind(subsystems)
