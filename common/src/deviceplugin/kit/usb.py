"""USB devices, and ids of what is behind them that survive being plugged in again.

An id is made of what the device itself is and where it is, never of what else is there or in which
order, so that it cannot come to mean another device. That holds for devices of other buses too.
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
"""Subsystems of which a USB interface has one device, as a rule, or several that it counts."""


class Units:
    """The USB devices of one look, and who of them and of their parts can be taken for another."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._slots: dict[str, Counter[tuple[str, str, str, str]]] = {}

    @cached_property
    def all(self) -> list[Device]:
        """All USB devices, hubs among them, without their interfaces."""
        return [one for one in self._tree.subsystem("usb") if one.nearest("usb") is one]

    @cached_property
    def doubled_serials(self) -> frozenset[str]:
        """Serial numbers that several USB devices have, whatever they are."""
        numbers = Counter(one.attribute("serial") for one in self.all)
        return frozenset(text for text, number in numbers.items() if number > 1 and text)

    def is_crowded(self, device: Device) -> bool:
        """Return whether others of its subsystem are in its place of a USB device."""
        name = device.subsystem
        if name not in self._slots:
            parts = (one for one in self._tree.subsystem(name) if one.nearest("usb"))
            self._slots[name] = Counter(map(_slot, parts))
        return self._slots[name][_slot(device)] > 1


def bus_node(device: Device, dev: Path) -> str:
    """Return the path of a USB device's node below ``dev``; empty if sysfs has no numbers for it.

    A device gets another number each time that it is plugged in: it is no id.
    """
    texts = [device.attribute(name) for name in ("busnum", "devnum")]
    if not all(_NUMBER.fullmatch(text) for text in texts):
        return ""
    bus, number = map(int, texts)
    return str(dev / f"bus/usb/{bus:03}/{number:03}")


def interface(device: Device) -> str:
    """Return configuration and number of its USB interface, such as ``1.0``; of none above that."""
    found = (one.name for one in _within(device) if one.attribute("bInterfaceNumber"))
    return next(found, "").partition(":")[2]


def index(device: Device) -> str:
    """Return which part of its USB interface it is, by what outlasts being plugged in again.

    That is the device behind a receiver, the kernel's index, the number of a port, and of input
    devices the kind.
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
    """Return the device itself and those above it, as far as they are parts of a USB device."""
    own = device.nearest("usb")
    return device.line[: device.line.index(own)] if own else ()


def _slot(device: Device) -> tuple[str, str, str, str]:
    """Return where it is among the parts of its owner, as far as the kernel does not count."""
    return device.owner.path, interface(device), device.subsystem, index(device)


@dataclass(frozen=True, slots=True)
class Stem:
    """What the ids of a device begin with, in its parts."""

    head: str
    """Its serial number; or its port, or its name."""
    port: str = ""
    """Where it is, if ``head`` does not tell that."""
    tail: str = ""
    """Which part of the device with that number or at that port it is."""
    name: str = ""
    """The kernel's name, if ``tail`` may not suffice."""
    is_doubled: bool = False
    """Whether others have the same ``head``."""
    is_crowded: bool = False
    """Whether others have the same port and ``tail``."""

    @property
    def slot(self) -> str:
        """What several devices have in common where they are told apart by their names only."""
        return f"{self.port or self.head}{self.tail}"

    @property
    def full(self) -> str:
        """All of it."""
        return self.text(doubled=True, crowded=True)

    def text(self, *, doubled: bool, crowded: bool) -> str:
        """Return as much of it as tells the device from others."""
        port = f"@{self.port}" if doubled and self.port else ""
        name = f"/{self.name}" if crowded and self.name else ""
        return f"{self.head}{port}{self.tail}{name}"


def stem(
    device: Device, units: Units, *, by_serial: bool = True, port: str = "", part: str = ""
) -> Stem:
    """Return what the ids of a device are made of.

    Args:
        device: Of any bus.
        units: Of the same look.
        by_serial: Whether its serial number is to be its name, where it has one: then the id moves
            with it to another port. Else it is the port.
        port: Where it is; the address or port of its owner where not given.
        part: What tells one thing that is given of the device from another, if there are several.
    """
    is_owner, in_usb = device.owner is device, device.nearest("usb") is not None
    at = interface(device)
    tail = f":{at}" if at else ""
    number = index(device)
    tail += f".{number}" if number else ""  # of cameras, which have several nodes
    is_counted = in_usb and device.subsystem in _ONE_EACH
    if not is_owner and not is_counted:
        tail += f"/{device.name}"
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
    """Return a text without what separates the parts of an id, each other text differently."""
    return quote(text, safe=safe, errors="surrogateescape")


class Ledger:
    """What devices have been called, so that their ids stay theirs. Keep one from look to look.

    A device keeps its name while it is there: a second one of the same serial number is told from
    it by its port, and does not rename it. Once several have been seen, those that come later are
    told apart even if they are alone.
    """

    def __init__(self) -> None:
        self._doubled: set[str] = set()
        self._crowded: set[str] = set()
        self._held: dict[str, str] = {}

    def names(self, stems: Sequence[Stem]) -> list[str]:
        """Return the names of all devices that are there now, in the order of ``stems``."""
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
