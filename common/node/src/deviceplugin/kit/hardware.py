"""Devices of any bus in sysfs, with udev's facts if its database can be read.

A fact that is absent or unreadable is an empty string here, because one missing fact must not
affect the others. If the reason matters, read the attribute with ``tree.sysfs``.
"""

import errno
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from deviceplugin.kit import files
from deviceplugin.kit.sysfs import Sysfs

__all__ = ["KINDS", "Device", "Tree"]

_T = TypeVar("_T")

KINDS: Final[Mapping[int, str]] = {stat.S_IFCHR: "char", stat.S_IFBLK: "block"}
"""Kinds of device nodes, and their names in sysfs."""
_IDS: Final = {"usb": ("idVendor", "idProduct"), "pci": ("vendor", "device")}
_NUMBERS: Final = {"usb": re.compile("([0-9a-fA-F]{4})"), "pci": re.compile("0x([0-9a-fA-F]{4})")}
"""The form in which the kernel writes vendor and product."""
_DEV: Final = re.compile("[0-9]+:[0-9]+")
_UNANNOUNCED: Final = re.compile("vhost-vdpa-[0-9]+")
"""Devices without class and bus. The kernel writes no uevent for them, and their nodes have their
names."""
_SUB_FUNCTION: Final = re.compile("[0-9]{1,10}")
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


class Tree:
    """A snapshot of sysfs. It caches what it reads: make a new one for each discovery.

    Device nodes are in ``dev``, and ``udev`` is the directory of udev's database.
    """

    def __init__(
        self,
        sysfs: Sysfs | None = None,
        *,
        dev: Path = Path("/dev"),
        udev: Path = Path("/run/udev/data"),
    ) -> None:
        self.sysfs = sysfs or Sysfs()
        self.dev = dev
        self.udev = udev
        self._sys = os.path.realpath(self.sysfs.root)
        self.is_complete = True
        """Whether nothing was unreadable so far. A later snapshot may have what this one lacks."""
        self.events = self.text(f"{self._sys}/kernel/uevent_seqnum").strip()
        """Number of the kernel's last event when the snapshot began; empty if it is unknown."""
        self._known: dict[str, Device] = {}
        self._of_nodes: dict[str, Device | None] = {}
        self._subsystems: dict[str, list[Device]] = {}
        self._are_nodes: dict[str, bool] = {}

    def text(self, path: str) -> str:
        """Return an attribute unchanged, with blanks; bytes that are not UTF-8 are replaced."""
        return self._asked(self.sysfs.kernel.read, path, b"").decode(errors="replace")

    def entries(self, path: str) -> list[str]:
        """Return the names in a directory, in any order."""
        return self._asked(self.sysfs.kernel.names, path, [])

    def link(self, path: str) -> str:
        """Return the last part of the target of a link."""
        return posixpath.basename(self._asked(self.sysfs.kernel.link, path, ""))

    def resolve(self, path: str) -> str:
        """Return ``path`` with all links resolved; empty if it leads nowhere."""
        return self._asked(self.sysfs.kernel.resolve, path, "")

    def _asked(self, ask: Callable[[str], _T], path: str, instead: _T) -> _T:
        try:
            return ask(path)
        except OSError as error:
            self.is_complete = self.is_complete and error.errno in _GONE
            return instead

    def device(self, path: str) -> "Device":
        """Return the device in the directory ``path``, which must not contain links."""
        if path not in self._known:
            self._known[path] = Device(self, path)
        return self._known[path]

    def subsystem(self, name: str) -> list["Device"]:
        """Return the devices of a subsystem, sorted by their paths."""
        if name not in self._subsystems:
            folders = (f"{self._sys}/class/{name}", f"{self._sys}/bus/{name}/devices")
            links = (f"{folder}/{entry}" for folder in folders for entry in self.entries(folder))
            paths = {*map(self.resolve, links)} - {""}
            self._subsystems[name] = [self.device(path) for path in sorted(paths)]
        return self._subsystems[name]

    def of_node(self, path: str) -> "Device | None":
        """Return the device of the device node at ``path``; None if sysfs does not have it."""
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
        """Return whether the host has a device node at ``path``, even if it is not mounted here."""
        if path not in self._are_nodes:
            place = posixpath.normpath(path)
            try:
                found = stat.S_IFMT(os.stat(place).st_mode) in KINDS  # noqa: PTH116
            except OSError:
                found = place.startswith("/dev/") and place[5:] in self._node_names
            self._are_nodes[path] = found
        return self._are_nodes[path]

    @cached_property
    def _node_names(self) -> frozenset[str]:
        """Names below ``/dev`` of all device nodes that the kernel creates."""
        folders = [f"{self._sys}/dev/{kind}" for kind in KINDS.values()]
        paths = [f"{folder}/{name}" for folder in folders for name in self.entries(folder)]
        names = (self._node_name(path) or _unannounced(self.link(path)) for path in paths)
        return frozenset(filter(None, names))

    def _node_name(self, path: str) -> str:
        """Return the name below ``/dev`` of the node of the device in a directory."""
        lines = self.text(f"{path}/uevent").split("\n")
        name = next((line[8:] for line in lines if line.startswith("DEVNAME=")), "")
        if not name and (own := _unannounced(posixpath.basename(path))):
            name = own if self.text(f"{path}/dev") else ""
        name = name.removeprefix("/dev/")
        return "" if any(map(files.name_problem, name.split("/"))) else name

    def node(self, path: str) -> str:
        """Return the path of the node of the device in a directory; empty if it has none."""
        name = self._node_name(path)
        return posixpath.join(self.dev, name) if name else ""

    def identity(self, kind: str, number: int) -> tuple[int, int] | None:
        """Return a value that no other device ever has; None if sysfs does not have the device.

        ``kind`` is ``char`` or ``block``, and ``number`` the device number, as in ``os.stat``.
        """
        try:
            status = os.stat(self._of_number(kind, number))  # noqa: PTH116 - thousands of these
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns

    def _of_number(self, kind: str, number: int) -> str:
        return f"{self._sys}/dev/{kind}/{os.major(number)}:{os.minor(number)}"

    def contains(self, path: str) -> bool:
        """Return whether ``path`` is below the devices of sysfs."""
        return path.startswith(f"{self._sys}/devices/")


class Device:
    """A device in sysfs. An absent fact is an empty string."""

    def __init__(self, tree: Tree, path: str) -> None:
        self.tree = tree
        self.path = path
        self.name = posixpath.basename(path)
        self._attributes: dict[str, str] = {}

    def attribute(self, name: str) -> str:
        """Return an attribute without the newline at its end."""
        if name not in self._attributes:
            self._attributes[name] = self.tree.text(f"{self.path}/{name}").removesuffix("\n")
        return self._attributes[name]

    @property
    def lasting_name(self) -> str:
        """The kernel's name, or of a card's sub-function, whose name a reboot changes, ``sf88``."""
        number = self.attribute("sfnum")
        return f"sf{number}" if _SUB_FUNCTION.fullmatch(number) else self.name

    @cached_property
    def subsystem(self) -> str:
        """The subsystem, such as ``tty``. Without one, a device with a USB vendor id is ``usb``."""
        found = self.tree.link(f"{self.path}/subsystem")
        return found or ("usb" if self.attribute("idVendor") else "")

    @cached_property
    def own_driver(self) -> str:
        """The driver that is bound to the device itself."""
        return self.tree.link(f"{self.path}/driver")

    @cached_property
    def driver(self) -> str:
        """The driver of the device, or of the nearest device above it that has one."""
        return next((name for one in self.line if (name := one.own_driver)), "")

    @cached_property
    def node(self) -> str:
        """The path of its device node, below the tree's ``dev``; empty if it has none."""
        return self.tree.node(self.path)

    @cached_property
    def line(self) -> tuple["Device", ...]:
        """The device itself and those above it, the nearest first."""
        parent = posixpath.dirname(self.path)
        return (self, *(self.tree.device(parent).line if self.tree.contains(parent) else ()))

    def nearest(self, *subsystems: str) -> "Device | None":
        """Return the nearest device of ``subsystems``, itself or above it, or None.

        The interfaces of a USB device do not count as devices.
        """
        for one in self.line:
            if one.subsystem in subsystems and not (one.subsystem == "usb" and ":" in one.name):
                return one
        return None

    @cached_property
    def owner(self) -> "Device":
        """The USB or PCI device that it is or is part of; otherwise the nearest device above it.

        That is what one plugs in. If there is nothing above it, it is the device itself.
        """
        above = (one for one in self.line[1:] if one.subsystem)
        return self.nearest("usb", "pci") or next(above, self)

    @cached_property
    def port(self) -> str:
        """The USB port or PCI address of its owner; empty if the owner is neither."""
        parent = self.nearest("usb", "pci")
        return parent.name if parent else ""

    def number(self, which: int) -> int | None:
        """Return vendor (0) or product (1) of the nearest USB or PCI device."""
        parent = self.nearest("usb", "pci")
        text = parent.attribute(_IDS[parent.subsystem][which]) if parent else ""
        found = _NUMBERS[parent.subsystem].fullmatch(text) if parent else None
        return int(found[1], 16) if found else None

    @cached_property
    def serial(self) -> str:
        """The serial number of the device, or of the nearest one up to its USB or PCI device.

        Devices further above do not count: a root hub has the name of its controller there.
        """
        own = self.nearest("usb", "pci")
        until = self.line.index(own) + 1 if own else len(self.line)
        return next((text for one in self.line[:until] if (text := one.attribute("serial"))), "")

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """Its properties in udev's database; empty if the database cannot be read."""
        return dict(line[2:].split("=", 1) for line in self._udev("E:") if "=" in line)

    @property
    def links(self) -> list[str]:
        """The paths of udev's links to it."""
        return [f"/dev/{line[2:]}" for line in self._udev("S:")]

    def _udev(self, start: str) -> list[str]:
        number = _DEV.fullmatch(self.attribute("dev"))
        kind = "b" if self.subsystem == "block" else "c"
        name = f"{kind}{number[0]}" if number else f"+{self.subsystem}:{self.name}"
        try:
            text = (self.tree.udev / name).read_bytes().decode(errors="replace")
        except OSError:
            return []
        # A device's own strings are in it, so no other character may end a line than for udev.
        return [line for line in text.split("\n") if line.startswith(start)]

    def behind(self, *subsystems: str) -> Iterator["Device"]:
        """Yield devices with device nodes, at or below this one, of ``subsystems`` or of any.

        USB and PCI devices below it are excluded with all that is below them, as behind a hub. So
        are sub-functions of a network card.
        """
        if self.node and (self.subsystem in subsystems or not subsystems):
            yield self
        for name in sorted(self.tree.entries(self.path)):
            path = f"{self.path}/{name}"
            if not os.path.isdir(path) or os.path.islink(path):  # noqa: PTH112, PTH114
                continue
            child = self.tree.device(path)
            if child.attribute("idVendor") or child.attribute("class").startswith("0x"):
                continue
            if child.attribute("sfnum"):
                continue
            yield from child.behind(*subsystems)


def _unannounced(name: str) -> str:
    return name if _UNANNOUNCED.fullmatch(name) else ""
