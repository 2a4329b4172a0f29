"""Builds trees of /sys, /dev and udev's database, as far as device plugins read them."""

import os
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

_MINORS: Iterator[int] = count(1)
_CONTROLLER = "pci0000:00/0000:00:14.0"


class Hardware:
    """A node's hardware below ``root``. Nodes of devices are links to /dev/null.

    With ``real`` they are nodes, each with a number of its own: that needs root.
    """

    def __init__(self, root: Path, *, real: bool = False) -> None:
        self._real = real
        self.dev, self.sys, self.udev = root / "dev", root / "sys", root / "udev"
        for path in (self.dev, self.sys / "devices", self.udev):
            path.mkdir(parents=True)
        self._events = self.sys / "kernel" / "uevent_seqnum"
        self._events.parent.mkdir()
        self._events.write_text("1\n")

    def event(self) -> None:
        """Count an event of the kernel, as it does after each change of its devices."""
        self._events.write_text(f"{int(self._events.read_text()) + 1}\n")

    def node(self, name: str) -> Path:
        """Make a device node."""
        path = self.dev / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._real:
            stem, *_, number = re.split(r"(\d+)$", name)[:2] + ["0"] * (not name[-1].isdigit())
            major = 300 + zlib.crc32(stem.encode()) % 3000
            if not path.exists():
                os.mknod(path, 0o020600, os.makedev(major, int(number)))
        elif not path.is_symlink():
            path.symlink_to("/dev/null")
        return path

    def remove_node(self, name: str) -> None:
        """Take a device node away. Its inode is not used again, as in the kernel's own /dev."""
        gone = self.dev.with_name("gone")
        gone.mkdir(exist_ok=True)
        (self.dev / name).rename(gone / str(next(_MINORS)))

    def device(  # noqa: PLR0913
        self,
        path: str,
        subsystem: str,
        *,
        node: str = "",
        driver: str = "",
        attributes: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        links: tuple[str, ...] = (),
        is_bus: bool = False,
    ) -> Path:
        """Make a device below ``/sys/devices``, and what leads to it."""
        folder = self.sys / "devices" / path
        if (folder / "subsystem").exists():
            raise FileExistsError(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in (attributes or {}).items():
            (folder / name).write_text(f"{value}\n")
        root = self.sys / (f"bus/{subsystem}" if is_bus else f"class/{subsystem}")
        entries = root / "devices" if is_bus else root
        entries.mkdir(parents=True, exist_ok=True)
        (entries / folder.name).symlink_to(os.path.relpath(folder, entries))  # as in sysfs
        (folder / "subsystem").symlink_to(root)
        if driver:
            (self.sys / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(self.sys / "drivers" / driver)
        if node:
            number = f"240:{next(_MINORS)}"
            (folder / "dev").write_text(f"{number}\n")
            kind = "block" if subsystem == "block" else "char"
            numbered = self.sys / "dev" / kind
            numbered.mkdir(parents=True, exist_ok=True)
            (numbered / number).symlink_to(folder)
            (folder / "uevent").write_text(f"MAJOR=240\nDEVNAME={node}\n")
            self.node(node)
            lines = [f"E:{key}={value}" for key, value in (properties or {}).items()]
            lines += [f"S:{link}" for link in links]
            (self.udev / f"{kind[0]}{number}").write_text("\n".join(lines))
        self.event()
        return folder

    def pci(
        self,
        address: str,
        numbers: str,
        kind: str,
        *,
        group: str = "",
        driver: str = "",
        numa: int = -1,
    ) -> Path:
        """Make a PCI device with ``numbers`` such as ``8086:1234``, and a class."""
        vendor, product = numbers.split(":")
        values = {"vendor": f"0x{vendor}", "device": f"0x{product}", "class": f"0x{kind}"}
        folder = self.device(
            f"pci0000:00/{address}",
            "pci",
            driver=driver,
            attributes={**values, "numa_node": str(numa)},
            is_bus=True,
        )
        if group:
            self.join(folder, group)
        if group and "vfio" in driver:
            self.vfio(group)
        return folder

    def join(self, folder: Path, group: str) -> None:
        """Have a device in an IOMMU group."""
        members = self.sys / "iommu" / group / "devices"
        members.mkdir(parents=True, exist_ok=True)
        (members / folder.name).symlink_to(folder)
        (folder / "iommu_group").symlink_to(self.sys / "iommu" / group)

    def vfio(self, group: str) -> None:
        """Have the node of an IOMMU group that VFIO has, or that of an unsafe one."""
        for place, subsystem, node in (
            ("virtual/misc/vfio", "misc", "vfio/vfio"),
            (f"virtual/vfio/{group}", "vfio", f"vfio/{group}"),
        ):
            if not (self.sys / "devices" / place).exists():
                self.device(place, subsystem, node=node)

    def vfio_device(self, folder: Path, number: int, *, has_node: bool = True) -> None:
        """Have VFIO's own entry for a device, as since Linux 6.1, and its node if built so."""
        path = f"{folder.relative_to(self.sys / 'devices')}/vfio-dev/vfio{number}"
        self.device(path, "vfio-dev", node=f"vfio/devices/vfio{number}" if has_node else "")
        if has_node and not (self.sys / "devices/virtual/misc/iommu").exists():
            self.device("virtual/misc/iommu", "misc", node="iommu")

    def vhost_vdpa(self, folder: Path, number: int = 0) -> None:
        """Have the node that vhost_vdpa makes for a vDPA device.

        It has neither class nor bus, so the kernel writes nothing into its uevent.
        """
        own = folder / f"vhost-vdpa-{number}"
        own.mkdir()
        (own / "dev").write_text(f"511:{number}\n")
        (own / "uevent").write_text("")
        numbered = self.sys / f"dev/char/511:{number}"
        numbered.parent.mkdir(parents=True, exist_ok=True)
        numbered.unlink(missing_ok=True)
        numbered.symlink_to(own)
        self.node(own.name)

    def usb(self, port: str, numbers: str, device: int, *, serial: str = "") -> str:
        """Make a USB device on bus 1 and return its path below ``/sys/devices``."""
        vendor, product = numbers.split(":")
        values = {"idVendor": vendor, "idProduct": product, "busnum": "1", "devnum": str(device)}
        path = f"{self._hub_of(port)}/{port}"
        attributes = {**values, **({"serial": serial} if serial else {})}
        node = f"bus/usb/001/{device:03}"
        self.device(path, "usb", node=node, attributes=attributes, is_bus=True)
        return path

    def _hub_of(self, port: str) -> str:
        """Return the path of the hub that has the port; the root hub is made if it is not there.

        Its serial number is the name of its controller, as the kernel has it.
        """
        root = f"{_CONTROLLER}/usb1"
        if not (self.sys / "devices" / root).exists():
            values = {"idVendor": "1d6b", "idProduct": "0002", "bDeviceClass": "09"}
            numbers = {"busnum": "1", "devnum": "1", "serial": "0000:00:14.0"}
            self.device(root, "usb", attributes={**values, **numbers}, driver="usb", is_bus=True)
        hub, dot, _ = port.rpartition(".")
        path = f"{self._hub_of(hub)}/{hub}" if dot else root
        return path if (self.sys / "devices" / path).exists() else root

    def behind_usb(  # noqa: PLR0913
        self,
        usb: str,
        interface: str,
        subsystem: str,
        name: str,
        *,
        node: str = "",
        driver: str = "",
        index: str = "",
        properties: Mapping[str, str] | None = None,
        links: tuple[str, ...] = (),
    ) -> Path:
        """Make an interface of a USB device, such as ``1.0``, and a device behind it."""
        port = Path(usb).name
        path = f"{usb}/{port}:{interface}"
        if not (self.sys / "devices" / path).exists():
            number = interface.rpartition(".")[2]
            attributes = {"bInterfaceNumber": f"{int(number):02}"}
            self.device(path, "usb", attributes=attributes, driver=driver, is_bus=True)
        return self.device(
            f"{path}/{subsystem}/{name}",
            subsystem,
            node=node or name,
            attributes={"index": index} if index else {},
            properties=properties,
            links=links,
        )

    def unplug(self, usb: str) -> None:
        """Take a USB device away, and all behind it."""
        folder = self.sys / "devices" / usb
        for path in [*folder.rglob("uevent")]:
            name = path.read_text().partition("DEVNAME=")[2].strip()
            self.remove_node(name)
        for kind in ("class", "bus", "dev"):
            for link in (self.sys / kind).rglob("*"):
                if link.is_symlink() and target_of(link).is_relative_to(folder):
                    link.unlink()
        shutil.rmtree(folder)
        self.event()


def target_of(link: Path) -> Path:
    """Return where a link leads, which may be gone, whether it is relative or not."""
    return Path(os.path.normpath(link.parent / link.readlink()))


def renew(folder: Path) -> None:
    """Have another directory with the same in it, as when a driver is bound anew."""
    old = folder.with_name("old")
    folder.rename(old)
    shutil.copytree(old, folder, symlinks=True)
    shutil.rmtree(old)
