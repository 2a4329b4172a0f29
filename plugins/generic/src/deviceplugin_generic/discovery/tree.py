"""A snapshot of the node's devices, and what runtimes make of directories and links in /dev."""

import os
import posixpath
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from stat import S_ISBLK, S_ISCHR, S_ISDIR
from typing import Final

from deviceplugin.kit import hardware, usb
from deviceplugin.kit.configuration import bounded
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_generic.configuration import globs
from deviceplugin_generic.configuration.entries import CAMERAS
from deviceplugin_generic.configuration.globs import Names
from deviceplugin_generic.discovery import abilities
from deviceplugin_generic.discovery.cameras import Cameras

VFIO: Final = "vfio"
VFIO_DEVICES: Final = "vfio-dev"
"""The subsystem of VFIO's nodes of single devices."""

_PASSED_OVER: Final = globs.PASSED_OVER | {"console"}
"""Names in a directory that runtimes ignore."""
_MOST_NAMES: Final = 10_000
"""The most names that are read in search of a device node."""
_MOST_FOLDERS: Final = 100
"""The most directories below a device that are watched."""
_MOST_LINKS: Final = 40
"""Links that the kernel follows on the way along a path."""


@dataclass(frozen=True)
class Roots:
    """The roots of the file systems. Tests use other directories."""

    dev: Path = Path("/dev")
    sys: Path = Path("/sys")
    udev: Path = Path("/run/udev/data")


class Tree(hardware.Tree):
    """A snapshot of sysfs. It caches what it has read, so each discovery needs a new one.

    ``names`` of the last discovery are used again as far as nothing has changed.
    """

    def __init__(
        self,
        roots: Roots | None = None,
        names: Names | None = None,
        sysfs: Sysfs | None = None,
        cameras: Cameras | None = None,
    ) -> None:
        self.roots = roots or Roots()
        super().__init__(sysfs or Sysfs(self.roots.sys), dev=self.roots.dev, udev=self.roots.udev)
        self.names = names or Names(str(self.roots.dev))
        self.names.begin()
        self.cameras = cameras
        self.abilities: dict[str, frozenset[str]] = {}
        """What devices can do that somebody has asked about, by their nodes."""
        self.unknown: dict[str, str] = {}
        """Why that is unknown of others, by their nodes."""
        if cameras:
            cameras.begin()

    def can(
        self, device: hardware.Device | None, wanted: Collection[str], path: str = ""
    ) -> bool | None:
        """Return whether a device can do all that is wanted; None if that is unknown.

        ``path`` is that of its node, if it is not the kernel's.
        """
        found: frozenset[str] | str | None = abilities.in_sysfs(device) if device else None
        if found is None and device and device.subsystem == CAMERAS and self.cameras:
            found = self.cameras.abilities(device, wanted)
        path = path or (device.node or device.name if device else "")
        if isinstance(found, frozenset):
            self.abilities[path] = found
            return found.issuperset(wanted)
        self.unknown[path] = found or "sysfs does not say it"
        return None

    def unknown_abilities(self) -> list[str]:
        """Return a message for each device whose abilities are asked for and unknown."""
        return [
            bounded(f"{node}: unknown what it can do, so that every entry has it: {why}")
            for node, why in sorted(self.unknown.items())
        ]

    @cached_property
    def units(self) -> usb.Units:
        """The USB devices."""
        return usb.Units(self)


def has_node(path: str) -> bool:
    """Return whether a directory has a device node, at any depth."""
    return any(True for _ in nodes_below(path))


def nodes_below(path: str) -> Iterator[str]:
    """Yield the paths of the device nodes in a directory, at any depth.

    Links do not count, because runtimes do not follow links inside a directory.
    """
    return (one.path for one in islice(_below(path), _MOST_NAMES) if _is_node(one))


def folders(path: str) -> list[str]:
    """Return a directory and those below it, in which device nodes can come and go."""
    below = (one.path for one in islice(_below(path), _MOST_NAMES) if _is_folder(one))
    return [path, *islice(below, _MOST_FOLDERS)]


def misplaced(path: str, dev: str) -> str:
    """Return why runtimes must not follow ``path``, if it is below ``dev``; empty if they may.

    They follow all links on the way, and whoever may change one of these chooses the device.
    """
    if not path.startswith(f"{dev}/"):
        return ""
    roots = (os.path.realpath(dev), "/dev")
    for place in _places(f"{roots[0]}{path.removeprefix(dev)}"):
        if folder := next(filter(None, (globs.passed_over(place, root) for root in roots)), ""):
            return f"{path}: leads through {folder}, {globs.REASON}"
        is_on_the_way = any(f"{root}/".startswith(f"{place}/") for root in roots)
        if not (is_on_the_way or place.startswith(tuple(f"{root}/" for root in roots))):
            return f"{path}: leads to {place}, which is not below {dev}"
    return ""


def _places(path: str) -> Iterator[str]:
    """Yield the path of each name that the kernel looks up on the way along ``path``."""
    here, names, links = "/", path.split("/")[::-1], 0
    while names and links < _MOST_LINKS:
        name = names.pop()
        if name == "..":
            here = posixpath.dirname(here)
        elif name not in {"", "."}:
            here = posixpath.join(here, name)
            yield here
            with suppress(OSError):  # it is not a link
                target = os.readlink(here)  # noqa: PTH115 - thousands of these
                names += target.split("/")[::-1]
                here = "/" if target.startswith("/") else posixpath.dirname(here)
                links += 1


def _below(path: str) -> Iterator["os.DirEntry[str]"]:
    """Yield all below a directory, the nearest first. An unreadable directory counts as empty."""
    waiting = [path]
    for folder in waiting:
        try:
            with os.scandir(folder) as found:
                names = [one for one in found if one.name not in _PASSED_OVER]
        except OSError:
            continue
        yield from names
        waiting += [one.path for one in names if _is_folder(one)]


def _is_folder(one: "os.DirEntry[str]") -> bool:
    return S_ISDIR(_mode(one))


def _is_node(one: "os.DirEntry[str]") -> bool:
    mode = _mode(one)
    return S_ISCHR(mode) or S_ISBLK(mode)


def _mode(one: "os.DirEntry[str]") -> int:
    try:
        return one.stat(follow_symlinks=False).st_mode
    except OSError:
        return 0
