"""Which devices are recorded, and which of their files."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final, NamedTuple

from typing_extensions import override

from deviceplugin._app.exit_status import complain
from deviceplugin._platform import hooks
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.kit.hardware import Device, Tree
from deviceplugin.kit.sysfs import Kernel, Sysfs, natural

GROUP: Final = "deviceplugin.record"
"""The group of entry points of functions that read what a plugin's discovery reads."""
ATTRIBUTES: Final = (
    *("bDeviceClass", "bInterfaceClass", "bInterfaceNumber", "busnum", "devnum", "idProduct"),
    *("idVendor", "manufacturer", "port_number", "product", "serial", "uniq", "interface"),
    *("class", "device", "vendor", "subsystem_device", "subsystem_vendor", "revision", "label"),
    *("numa_node", "local_cpulist", "sriov_numvfs", "sriov_totalvfs", "dev", "index", "name"),
    *("type", "status", "mode", "state"),
)
"""Names of attributes, of devices of any subsystem."""
_EVENT: Final = "DEVNAME", "DEVTYPE", "DRIVER", "HID_NAME", "HID_UNIQ", "MAJOR", "MINOR"
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


class Asked(NamedTuple):
    """What plugins read of a machine, as far as it belongs to devices."""

    files: Mapping[str, frozenset[str]]
    """Paths of files and links below each device, by the device's path; none where it was found."""
    properties: frozenset[str]
    """Names of udev's properties."""


class _Noting(Kernel):
    """Notes what is read. Whoever looks into a directory has found the device there."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    @override
    def read(self, path: str, most: int = _MOST_BYTES) -> bytes:
        self.paths.add(path)
        return super().read(path, most)

    @override
    def names(self, path: str) -> list[str]:
        self.paths.add(f"{path}/.")
        return super().names(path)

    @override
    def link(self, path: str) -> str:
        self.paths.add(path)
        return super().link(path)

    @override
    def resolve(self, path: str) -> str:
        found = super().resolve(path)
        self.paths.add(f"{found}/.")
        return found


def asked(tree: Tree) -> Asked:
    """Let each installed plugin read the machine, and return what it read."""
    kernel, properties = _Noting(), set[str]()
    noting = Tree(Sysfs(tree.sysfs.root, kernel), dev=tree.dev, udev=tree.udev)
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            read: Callable[[Tree], Iterable[str]] = entry.load()
        except ImportError as error:
            raise ConfigError(f"the plugin {entry.name} cannot be imported: {error}") from error
        try:
            properties |= hooks.call(_finished, read, noting)
        except DevicePluginError as error:
            complain("deviceplugin record", f"the plugin {entry.name}: {error}")
    found: dict[str, set[str]] = {}
    for path in kernel.paths:
        folder, name = posixpath.split(path)
        folder = posixpath.realpath(folder)
        device = folder
        while tree.contains(device) and not posixpath.lexists(f"{device}/subsystem"):
            device = posixpath.dirname(device)
        if tree.contains(device):
            found.setdefault(device, set()).add(posixpath.relpath(f"{folder}/{name}", device))
    return Asked({path: frozenset(names) for path, names in found.items()}, frozenset(properties))


def _finished(read: Callable[[Tree], Iterable[str]], tree: Tree) -> set[str]:
    return {*read(tree)}


def records(tree: Tree) -> Iterator[Record]:
    """Yield USB and PCI devices, devices with character device nodes, and those above them.

    Of devices without nodes, those count that a plugin has read and that are parts of PCI devices:
    ports, regions, network interfaces.
    """
    noted = asked(tree)
    starts = [*tree.subsystem("usb"), *tree.subsystem("pci"), *_with_nodes(tree)]
    starts += [one for one in map(tree.device, noted.files) if one.node or _is_part(one)]
    devices = {one.path: one for start in starts for one in start.line if one.subsystem}
    for path in sorted(devices, key=natural):
        yield _record(devices[path], noted)


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


def _record(device: Device, noted: Asked) -> Record:
    tree, names = device.tree, {*ATTRIBUTES, *noted.files.get(device.path, ())} - {"uevent"}
    lines = tree.text(f"{device.path}/uevent").split("\n")
    events = dict(line.split("=", 1) for line in lines if "=" in line)
    properties: dict[str, str] = {key: events[key] for key in _EVENT if key in events}
    udev = {
        key: text
        for key, text in device.properties.items()
        if key.startswith(_UDEV) or key in noted.properties
    }
    links = [name for name in tree.entries(device.path) if name in names or _LINKS.fullmatch(name)]
    return Record(
        path=f"/devices/{_below(device.path, f'{tree.sysfs.root}/devices')}",
        node=_below(device.node, str(tree.dev)) if device.node else "",
        links=tuple(sorted(link.removeprefix("/dev/") for link in device.links)),
        properties={**properties, **udev, "SUBSYSTEM": device.subsystem},
        attributes={
            name: text.removesuffix("\n")
            for name in sorted(names, key=natural)
            if (text := tree.text(f"{device.path}/{name}"))
            and "\0" not in text
            and len(text) < _MOST_BYTES
        },
        targets={
            name: target
            for name in sorted({*links} - {"subsystem"}, key=natural)
            if (target := _target(tree, f"{device.path}/{name}"))
        },
    )


def _below(path: str, root: str) -> str:
    return posixpath.relpath(path, posixpath.realpath(root) if "/devices" in root else root)


def _target(tree: Tree, path: str) -> str:
    try:
        return tree.sysfs.kernel.link(path)
    except OSError:
        return ""
