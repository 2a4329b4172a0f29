"""Pieces of hardware: what two devices have in common if they are the same thing.

A device node is known by its device number, so a link and its target are one piece, and so are a
directory and each node below it. Anything else is known by its path or name.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from deviceplugin.model import Device

__all__ = ["CONTROL_NODES", "device_number", "is_node", "named_by", "of", "pci"]

CONTROL_NODES: Final = frozenset({"iommu", "kfd", "rdma_cm"})
"""Names of device nodes that all devices of a kind have in common. With VFIO's ``vfio/vfio``, they
are no piece of any device, even where there is only one."""
_NULL: Final = os.makedev(1, 3)
"""/dev/null is no hardware, and every container has it."""
_NODE: Final = re.compile(r"/|[bc][0-9]+:[0-9]+$")
_MOST_BELOW: Final = 4096
"""Most files below a directory that are looked at."""


def pci(address: str) -> str:
    """Return the name of the PCI function at ``address`` as a piece of hardware."""
    return f"pci/{address}"


def of(device: Device) -> frozenset[str]:
    """Return the pieces that ``device`` is: those that it names, or else its device nodes."""
    return named_by(device.hardware or [node.host_path for node in device.nodes])


def named_by(names: Iterable[str]) -> frozenset[str]:
    """Return the pieces that paths and other names stand for. It reads the file system."""
    return frozenset(piece for name in names for piece in _pieces(name))


def is_node(piece: str) -> bool:
    """Return whether ``piece`` is a device node, or another file, and not a name."""
    return _NODE.match(piece) is not None


def device_number(status: os.stat_result) -> str:
    """Return the device number of a device node, such as ``c188:0``; empty if it is none."""
    kinds = {stat.S_IFCHR: "c", stat.S_IFBLK: "b"}
    kind = kinds.get(stat.S_IFMT(status.st_mode), "")
    number = status.st_rdev
    return kind and f"{kind}{os.major(number)}:{os.minor(number)}"


def _pieces(name: str) -> Iterator[str]:
    if not name.startswith("/") or "\0" in name:
        yield name
        return
    try:
        status = os.stat(name)  # noqa: PTH116 - there are many
    except OSError:
        yield os.path.normpath(name)
        return
    if number := device_number(status):
        yield from () if _is_control(name, status) else (number,)
        return
    yield os.path.realpath(name)
    if stat.S_ISDIR(status.st_mode):
        yield from _below(name)


def _below(folder: str) -> Iterator[str]:
    left = _MOST_BELOW
    for here, _, names in os.walk(folder):
        for name in names[:left]:
            path = f"{here}/{name}"
            with suppress(OSError):  # it has just gone
                status = os.stat(path)  # noqa: PTH116
                number = device_number(status)
                if number and not _is_control(path, status):
                    yield number
        left -= len(names)
        if left <= 0:
            return


def _is_control(path: str, status: os.stat_result) -> bool:
    folder, _, name = path.rpartition("/")
    of_vfio = name == "vfio" and folder.endswith("/vfio")
    return name in CONTROL_NODES or of_vfio or status.st_rdev == _NULL
