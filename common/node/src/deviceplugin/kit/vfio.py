"""VFIO: which device nodes a program or a virtual machine needs to drive a device itself.

What the kernel has for the device is looked up and nothing is computed: its IOMMU group, the
group's node, or the devices' own nodes where the kernel is built without nodes of groups. It holds
for PCI functions, mediated devices, and devices of the buses amba, cdx, fsl-mc and platform.
"""

import os
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from deviceplugin.kit import pieces
from deviceplugin.kit.hardware import Device
from deviceplugin.kit.sysfs import natural

__all__ = ["Unit", "has", "is_driver", "is_group", "is_reserved", "of"]

_MEDIATED: Final = "mdev"
_BUSES: Final = ("amba", "cdx", "fsl-mc", _MEDIATED, "pci", "platform")
_DRIVERS: Final = frozenset({"vfio-amba", "vfio-cdx", "vfio-fsl-mc", "vfio-platform"})
"""Drivers of VFIO besides those for PCI, all of whose names end alike."""
_HARMLESS: Final = frozenset({"", "fsl_mc_dprc", "pci-stub", "pcieport"})
"""Drivers that do no DMA of their own, and none: the kernel shares a group between them and VFIO.
"""
_STUBS: Final = frozenset({"pci-stub", "pciback", "xen-pciback"})
"""Drivers that only keep others away, until a virtual machine gets the device."""
_GROUP: Final = "iommu_group/"
_BRIDGE: Final = "0x06"
_TO_A_BUS: Final = ("0x0604", "0x0607", "0x0609")
"""Classes of the bridges that have a bus behind them."""


def is_driver(name: str) -> bool:
    """Return whether a driver is one of VFIO: ``vfio-pci``, a variant of it, or of another bus.

    Variants, such as ``mlx5_vfio_pci``, are drivers for one kind of card, for example to migrate
    virtual machines.
    """
    written = name.replace("_", "-")
    return written.endswith("vfio-pci") or written in _DRIVERS


def has(device: Device) -> bool:
    """Return whether VFIO has the device itself, whatever its driver is called.

    A device that VFIO has is on no bus, but below its device, since Linux 6.1.
    """
    if device.subsystem == _MEDIATED:
        return bool(device.own_driver)
    return is_driver(device.own_driver) or bool(_entries(device))


def is_reserved(device: Device) -> bool:
    """Return whether a device is kept for virtual machines: by VFIO, by a stub, or by Xen."""
    return has(device) or device.own_driver in _STUBS


def is_group(piece: str) -> bool:
    """Return whether a piece of hardware is an IOMMU group, which has one holder only."""
    return piece.startswith(_GROUP)


def of(device: Device) -> "Unit | None":
    """Return what VFIO gives away with ``device``, or with the one that it is behind.

    None if it is not behind a device of a bus that VFIO knows.
    """
    candidates = [one for one in device.line if one.subsystem in _BUSES]
    for one in candidates:
        if one.subsystem == _MEDIATED or _group(one) or _entries(one):
            return Unit(one)
    return Unit(candidates[0]) if candidates else None


class Unit:
    """A device with all others of its IOMMU group, which VFIO gives only to one holder."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.group = _group(device)
        """The number of its IOMMU group; empty if it has none. A reboot can change it."""

    @cached_property
    def members(self) -> list[Device]:
        """The devices of the group but bridges, in natural order; the device itself without one."""
        members = [one for one in self._all if not one.attribute("class").startswith(_BRIDGE)]
        return members or [self.device]

    @cached_property
    def _all(self) -> list[Device]:
        tree, folder = self.device.tree, f"{self.device.path}/iommu_group/devices"
        paths = [os.path.realpath(f"{folder}/{name}") for name in tree.entries(folder)]
        return sorted(map(tree.device, paths), key=lambda one: natural(one.name))

    @cached_property
    def _group_node(self) -> str:
        """The node of the group. Without an IOMMU it is ``vfio/noiommu-GROUP``."""
        names = {self.group, f"noiommu-{self.group}"}
        found = (one.node for one in self.device.tree.subsystem("vfio") if one.name in names)
        return next(found, "")

    @cached_property
    def nodes(self) -> list[str]:
        """The paths of the device nodes that a container needs, first the one that all need.

        They are ``vfio/vfio`` and the group's node; in a kernel without nodes of groups ``iommu``
        and the node of each member. Empty if the kernel has neither. A kernel without ``vfio/vfio``
        takes ``iommu`` for groups too.
        """
        tree = self.device.tree
        container, iommu = str(tree.dev / "vfio/vfio"), str(tree.dev / "iommu")
        if self._group_node:
            is_new = tree.is_node(iommu) and not tree.is_node(container)
            return [iommu if is_new else container, self._group_node]
        return [iommu, *self._own] if self._own else []

    @cached_property
    def _own(self) -> list[str]:
        return [entry.node for one in self.members for entry in _entries(one) if entry.node]

    @cached_property
    def also(self) -> list[str]:
        """The paths of nodes that a container can have besides: those of IOMMUFD, with groups.

        Virtual machines that use IOMMUFD need them, and nobody else notices. The kernel opens a
        device either by its group or by its own node. Empty if any of them does not exist.
        """
        more = [str(self.device.tree.dev / "iommu"), *self._own]
        if not (self._group_node and self._own and all(map(self.device.tree.is_node, more))):
            return []
        return [path for path in more if path not in self.nodes]

    @property
    def others(self) -> list[str]:
        """The names of the other members that VFIO has: a virtual machine can have them too."""
        return [one.name for one in self.members if one.name != self.device.name and has(one)]

    @property
    def pieces(self) -> list[str]:
        """What the device is, as pieces of hardware: its group, and the PCI functions of that.

        The group is named after its first device: another group may have its number after a reboot.
        A mediated device is a part of its PCI function. A member that the kernel uses is none: the
        group cannot be had together with it.
        """
        free = [one for one in self.members if not self._is_used(one)]
        functions = (one.nearest("pci") for one in (self.device, *free))
        addresses = dict.fromkeys(pieces.pci(one.name) for one in functions if one)
        return [f"{_GROUP}{self.members[0].name}"] * bool(self.group) + [*addresses]

    @cached_property
    def conflicts(self) -> list[str]:
        """Why the kernel refuses the device to VFIO's users; empty if it does not."""
        name, driver = self.device.name, self.device.own_driver
        if not has(self.device):
            state = f"has the driver {driver}" if driver else "has no driver"
            return [f"{name} {state}: bind it to one of VFIO, such as vfio-pci"]
        others = [
            f"{one.name} has the driver {one.own_driver}" for one in self._all if self._is_used(one)
        ]
        return [f"IOMMU group {self.group} is not viable: {', '.join(others)}"] if others else []

    def _is_used(self, one: Device) -> bool:
        """Return whether the kernel itself uses a member of the group.

        Before Linux 6.1 it did not ask for the drivers of bridges.
        """
        is_exempt = one.attribute("class").startswith(_TO_A_BUS) and not _entries(self.device)
        return not (one.own_driver in _HARMLESS or is_exempt or has(one))

    @cached_property
    def problems(self) -> list[str]:
        """Why a container cannot use the device: conflicts, and what the kernel does not have."""
        return [*self.conflicts, *self._missing()]

    def _missing(self) -> Iterator[str]:
        tree = self.device.tree
        if self.nodes:
            absent = (path for path in self.nodes if not tree.is_node(path))
            yield from (f"{path} does not exist" for path in absent)
        elif not self.group and not _entries(self.device):
            yield f"{self.device.name} has no IOMMU group: enable the IOMMU in firmware and kernel"
        elif has(self.device):
            sought = [self.group] * bool(self.group) + ["devices"]
            names = ", ".join(f"{tree.dev}/vfio/{name}" for name in sought)
            yield f"the kernel has no node of VFIO for {self.device.name}; looked for {names}"


def _group(device: Device) -> str:
    return device.tree.link(f"{device.path}/iommu_group")


def _entries(device: Device) -> list[Device]:
    """Return VFIO's own entries for a device, which have a node if the kernel is built so."""
    tree, folder = device.tree, f"{device.path}/vfio-dev"
    return [tree.device(f"{folder}/{name}") for name in sorted(tree.entries(folder), key=natural)]
