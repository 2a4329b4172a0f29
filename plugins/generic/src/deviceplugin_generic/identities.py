"""Ids of devices, and the properties that templates can use."""

import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Final

from deviceplugin_generic.entries import Identity
from deviceplugin_generic.matching import Match

_LONGEST: Final = 63
_ODD: Final = re.compile(r"[^!-~]")


def path_id(share: int, paths: Sequence[str]) -> str:
    """Return the id that generic-device-plugin gives to a share of a device with these paths."""
    text = f"{share}{''.join(paths)}"
    return hashlib.sha1(text.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()


def base(name: str, match: Match, identity: Identity) -> str:
    """Return what the ids of a device begin with, by its serial number or its port.

    Both are the same after it was plugged in again; a device that has neither has its name.
    """
    device = match.device
    own = posixpath.basename(match.paths[0])
    if device is None:
        return f"{name}-{own}"
    serial = device.serial if identity == "serial" else ""
    parent = device.nearest("usb", "pci")
    stem = serial or (parent.name if parent else device.name if match.in_sysfs else own)
    if device.interface:
        stem += f":{device.interface}"
    if index := device.attribute("index"):  # of cameras, which have several nodes
        stem += f".{index}"
    return f"{name}-{stem}"


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
    parent, pci = device.nearest("usb", "pci"), device.nearest("pci")
    numbers = [device.number(which) for which in (0, 1)]
    texts = ["" if number is None else f"{number:04x}" for number in numbers]
    return found | {
        "serial": device.serial,
        "port": parent.name if parent else "",
        "vendor": texts[0],
        "product": texts[1],
        "address": pci.name if pci else "",
        "group": device.group,
        "driver": device.driver,
    }
