"""NUMA nodes of devices: one rule for what the kernel says, and one for what the kubelet is told.

The kernel's -1, and whatever is absent or no number, is no node. A resource has topology for all of
its devices or for none: under its stricter policies, the kubelet rejects pods over a mixture.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from deviceplugin.model import Device, Topology
from deviceplugin.topology import nearest_numa_node, sysfs_numa_node

__all__ = ["Even", "even", "mixture", "nearest_node", "node", "topology"]

_SYSFS: Final = Path("/sys")
_FEW: Final = 3
"""Devices that are named."""

nearest_node = nearest_numa_node


def node(folder: Path | str, *, sysfs: Path = _SYSFS) -> int | None:
    """Return the NUMA node of the device in a directory of sysfs, or None.

    That of the nearest device above it, where it has none of its own. A path that is not absolute
    is below ``sysfs``; nothing outside of it is read.
    """
    return sysfs_numa_node(sysfs / folder, sysfs=sysfs)


def topology(number: int | None) -> Topology | None:
    """Return what a device with this NUMA node tells the kubelet; nothing for None."""
    return None if number is None else Topology((number,))


class Even(NamedTuple):
    """The devices of a resource, all with topology or none."""

    devices: Sequence[Device]
    reason: str
    """Why topology was taken from devices; empty if it was not."""


def even(devices: Iterable[Device]) -> Even:
    """Return the devices of one resource as the kubelet can place them.

    If a healthy one has no topology, none keeps any. One that is not healthy is not given to pods,
    so it does no harm without. The framework does this with all that it publishes; a plugin needs
    it only to see what becomes of its devices.
    """
    devices = list(devices)
    reason = mixture(devices)
    if not reason:
        return Even(devices, "")
    return Even([replace(one, topology=None) if _nodes(one) else one for one in devices], reason)


def mixture(devices: Sequence[Device]) -> str:
    """Return why these devices of one resource cannot keep their topology; empty if they can."""
    if not any(map(_nodes, devices)):
        return ""
    lacking = [device for device in devices if not _nodes(device) and device.health]
    names = ", ".join(device.id for device in islice(lacking, _FEW))
    more = ", ..." if len(lacking) > _FEW else ""
    found = f"{len(lacking)} of {len(devices)} devices have no NUMA node: {names}{more}"
    return found if lacking else ""


def _nodes(device: Device) -> Sequence[int]:
    return device.topology.numa_nodes if device.topology else ()
