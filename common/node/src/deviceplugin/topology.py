"""Which NUMA node a device is near, from sysfs."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SYSFS: Final = Path("/sys")
NUMA_NODES: Final = range(1024)
"""All that Linux can have. -1 stands for a device that is near none."""


def numa_node(path: Path | str, *, sysfs: Path = SYSFS) -> int | None:
    """Return the NUMA node of the device node at ``path``.

    None if the path is not a device node, if the kernel does not know, and on machines without
    NUMA. Follows links. Source: ``numa_node`` of the nearest parent device in ``sysfs``.
    """
    try:
        status = Path(path).stat()
    except (OSError, ValueError):  # a ValueError if it cannot be a path
        return None
    if stat.S_ISCHR(status.st_mode):
        kind = "char"
    elif stat.S_ISBLK(status.st_mode):
        kind = "block"
    else:
        return None
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return sysfs_numa_node(sysfs / "dev" / kind / number, sysfs=sysfs)


def sysfs_numa_node(device: Path, *, sysfs: Path = SYSFS) -> int | None:
    """Return the NUMA node of the device whose sysfs directory is ``device``, or None.

    A directory without a node of its own has the node of the nearest directory above it.
    """
    try:
        device = device.resolve(strict=True)
        root = sysfs.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    folders = (folder for folder in (device, *device.parents) if root in folder.parents)
    return nearest_numa_node(_text(folder / "numa_node") for folder in folders)


def nearest_numa_node(texts: Iterable[str]) -> int | None:
    """Return the node from the ``numa_node`` files of a device and of those above it.

    ``texts`` are what the files contain, the nearest device first. The first that is a number
    decides. None if there is no number, or if Linux cannot have such a node: -1, for example.
    """
    for text in texts:
        try:
            node = int(text)
        except ValueError:
            continue
        return node if node in NUMA_NODES else None
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
