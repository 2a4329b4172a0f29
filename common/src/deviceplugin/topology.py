"""Which NUMA node a device is near, from sysfs."""

import os
import stat
from pathlib import Path
from typing import Final

SYSFS: Final = Path("/sys")


def numa_node(path: Path | str, *, sysfs: Path = SYSFS) -> int | None:
    """Return the NUMA node of the device node at ``path``.

    None where the path is no device node, where the kernel does not say, and on machines without
    NUMA. Follows links. Source: ``numa_node`` of the nearest parent device in ``sysfs``.
    """
    try:
        status = Path(path).stat()
    except (OSError, ValueError):  # a ValueError where it cannot be a path
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

    A directory without a node of its own has that of the nearest directory above it.
    """
    try:
        device = device.resolve(strict=True)
        root = sysfs.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    while root in device.parents:
        node = _read_node(device / "numa_node")
        if node is not None:
            return node if node >= 0 else None
        device = device.parent
    return None


def _read_node(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
