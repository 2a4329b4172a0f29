"""What is valid in a configuration and may still not be what was meant."""

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from deviceplugin_generic.configuration.entries import Configuration, Entry, Group, identity_of

_DRM: Final = "/dev/dri/"
_RENUMBERED: Final = re.compile(r"/dev/(bus/usb/|(ttyUSB|ttyACM|hidraw|video|usb/hiddev|snd/.*D).)")
"""Names that the kernel counts anew when a device is plugged in again."""
_PLUGGED: Final = frozenset({"usb", "tty", "hidraw", "video4linux", "sound", "input", "usbmisc"})
"""Subsystems of what is plugged in, mostly."""


def cautions(configuration: Configuration) -> Iterator[str]:
    """Yield a sentence for each."""
    for entry in configuration.entries:
        if what := next(_renumbered(entry), ""):
            yield (
                f"{entry.name}: an id by path changes when {what} is plugged in again, or restarts "
                "by itself, and comes back under another number: write id: serial, or id: port"
            )
        for path, inside in (pair for group in entry.groups for pair in _renamed(group)):
            yield (
                f"{entry.name}: {path} is {inside} in the container: libdrm looks the kernel's own "
                "name up in sysfs, so that VA-API and OpenGL do not find the device there; leave "
                "mountPath out"
            )


def _renumbered(entry: Entry) -> Iterator[str]:
    """Yield what has an id that follows the kernel's numbers, as of a USB device on its bus."""
    for group in entry.groups:
        if identity_of(entry, group) == "path":
            if group.usb or (group.select and group.select.subsystem in _PLUGGED):
                yield "a device"
            paths = [spec.path for spec in group.paths if not spec.is_mount]
            yield from (path for path in paths if _RENUMBERED.match(path))


def _renamed(group: Group) -> Iterator[tuple[str, str]]:
    """Yield DRM nodes whose names in the container are others, each with that."""
    given = [(spec.path, spec.mount_path) for spec in group.paths if not spec.is_mount]
    if group.select and "drm" in (group.select.subsystem, *group.nodes):
        given.append((f"{_DRM}{group.select.name or '*'}", group.mount_path))
    for path, inside in given:
        names = {posixpath.basename(one) for one in (path, inside)}
        if path.startswith(_DRM) and not inside.endswith("/") and inside and len(names) > 1:
            yield path, inside
