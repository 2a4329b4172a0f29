"""Which devices are recorded, and which of their files."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from typing import Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.hardware import Device, Tree
from deviceplugin.kit.sysfs import natural

GROUP: Final = "deviceplugin.record"
"""The group of entry points with further attributes of plugins, by subsystem."""
ATTRIBUTES: Final = (
    *("bDeviceClass", "bInterfaceClass", "bInterfaceNumber", "busnum", "devnum", "idProduct"),
    *("idVendor", "manufacturer", "port_number", "product", "serial", "uniq", "interface"),
    *("class", "device", "vendor", "subsystem_device", "subsystem_vendor", "revision", "label"),
    *("numa_node", "local_cpulist", "sriov_numvfs", "sriov_totalvfs", "dev", "index", "name"),
    *("type", "status", "mode", "state"),
)
"""Names of attributes, of devices of any subsystem."""
_EVENT: Final[tuple[str, ...]] = (
    "DEVNAME",
    "DEVTYPE",
    "DRIVER",
    "HID_NAME",
    "HID_UNIQ",
    "MAJOR",
    "MINOR",
)
_UDEV: Final = ("ID_BUS", "ID_INPUT", "ID_MODEL", "ID_PATH", "ID_REVISION", "ID_SERIAL", "ID_TYPE",
                "ID_USB", "ID_V4L", "ID_VENDOR")  # fmt: skip
_SKIPPED: Final = frozenset({"bsg", "cpuid", "mem", "msr", "vc", "vtconsole"})
_MOST_BYTES: Final = 4096
"""A page: an attribute that fills it may go on."""
_LINKS: Final = re.compile("driver|iommu_group|physfn|virtfn[0-9]{1,5}")


@dataclass(frozen=True)
class Record:
    """A device as it is written down. Values are as in sysfs, without the newline at the end."""

    path: str
    node: str
    links: tuple[str, ...]
    properties: Mapping[str, str]
    attributes: Mapping[str, str]
    targets: Mapping[str, str]


def more_attributes() -> dict[str, list[str]]:
    """Return the patterns of attributes that installed plugins read, by subsystem.

    Raises:
        ConfigError: A plugin cannot be imported.
    """
    found: dict[str, list[str]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            given: Mapping[str, Sequence[str]] = entry.load()
        except ImportError as error:
            raise ConfigError(f"the plugin {entry.name} cannot be imported: {error}") from error
        for subsystem, patterns in given.items():
            found.setdefault(subsystem, []).extend(patterns)
    return found


def records(tree: Tree) -> Iterator[Record]:
    """Yield USB and PCI devices, devices with character device nodes, and those above them.

    Of subsystems whose attributes a plugin reads, devices without nodes count too, if they are
    parts of PCI devices: ports, regions, network interfaces.
    """
    more = more_attributes()
    starts = [*tree.subsystem("usb"), *tree.subsystem("pci"), *_with_nodes(tree)]
    starts += [one for name in more for one in tree.subsystem(name) if _is_part(one)]
    devices = {one.path: one for start in starts for one in start.line if one.subsystem}
    for path in sorted(devices, key=natural):
        yield _record(devices[path], more)


def _with_nodes(tree: Tree) -> Iterator[Device]:
    folder = f"{tree.sysfs.root}/dev/char"
    for name in tree.entries(folder):
        device = tree.device(posixpath.realpath(f"{folder}/{name}"))
        is_console = device.subsystem == "tty" and "/virtual/" in device.path
        if device.subsystem not in _SKIPPED and not is_console:
            yield device


def _is_part(device: Device) -> bool:
    """Return whether a device is a part of a PCI device, and not behind USB."""
    above = {one.subsystem for one in device.line[1:]}
    return "pci" in above and "usb" not in above


def _record(device: Device, more: Mapping[str, Sequence[str]]) -> Record:
    tree = device.tree
    lines = tree.text(f"{device.path}/uevent").split("\n")
    events = dict(line.split("=", 1) for line in lines if "=" in line)
    properties = {key: events[key] for key in _EVENT if key in events}
    udev = {key: text for key, text in device.properties.items() if key.startswith(_UDEV)}
    return Record(
        path=f"/devices/{_below(device.path, f'{tree.sysfs.root}/devices')}",
        node=_below(device.node, str(tree.dev)) if device.node else "",
        links=tuple(sorted(link.removeprefix("/dev/") for link in device.links)),
        properties={**properties, **udev, "SUBSYSTEM": device.subsystem},
        attributes=dict(_attributes(device, (*ATTRIBUTES, *more.get(device.subsystem, ())))),
        targets={
            name: target
            for name in sorted(tree.entries(device.path), key=natural)
            if _LINKS.fullmatch(name) and (target := _target(tree, f"{device.path}/{name}"))
        },
    )


def _below(path: str, root: str) -> str:
    return posixpath.relpath(path, posixpath.realpath(root) if "/devices" in root else root)


def _attributes(device: Device, patterns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and content of the text attributes that match a pattern."""
    depth = max(pattern.count("/") for pattern in patterns)
    for name in sorted(_names(device.tree, device.path, "", depth), key=natural):
        if any(_fits(name, pattern) for pattern in patterns):
            text = device.tree.text(f"{device.path}/{name}")
            if text and "\0" not in text and len(text) < _MOST_BYTES:
                yield name, text.removesuffix("\n")


def _fits(name: str, pattern: str) -> bool:
    return name.count("/") == pattern.count("/") and fnmatchcase(name, pattern)


def _names(tree: Tree, folder: str, prefix: str, depth: int) -> Iterator[str]:
    """Yield the names of files, and with a depth those in directories that are not devices."""
    for name in tree.entries(folder):
        path = f"{folder}/{name}"
        if posixpath.islink(path):
            continue
        if not posixpath.isdir(path):
            yield prefix + name
        elif depth and not posixpath.exists(f"{path}/subsystem"):
            yield from _names(tree, path, f"{prefix}{name}/", depth - 1)


def _target(tree: Tree, path: str) -> str:
    try:
        return tree.sysfs.kernel.link(path)
    except OSError:
        return ""
