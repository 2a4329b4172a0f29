"""Ids of devices, and the properties that templates can use.

An id is computed from the device itself and its place, and never from other devices or their order,
so that it cannot come to mean another device. The README says how long each kind of id lasts.
"""

import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Final

from deviceplugin.kit import pci, sharing, usb, vfio
from deviceplugin.kit.hardware import Device
from deviceplugin.kit.usb import Stem
from deviceplugin_generic.configuration import globs
from deviceplugin_generic.configuration.entries import Entry, Identity
from deviceplugin_generic.discovery.matching import Match
from deviceplugin_generic.discovery.tree import VFIO, Tree

_LONGEST: Final = 63
_ODD: Final = re.compile(r"[^!-~]")


def path_id(share: int, paths: Sequence[str]) -> str:
    """Return the id that generic-device-plugin gives to a share of a device with these paths."""
    text = f"{share}{''.join(paths)}"
    return hashlib.sha1(text.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()


def stems(match: Match, entry: Entry, identity: Identity, tree: Tree) -> list[Stem]:
    """Return what distinguishes a match from others: a stem for each of its parts."""
    found = [_stem(one, entry, identity, tree) for one in match.parts or (match,)]
    return list(dict.fromkeys(found))


def _stem(match: Match, entry: Entry, identity: Identity, tree: Tree) -> Stem:
    device = match.device
    if device is None and match.nodes:
        device = tree.of_node(match.paths[0])
    if device is None or (device.owner is device and not match.in_sysfs and not device.port):
        path = match.paths[0]
        return Stem(usb.escaped(path if _spans(entry) else posixpath.basename(path), "/"))
    is_part = match.behind and any(group.nodes != entry.groups[0].nodes for group in entry.groups)
    return usb.stem(
        device,
        tree.units,
        by_serial=identity == "serial",
        port=_first_in_group(device) if match.behind == VFIO else "",
        part=match.behind if is_part else "",
    )


def _first_in_group(device: Device) -> str:
    """Return the address of the first device in its IOMMU group, whatever its driver."""
    unit = vfio.of(device)
    return unit.members[0].port if unit else device.port


def rule_stem(path: str, dev: str) -> str:
    """Return the unique prefix of the ids of a path of smarter-device-manager."""
    return usb.escaped(posixpath.relpath(path, dev))


def _spans(entry: Entry) -> bool:
    """Return whether an entry can match paths in several directories, perhaps with one name."""
    paths = [posixpath.normpath(spec.path) for group in entry.groups for spec in group.paths]
    folders = {posixpath.dirname(path) for path in paths}
    return len(folders) > 1 or any(globs.is_magic(folder) for folder in folders)


def share_id(stem: str, share: int, count: int) -> str:
    """Return the id of a share: at most 63 readable characters."""
    text = _ODD.sub("_", sharing.share_id(stem, share) if count > 1 else stem)
    return text if len(text) <= _LONGEST else path_id(share, [stem])


def whole(stem: str, paths: Sequence[str]) -> str:
    """Return the name of the device that shares are of; ``stem`` is empty for ids of paths."""
    text = _ODD.sub("_", stem)
    return text if 0 < len(text) <= _LONGEST else path_id(0, [stem, *paths, "shares"])


def properties(name: str, index: int, match: Match) -> Mapping[str, str]:
    """Return the properties for templates, without the id and the share."""
    device = match.device
    path = match.paths[0] if match.paths else ""
    found = {"name": name, "index": str(index), "path": path, "basename": posixpath.basename(path)}
    if device is None:
        return found
    function, unit = pci.of(device), vfio.of(device)
    numbers = [device.number(which) for which in (0, 1)]
    texts = ["" if number is None else f"{number:04x}" for number in numbers]
    return found | {
        "serial": device.serial,
        "port": device.port,
        "vendor": texts[0],
        "product": texts[1],
        "address": function.address if function else "",
        "group": unit.group if unit else "",
        "driver": device.driver,
    }
