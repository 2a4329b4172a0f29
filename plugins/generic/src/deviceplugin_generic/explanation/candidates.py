"""What on this machine could be a device of the plugin: device nodes, by what one plugs in."""

import posixpath
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from deviceplugin.kit import vfio
from deviceplugin.kit.hardware import Device
from deviceplugin.kit.sysfs import natural
from deviceplugin_generic.discovery import abilities
from deviceplugin_generic.discovery.tree import VFIO, Tree

_HUB: Final = "09"
_USB: Final = "usb"
_PCI: Final = "pci"
_VDPA: Final = "vdpa"
_EVERYDAY: Final = frozenset(
    [
        "aer", "block", "bsg", "cpuid", "dax", "dma_heap", "fb", "graphics", "iommu", "mem", "msr",
        "mtd", "nvme", "nvme-generic", "port", "ppp", "pps", "printer", "ptp", "rtc",
        "scsi_generic", "tpm", "vc", "vfio", "vfio-dev", "virtio-ports", "vtconsole", "watchdog",
    ]
)  # fmt: skip
"""Subsystems of the kernel's own, whose device nodes nobody gives to a pod."""
_MISC: Final = frozenset(
    [
        "fuse", "kvm", "net/tun", "sgx_enclave", "sgx_provision", "uinput", "vhost-net",
        "vhost-vsock", "vsock",
    ]
)  # fmt: skip
"""Device nodes of the subsystem ``misc`` that pods use; the others are the kernel's own."""


@dataclass(frozen=True)
class Candidate:
    """The device nodes of one subsystem that belong together."""

    owner: Device
    """What one plugs in: a USB device, a PCI function or a sound card; otherwise the device."""
    subsystem: str
    """Of the nodes; ``usb`` for the node of the USB device itself, ``vfio`` for IOMMU groups."""
    parts: tuple[Device, ...] = ()
    """The devices with the nodes, in natural order; empty for ``usb`` and ``vfio``."""

    @property
    def bus(self) -> str:
        """``usb`` or ``pci``, or an empty string for other owners."""
        return self.owner.subsystem if self.owner.subsystem in {_USB, _PCI} else ""

    @property
    def paths(self) -> list[str]:
        """The paths of the nodes on the node, wherever its root is seen from here."""
        return [f"/dev/{posixpath.relpath(one.node, one.tree.dev)}" for one in self.parts]

    @cached_property
    def is_common(self) -> bool:
        """Whether a user may well mean it, unlike consoles, disks and power buttons."""
        if not self.parts:
            return True
        if self.subsystem == "misc":
            return any(path.removeprefix("/dev/") in _MISC for path in self.paths)
        if self.subsystem == "tty" and not self.bus:
            return any(
                "/devices/virtual/" not in one.path and one.attribute("type") != "0"
                for one in self.parts
            )
        if self.subsystem == "input":
            return self.bus == _USB
        return self.subsystem not in _EVERYDAY

    @cached_property
    def facts(self) -> frozenset[str]:
        """What the words of a user are compared with, in lower case."""
        owner = self.owner
        numbers = [owner.number(which) for which in (0, 1)]
        found = {
            owner.name,
            owner.serial,
            owner.driver,
            self.subsystem,
            owner.attribute("product"),
            owner.attribute("manufacturer"),
            ":".join("" if number is None else f"{number:04x}" for number in numbers),
            *(part.name for part in self.parts),
            *(ability for part in self.parts for ability in abilities.in_sysfs(part) or ()),
        }
        return frozenset(text.lower() for text in found if text)

    def matches(self, word: str) -> bool:
        """Return whether the user means it: by the path of a node, or by a part of a fact."""
        if "/" in word:
            return word in self.paths
        return any(word.lower() in fact for fact in self.facts)


def candidates(tree: Tree) -> list[Candidate]:
    """Return all candidates, USB devices first, then PCI, then others, in natural order."""
    groups: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for device in _with_nodes(tree):
        if owner := _owner(device):
            groups[owner.path, device.subsystem].append(device)
    found = [
        Candidate(
            tree.device(path), subsystem, tuple(sorted(parts, key=lambda one: natural(one.name)))
        )
        for (path, subsystem), parts in groups.items()
    ]
    served = {one.owner.path for one in found if one.is_common}
    found += [Candidate(one, _USB) for one in _plugged_in(tree) if one.path not in served]
    found += [Candidate(one, VFIO) for one in tree.subsystem(_PCI) if vfio.has(one)]
    return sorted(found, key=_order)


def _with_nodes(tree: Tree) -> Iterator[Device]:
    """Yield what has a device node, without those of USB devices themselves."""
    for folder in (f"{tree.sysfs.root}/dev/{kind}" for kind in ("char", "block")):
        for name in tree.entries(folder):
            device = tree.device(posixpath.realpath(f"{folder}/{name}"))
            if device.node and (device.subsystem not in {_USB, ""} or device.nearest(_VDPA)):
                yield device


def _owner(device: Device) -> Device | None:
    """Return what a device belongs to; None for what all sound cards share."""
    for one in device.line:
        if one.subsystem == _VDPA or one.lasting_name != one.name:  # a sub-function
            return one
    if owner := device.nearest(_USB, _PCI):
        return owner
    if device.subsystem != "sound":
        return device
    cards = (one for one in device.line[1:] if one.subsystem == "sound")
    return next(cards, None)


def _plugged_in(tree: Tree) -> list[Device]:
    return [
        one
        for one in tree.units.all
        if one.attribute("bDeviceClass") != _HUB and not one.name.startswith("usb")
    ]


def _order(one: Candidate) -> tuple[int, tuple[str, str], tuple[str, str], str]:
    first = one.parts[0].name if one.parts else ""
    return (
        [_USB, _PCI, ""].index(one.bus),
        natural(one.owner.name if one.bus else one.subsystem),
        natural(first),
        one.subsystem,
    )
