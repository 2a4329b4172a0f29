"""NUMA nodes of devices: one rule for reading them, and one for reporting them to the kubelet.

A resource has topology for all of its devices or for none: with its stricter policies, the kubelet
rejects pods that get a mixture.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from deviceplugin.model import Device, Topology
from deviceplugin.topology import SYSFS, nearest_numa_node, sysfs_numa_node

__all__ = ["Even", "even", "mixture", "nearest_node", "node", "topology"]

_FEW: Final = 3
"""Devices that a message names."""

nearest_node = nearest_numa_node


def node(folder: Path | str, *, sysfs: Path = SYSFS) -> int | None:
    """Return the NUMA node of the device in a directory of sysfs, or None.

    If it has none of its own, it has the node of the nearest device above it. A relative path is
    below ``sysfs``; nothing outside of ``sysfs`` is read.
    """
    return sysfs_numa_node(sysfs / folder, sysfs=sysfs)


def topology(number: int | None) -> Topology | None:
    """Return the topology of a device with this NUMA node; None without a node."""
    return None if number is None else Topology((number,))


class Even(NamedTuple):
    """The devices of a resource, either all with topology or all without."""

    devices: Sequence[Device]
    reason: str
    """Why topology was removed from devices; empty if it was not."""


def even(devices: Iterable[Device]) -> Even:
    """Return the devices of one resource in a form that the kubelet can place.

    If a healthy device has no topology, all lose theirs. An unhealthy one without topology does not
    matter, because no pod gets it. The framework does this with all devices that it publishes. A
    plugin needs it only to see the result.
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
