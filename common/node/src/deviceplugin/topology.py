"""Which NUMA node a device is near, from sysfs."""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

SYSFS: Final = Path("/sys")
NUMA_NODES: Final = range(1024)
"""All that Linux can have. -1 stands for a device that is near none."""
_RANGE: Final = re.compile("([0-9]{1,6})(?:-([0-9]{1,6}))?")


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


@lru_cache
def near_numa_nodes(node: int, *, sysfs: Path = SYSFS) -> Sequence[int]:
    """Return ``node``, and then the others of its socket that are next to it.

    Next to it are those at the least distance, by the firmware's table: what Kubernetes means by a
    list in ``resource.kubernetes.io/numaNode``. If the kernel does not say, it is ``node`` alone.
    It is read once.
    """
    nodes = sysfs / "devices" / "system" / "node"
    online = _numbers(_text(nodes / "online").strip())
    distances = _text(nodes / f"node{node}" / "distance").split()
    if len(distances) != len(online) or not all(map(str.isdecimal, distances)):
        return (node,)
    others = {one: int(far) for one, far in zip(online, distances, strict=True) if one != node}
    least = min(others.values(), default=0)
    socket = _socket(node, sysfs)
    near = (one for one, far in others.items() if far == least and _socket(one, sysfs) == socket)
    return (node, *near) if socket else (node,)


def _socket(node: int, sysfs: Path) -> str:
    """Return the number of the socket whose CPUs a NUMA node has; empty if that is not known."""
    system = sysfs / "devices" / "system"
    cpus = _numbers(_text(system / "node" / f"node{node}" / "cpulist").strip())
    path = system / "cpu" / f"cpu{min(cpus, default='')}" / "topology" / "physical_package_id"
    number = _text(path).strip()
    return number if number.isdecimal() else ""


def _numbers(text: str) -> list[int]:
    """Return the numbers in a list of the kernel's, such as ``0-3,8``."""
    found: list[int] = []
    for first, last in _RANGE.findall(text):
        found += range(int(first), min(int(last or first), int(first) + len(NUMA_NODES)) + 1)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
