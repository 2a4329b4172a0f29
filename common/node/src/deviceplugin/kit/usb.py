"""USB devices, and ids for the devices behind them that survive replugging.

An id depends on what the device is and where it is plugged in. It never depends on other devices or
on the order of plugging, so it cannot come to mean another device. Devices of other buses can have
such ids too.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import digits
from typing import Final
from urllib.parse import quote

from deviceplugin.kit.hardware import Device, Tree

__all__ = ["Ledger", "Stem", "Units", "bus_node", "escaped", "index", "interface", "stem"]

_NUMBER: Final = re.compile("[0-9]{1,9}")
_PORT: Final = re.compile(r"[0-9]+-[0-9]+(\.[0-9]+)*")
_ONE_EACH: Final = frozenset({"hidraw", "input", "tty", "usbmisc", "video4linux"})
"""Subsystems of which a USB interface usually has one device, or several that it numbers."""


class Units:
    """The USB devices of one snapshot, and which of them, or of their parts, are ambiguous."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._slots: dict[str, Counter[tuple[str, str, str, str]]] = {}

    @cached_property
    def all(self) -> list[Device]:
        """All USB devices, including hubs, without their interfaces."""
        return [one for one in self._tree.subsystem("usb") if one.nearest("usb") is one]

    @cached_property
    def doubled_serials(self) -> frozenset[str]:
        """Serial numbers that several USB devices have, even if they are of different models."""
        numbers = Counter(one.attribute("serial") for one in self.all)
        return frozenset(text for text, number in numbers.items() if number > 1 and text)

    def is_crowded(self, device: Device) -> bool:
        """Return whether its place in a USB device has other devices of its subsystem."""
        name = device.subsystem
        if name not in self._slots:
            parts = (one for one in self._tree.subsystem(name) if one.nearest("usb"))
            self._slots[name] = Counter(map(_slot, parts))
        return self._slots[name][_slot(device)] > 1


def bus_node(device: Device, dev: Path) -> str:
    """Return the path of a USB device's node below ``dev``; empty if sysfs has no numbers for it.

    A device gets a new number each time it is plugged in, so the number is not an id.
    """
    found = [device.attribute(name) for name in ("busnum", "devnum")]
    if not all(_NUMBER.fullmatch(text) for text in found):
        return ""
    bus, number = map(int, found)
    return str(dev / f"bus/usb/{bus:03}/{number:03}")


def interface(device: Device) -> str:
    """Return configuration and number of its USB interface, such as ``1.0``; empty without one."""
    found = (one.name for one in _within(device) if one.attribute("bInterfaceNumber"))
    return next(found, "").partition(":")[2]


def index(device: Device) -> str:
    """Return which part of its USB interface the device is, by facts that survive replugging.

    They are the device behind a receiver, the kernel's index, the number of a port and, for input
    devices, the kind.
    """
    parts = _within(device)
    hids = [one.name for one in parts if one.subsystem == "hid"]
    behind = hids[0].rpartition(".")[0] if len(hids) > 1 else ""
    numbers = (text for one in parts if (text := one.attribute("port_number")))
    port = next(numbers, "0")
    kind = device.name.rstrip(digits) if device.subsystem == "input" else ""
    found = (behind, device.attribute("index"), "" if port == "0" else port, kind)
    return ".".join(filter(None, found))


def _within(device: Device) -> tuple[Device, ...]:
    """Return the device itself and those above it that are parts of the same USB device."""
    own = device.nearest("usb")
    return device.line[: device.line.index(own)] if own else ()


def _slot(device: Device) -> tuple[str, str, str, str]:
    """Return its place among the parts of its owner, without the numbers that the kernel counts."""
    return device.owner.path, interface(device), device.subsystem, index(device)


@dataclass(frozen=True, slots=True)
class Stem:
    """The parts that the id of a device is made from."""

    head: str
    """Its serial number, its port or its name."""
    port: str = ""
    """Its port, unless that is in ``head``."""
    tail: str = ""
    """Which part of the device with that serial number or port it is."""
    name: str = ""
    """The kernel's name, if ``tail`` may be ambiguous."""
    is_doubled: bool = False
    """Whether others have the same ``head``."""
    is_crowded: bool = False
    """Whether others have the same port and ``tail``."""

    @property
    def slot(self) -> str:
        """What devices have in common that differ only in their names."""
        return f"{self.port or self.head}{self.tail}"

    @property
    def full(self) -> str:
        """The id with all its parts."""
        return self.text(doubled=True, crowded=True)

    def text(self, *, doubled: bool, crowded: bool) -> str:
        """Return the id with as many parts as are needed to distinguish the device."""
        port = f"@{self.port}" if doubled and self.port else ""
        name = f"/{self.name}" if crowded and self.name else ""
        return f"{self.head}{port}{self.tail}{name}"


def stem(
    device: Device, units: Units, *, by_serial: bool = True, port: str = "", part: str = ""
) -> Stem:
    """Return the parts that the id of a device is made from.

    Args:
        device: A device of any bus.
        units: The USB devices of the same snapshot.
        by_serial: Whether to use its serial number, if it has one: then the id stays with the
            device when it moves to another port. Otherwise the id has the port.
        port: Its port; by default the address or port of its owner.
        part: What distinguishes several allocatable parts of the device.
    """
    is_owner, in_usb = device.owner is device, device.nearest("usb") is not None
    at = interface(device)
    tail = f":{at}" if at else ""
    number = index(device)
    tail += f".{number}" if number else ""  # for cameras, which have several nodes
    is_counted = in_usb and device.subsystem in _ONE_EACH
    if not is_owner and not is_counted:
        tail += f"/{device.lasting_name}"
    serial = device.serial if by_serial else ""
    port = port or device.owner.name
    return Stem(
        head=escaped(serial) or port,
        port=port if serial else "",
        tail=f"{tail}/{part}" if part else tail,
        name=device.name if is_counted and not is_owner else "",
        is_doubled=bool(serial)
        and (serial in units.doubled_serials or bool(_PORT.fullmatch(serial))),
        is_crowded=is_counted and not is_owner and units.is_crowded(device),
    )


def escaped(text: str, safe: str = "") -> str:
    """Return ``text`` without characters that separate the parts of an id.

    Different strings give different results.
    """
    return quote(text, safe=safe, errors="surrogateescape")


class Ledger:
    """Remembers the names of devices, so that ids stay stable. Use one for all snapshots.

    A device keeps its name while it is present. A second device of the same serial number gets its
    port in its name; the first is not renamed. Once several have been seen, later ones get their
    port in the name even if they are alone.
    """

    def __init__(self) -> None:
        self._doubled: set[str] = set()
        self._crowded: set[str] = set()
        self._held: dict[str, str] = {}

    def names(self, stems: Sequence[Stem]) -> list[str]:
        """Return the names of all present devices, in the order of ``stems``."""
        ports: dict[str, str] = {}
        for one in stems:
            if one.is_doubled or ports.setdefault(one.head, one.port) != one.port:
                self._doubled.add(one.head)
            if one.is_crowded:
                self._crowded.add(one.slot)
        self._held = {one.full: self._name(one) for one in stems}
        return [self._held[one.full] for one in stems]

    def _name(self, one: Stem) -> str:
        known = self._held.get(one.full)
        return known or one.text(
            doubled=one.head in self._doubled, crowded=one.slot in self._crowded
        )
