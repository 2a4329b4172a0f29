"""Who may open device nodes: what a container needs for that if it does not run as root.

A container runtime makes a node anew, with the owner, the group and the mode that it has on the
machine. Groups are compared as numbers, so whether a group has a name does not matter. Access
control lists, as udev writes them for whoever sits at the machine, are not copied.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_IMODE
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.log import few
from deviceplugin_generic.discovery.tree import nodes_below

_BITS: Final = {"r": 4, "w": 2}
_MOST_PATHS: Final = 4


@dataclass(frozen=True)
class Access:
    """Who may open some device nodes. Those that anybody may open are in none of these."""

    groups: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    """Nodes that a group may open, by its number."""
    closed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Nodes that only their owner may open, with their modes and owners."""
    unseen: tuple[str, ...] = ()
    """Nodes that are not visible here, as in a container without the node's /dev."""


def access(nodes: Iterable[dp.DeviceNode], dev: Path = Path("/dev")) -> Access:
    """Return who may open the nodes as their permissions say. A directory is all nodes in it.

    ``dev`` is where the node's ``/dev`` is. Paths in the answer are those on the node.
    """
    groups: dict[int, dict[str, None]] = defaultdict(dict)
    closed: dict[str, str] = {}
    unseen: dict[str, None] = {}
    for node in dict.fromkeys(nodes):  # shares of a device have the same ones
        wanted = sum(_BITS.get(letter, 0) for letter in node.permissions)
        here = _placed(node.host_path, dev)
        is_folder = os.path.isdir(here)  # noqa: PTH112 - never raises
        for place in nodes_below(here) if is_folder else [here]:
            path = f"/dev{place.removeprefix(str(dev))}" if place.startswith(f"{dev}/") else place
            try:
                found = os.stat(place)  # noqa: PTH116 - a link is what it leads to
            except OSError:
                unseen[path] = None
                continue
            if found.st_mode & wanted == wanted:
                continue
            if found.st_mode >> 3 & wanted == wanted:
                groups[found.st_gid][path] = None
            else:
                closed[path] = f"{S_IMODE(found.st_mode):04o} of user {found.st_uid}"
    by_number = {one: tuple(paths) for one, paths in sorted(groups.items())}
    return Access(by_number, closed, tuple(unseen))


def listed(paths: Sequence[str], comma: str = ", ") -> str:
    """Return the first paths, and how many there are besides."""
    return few(paths, _MOST_PATHS, comma)


def _placed(path: str, dev: Path) -> str:
    """Return where a node is here; nodes of ``with`` are written as on the node."""
    is_elsewhere = path.startswith("/dev/") and not path.startswith(f"{dev}/")
    return f"{dev}{path.removeprefix('/dev')}" if is_elsewhere else path
