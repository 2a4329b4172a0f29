"""Pieces of hardware: what two devices have in common if they are the same thing.

A device node is known by its device number, so a link and its target are one piece, and so are a
directory and each node below it. Anything else is known by its path or name.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from deviceplugin.model import Device

__all__ = ["CONTROL_NODES", "is_node", "named_by", "of", "pci"]

CONTROL_NODES: Final = frozenset(
    {
        "iommu",
        "kfd",
        "nvidia-modeset",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "nvidiactl",
        "rdma_cm",
    }
)
"""Names of device nodes that all devices of a driver have in common. With VFIO's ``vfio/vfio``,
they are no piece of any device, even where there is only one."""
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


def _pieces(name: str) -> Iterator[str]:
    if not name.startswith("/") or "\0" in name:
        yield name
        return
    if number := _device_number(name):
        yield from () if _is_control(name) else (number,)
        return
    yield os.path.realpath(name)
    if os.path.isdir(name):  # noqa: PTH112 - there are many
        yield from _below(name)


def _device_number(path: str) -> str:
    """Return the device number of a device node; empty if it is none, or cannot be read."""
    try:
        status = os.stat(path)  # noqa: PTH116 - there are many
    except OSError:
        return ""
    if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
        return ""
    kind = "c" if stat.S_ISCHR(status.st_mode) else "b"
    return f"{kind}{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _below(folder: str) -> Iterator[str]:
    left = _MOST_BELOW
    for here, _, names in os.walk(folder):
        for name in names[:left]:
            path = f"{here}/{name}"
            if (number := _device_number(path)) and not _is_control(path):
                yield number
        left -= len(names)
        if left <= 0:
            return


def _is_control(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return name in CONTROL_NODES or (name == "vfio" and folder.endswith("/vfio"))
