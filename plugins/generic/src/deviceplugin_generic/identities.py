"""Ids of devices, and the properties that templates can use.

An id is made of what the device itself is and where it is, never of what else is there or in which
order, so that it cannot come to mean another device. See the README for what which id outlasts.
"""

import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from deviceplugin_generic import globs
from deviceplugin_generic.entries import Entry, Identity
from deviceplugin_generic.matching import Match
from deviceplugin_generic.sysfs import VFIO, Tree

_LONGEST: Final = 63
_ODD: Final = re.compile(r"[^!-~]")
_PORT: Final = re.compile(r"[0-9]+-[0-9]+(\.[0-9]+)*")
_ONE_EACH: Final = frozenset({"hidraw", "input", "tty", "usbmisc", "video4linux"})
"""Subsystems of which a USB interface has one device, as a rule, or several that it counts."""


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


class Ledger:
    """What the devices of an entry have been called, so that their ids stay theirs.

    A device keeps its name while it is there: a second one of the same serial number is told from
    it by its port, and does not rename it. Once several have been seen, those that come later are
    told apart even if they are alone.
    """

    def __init__(self) -> None:
        self._doubled: set[str] = set()
        self._crowded: set[str] = set()
        self._held: dict[str, str] = {}

    def names(self, stems: Sequence[Stem]) -> list[str]:
        """Return the names of all devices that are there now."""
        ports: dict[str, str] = {}
        for stem in stems:
            if stem.is_doubled or ports.setdefault(stem.head, stem.port) != stem.port:
                self._doubled.add(stem.head)
            if stem.is_crowded:
                self._crowded.add(stem.slot)
        self._held = {stem.full: self._name(stem) for stem in stems}
        return [self._held[stem.full] for stem in stems]

    def _name(self, stem: Stem) -> str:
        known = self._held.get(stem.full)
        return known or stem.text(
            doubled=stem.head in self._doubled, crowded=stem.slot in self._crowded
        )


def path_id(share: int, paths: Sequence[str]) -> str:
    """Return the id that generic-device-plugin gives to a share of a device with these paths."""
    text = f"{share}{''.join(paths)}"
    return hashlib.sha1(text.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()


def stems(match: Match, entry: Entry, identity: Identity, tree: Tree) -> list[Stem]:
    """Return what tells a match from others: a stem for each of the things it is made of."""
    found = [_stem(one, entry, identity, tree) for one in match.parts or (match,)]
    return list(dict.fromkeys(found))


def _stem(match: Match, entry: Entry, identity: Identity, tree: Tree) -> Stem:
    device = match.device
    if device is None and match.nodes:
        device = tree.of_node(match.paths[0])
    if device is None or (device.owner is device and not match.in_sysfs and not device.port):
        path = match.paths[0]
        return Stem(_escaped(path if _spans(entry) else posixpath.basename(path), "/"))
    is_owner, in_usb = device.owner is device, device.nearest("usb") is not None
    part = f":{device.interface}" if device.interface else ""
    part += f".{device.index}" if device.index else ""  # of cameras, which have several nodes
    is_counted = in_usb and device.subsystem in _ONE_EACH
    if not is_owner and not is_counted:
        part += f"/{device.name}"
    if match.behind and any(group.nodes != entry.groups[0].nodes for group in entry.groups):
        part += f"/{match.behind}"
    serial = device.serial if identity == "serial" else ""
    port = device.group_port if match.behind == VFIO else device.owner.name
    return Stem(
        head=_escaped(serial) or port,
        port=port if serial else "",
        tail=part,
        name=device.name if is_counted and not is_owner else "",
        is_doubled=bool(serial)
        and (serial in tree.doubled_serials or bool(_PORT.fullmatch(serial))),
        is_crowded=is_counted and not is_owner and tree.is_crowded(device),
    )


def rule_stem(path: str, dev: str) -> str:
    """Return what the ids of a path of smarter's begin with: unlike its name, no other has it."""
    return _escaped(posixpath.relpath(path, dev))


def _escaped(text: str, safe: str = "") -> str:
    """Return a text without what separates the parts of an id, each other text differently."""
    return quote(text, safe=safe, errors="surrogateescape")


def _spans(entry: Entry) -> bool:
    """Tell whether paths in several directories can be of one entry, with one name perhaps."""
    paths = [posixpath.normpath(spec.path) for group in entry.groups for spec in group.paths]
    folders = {posixpath.dirname(path) for path in paths}
    return len(folders) > 1 or any(globs.is_magic(folder) for folder in folders)


def share_id(stem: str, share: int, count: int) -> str:
    """Return the id of a share, of at most 63 characters that can be read."""
    text = _ODD.sub("_", f"{stem}::{share}" if count > 1 else stem)
    return text if len(text) <= _LONGEST else path_id(share, [stem])


def properties(name: str, index: int, match: Match) -> Mapping[str, str]:
    """Return what templates can use, but for the id and the share."""
    device = match.device
    path = match.paths[0] if match.paths else ""
    found = {"name": name, "index": str(index), "path": path, "basename": posixpath.basename(path)}
    if device is None:
        return found
    pci = device.nearest("pci")
    numbers = [device.number(which) for which in (0, 1)]
    texts = ["" if number is None else f"{number:04x}" for number in numbers]
    return found | {
        "serial": device.serial,
        "port": device.port,
        "vendor": texts[0],
        "product": texts[1],
        "address": pci.name if pci else "",
        "group": device.group,
        "driver": device.driver,
    }
