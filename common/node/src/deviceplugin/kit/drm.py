"""What a GPU has in ``/dev/dri``, and whether its driver says that it hangs.

For all drivers that are DRM drivers: of GPUs, and of accelerators that have a render node.
"""

import os
import posixpath
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from deviceplugin.kit.health import absence
from deviceplugin.kit.sysfs import Sysfs, SysfsError

__all__ = ["Hang", "Hangs", "Nodes", "Wedged", "binding", "nodes", "wedged"]

_CARD: Final = re.compile("card[0-9]{1,9}")
_RENDER: Final = re.compile("renderD[0-9]{1,9}")
_DEVICE: Final = re.compile("(.+)/drm/card[0-9]{1,9}")
_RECOVERED: Final = "none"


class Nodes(NamedTuple):
    """The device nodes of one GPU, or of a part of one. Both change over reboots: make no id of it.

    A GPU without outputs can have no card, and one that only shows pictures no render node.
    """

    card: str
    """Such as ``card1``; empty where there is none."""
    render: str
    """Such as ``renderD128``; empty where there is none."""

    @property
    def minor(self) -> int | None:
        """Number of the render node, by which other parts of the kernel name it."""
        return int(self.render.removeprefix("renderD")) if self.render else None

    def existing(self, dev: Path = Path("/dev")) -> list[str]:
        """Return those that exist, such as ``dri/card1``, the card first."""
        return [name for name, why in self.absences(dev).items() if not why]

    def absences(self, dev: Path = Path("/dev")) -> dict[str, str]:
        """Return why each of them is not there, such as ``dri/card1``; empty if it is there."""
        names = [f"dri/{name}" for name in self if name]
        return {name: absence(dev / name) for name in names}


def nodes(sysfs: Sysfs, folder: str | PathLike[str]) -> Nodes:
    """Return the nodes of the device in a directory of sysfs, such as a PCI function's.

    Empty names where it has none, or they cannot be listed.
    """
    place = sysfs.path(posixpath.join(folder, "drm"))
    try:
        names = [] if os.path.islink(place) else sysfs.names(place)  # noqa: PTH114 - never raises
    except SysfsError:
        names = []
    card = next((name for name in names if _CARD.fullmatch(name)), "")
    return Nodes(card, next((name for name in names if _RENDER.fullmatch(name)), ""))


class Wedged(NamedTuple):
    """A driver says that its device hangs, and how it can be recovered (Linux 6.15 or newer)."""

    folder: str
    """The directory of the device below that of sysfs, such as
    ``devices/pci0000:00/0000:00:02.0``."""
    ways: str
    """Such as ``rebind,bus-reset``, the least first. The driver itself has given up."""

    @property
    def is_recovered(self) -> bool:
        """Whether the driver has recovered the device by itself."""
        return self.ways == _RECOVERED


def wedged(event: Mapping[str, str]) -> Wedged | None:
    """Return what an event of the kernel says of a device that hangs; None for any other event.

    For the parameter ``heard`` of ``kit.udev``. The event comes once: whoever wants to know it
    later has to remember it, until the driver is bound to the device anew.
    """
    ways = event.get("WEDGED", "")
    place = _DEVICE.fullmatch(event.get("DEVPATH", "").lstrip("/"))
    return Wedged(place[1], ways) if place and ways else None


def binding(folder: str | PathLike[str]) -> int:
    """Return a number that a device has only while its driver stays bound; 0 if there is none.

    It is the inode of its directory ``drm``, which is a new one whenever a driver is bound.
    """
    try:
        return Path(folder, "drm").stat().st_ino
    except OSError:
        return 0


class Hang(NamedTuple):
    """Whether a device hangs."""

    ways: str
    """How it can be recovered, as in `Wedged`; empty if it does not hang."""
    has_recovered: bool
    """Whether the driver has recovered the device by itself since the last check of it."""


class Hangs:
    """Which devices hang, by the events of their drivers. Thread-safe.

    A driver reports a hang once. It lasts until the driver has recovered the device, or is bound to
    it anew.

    Args:
        sysfs: Where the devices are.
        remembered: What ``remembered`` was in an earlier process, from a state file.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: ``remembered`` is something else.
    """

    def __init__(self, sysfs: Sysfs, remembered: Mapping[str, Any] | None = None) -> None:
        self._sysfs = sysfs
        self._lock = Lock()
        self._hanging = {
            str(name): (int(one["binding"]), str(one["ways"]))
            for name, one in (remembered or {}).items()
        }
        self._recovered: dict[str, int] = {}

    def heard(self, event: Mapping[str, str]) -> None:
        """Take note of an event, for the parameter ``heard`` of ``kit.udev``."""
        said = wedged(event)
        if said is None:
            return
        folder = self._sysfs.root / said.folder
        now = binding(folder)
        with self._lock:
            if said.is_recovered:
                self._hanging.pop(folder.name, None)
                self._recovered[folder.name] = now
            else:
                self._hanging[folder.name] = now, said.ways

    def check(self, folder: str | PathLike[str]) -> Hang:
        """Return whether the device in a directory of sysfs hangs.

        Devices are known by the last part of ``folder``, such as a PCI address.
        """
        name, now = Path(folder).name, binding(folder)
        with self._lock:
            bound, ways = self._hanging.get(name, (now, ""))
            if now not in (bound, 0):
                del self._hanging[name]
                ways = ""
            recovered = self._recovered.pop(name, 0)
            return Hang(ways, bool(recovered) and recovered == now)

    @property
    def remembered(self) -> dict[str, dict[str, Any]]:
        """The hangs in a form that JSON can represent, for a state file."""
        with self._lock:
            return {
                name: {"binding": bound, "ways": ways}
                for name, (bound, ways) in self._hanging.items()
            }
