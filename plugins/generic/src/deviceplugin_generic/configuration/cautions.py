"""What is valid in a configuration and may still not be what was meant."""

import re
from collections.abc import Iterator
from typing import Final

from deviceplugin_generic.configuration.entries import (
    CAMERAS,
    Configuration,
    Entry,
    Group,
    Selector,
    identity_of,
)

_SEEKERS: Final = {
    "/dev/bus/usb/": "libusb makes the path from",
    "/dev/dri/": "libdrm, by which VA-API and OpenGL find it, makes the path from",
    "/dev/infiniband/": "libibverbs makes the path from",
    "/dev/vfio/": "QEMU and DPDK make the path from",
}
"""Where programs look for a device by what sysfs says of it, whatever the container has."""
_PLACES: Final = {
    "drm": "/dev/dri/",
    "infiniband_verbs": "/dev/infiniband/",
    "usb": "/dev/bus/usb/*/",
    "vfio": "/dev/vfio/",
    "vfio-dev": "/dev/vfio/devices/",
}
"""The same by subsystem."""
_VIDEO: Final = (CAMERAS, "/dev/video", "/dev/v4l/")
_RENUMBERED: Final = re.compile(r"/dev/(bus/usb/|(ttyUSB|ttyACM|hidraw|video|usb/hiddev|snd/.*D).)")
"""Names that the kernel counts anew when a device is plugged in again."""
_PLUGGED: Final = frozenset({"usb", "tty", "hidraw", "video4linux", "sound", "input", "usbmisc"})
"""Subsystems of what is plugged in, mostly."""


def cautions(configuration: Configuration) -> Iterator[str]:
    """Yield a sentence for each, whatever the plugin may do."""
    for entry in configuration.entries:
        for sentence in (*_numbers(entry), *_names(entry), *_of_vfio(entry)):
            yield f"{entry.name}: {sentence}"


def _numbers(entry: Entry) -> Iterator[str]:
    if what := next(_renumbered(entry), ""):
        yield (
            f"an id by path changes when {what} is plugged in again, or restarts by itself, and "
            "comes back under another number: write id: serial, or id: port"
        )


def _renumbered(entry: Entry) -> Iterator[str]:
    """Yield what has an id that follows the kernel's numbers, as of a USB device on its bus."""
    for group in entry.groups:
        if identity_of(entry, group) == "path":
            if group.usb or (group.select and group.select.subsystem in _PLUGGED):
                yield "a device"
            paths = [spec.path for spec in group.paths if not spec.is_mount]
            yield from (path for path in paths if _RENUMBERED.match(path))


def _names(entry: Entry) -> Iterator[str]:
    for path, inside in (pair for group in entry.groups for pair in _given(group)):
        seeker = next((one for one in _SEEKERS if f"{path}/".startswith(one)), "")
        if seeker and inside and _renames(path, inside):
            yield (
                f"{path} is {inside} in the container: {_SEEKERS[seeker]} what sysfs says, and "
                "does not find the device there; leave mountPath out"
            )


def _of_vfio(entry: Entry) -> Iterator[str]:
    of_vfio = [one for one in entry.groups if "vfio" in one.nodes]
    others = [_subsystem(node) for one in of_vfio for node in one.nodes if node != "vfio"]
    if others:
        yield (
            f"nodes: {', '.join(others)} is not given beside vfio, because who has a device by "
            "VFIO drives it; leave it out"
        )
    shares = max((one.count for one in of_vfio), default=1)
    if shares > 1:
        yield (
            f"count is {shares}: an IOMMU group has one holder, so that only one share of a device "
            "of VFIO can be used; leave count out"
        )


def doubts(entry: Entry) -> Iterator[str]:
    """Yield what cameras have to be opened for, which the plugin may or may not be able to do."""
    selectors = [one for group in entry.groups for one in group.selectors]
    specs = [(one.subsystem, it.abilities) for one in selectors for it in (one, *one.excluded)]
    specs += [(one.path, one.abilities) for group in entry.groups for one in group.paths]
    wanted = {name for what, some in specs if what.startswith(_VIDEO) for name in some}
    if wanted:
        yield (
            f"{entry.name}: can: {', '.join(sorted(wanted))} is asked of each video node, which "
            "takes a plugin that may open it, as with the component generic-privileged; otherwise "
            "all are offered"
        )


def _given(group: Group) -> Iterator[tuple[str, str]]:
    """Yield the device nodes of a group, or patterns of them, with their names in the container."""
    yield from ((spec.path, spec.mount_path) for spec in group.paths if not spec.is_mount)
    own = group.select.subsystem if group.select else "usb" if group.usb else ""
    name = group.select.name if group.select and not group.nodes else ""
    for one in group.nodes or [own]:
        if place := _PLACES.get(_subsystem(one)):
            yield f"{place}{name or '*'}", group.mount_path


def _subsystem(one: str | Selector) -> str:
    return one if isinstance(one, str) else one.subsystem


def _renames(path: str, inside: str) -> bool:
    folder, _, name = path.rpartition("/")
    kept, _, new = inside.rpartition("/")
    return kept != folder or new not in {"", name}
