"""The interfaces that the node itself depends on: those that have a default route."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin.kit.sysfs import Sysfs

_LOWER: Final = "lower_"
"""Links in the directory of a bond, bridge or VLAN to what it is made of."""
_DEPTH: Final = 8


def default(proc_net: Path, sysfs: Sysfs) -> set[str]:
    """Return the interfaces with a default route, and those that bonds and the like are made of.

    Raises:
        OSError: The routes cannot be read.
    """
    found: set[str] = set()
    level = {*_of_ipv4(proc_net / "route"), *_of_ipv6(proc_net / "ipv6_route")}
    for _ in range(_DEPTH):
        found |= level
        level = {below for one in level for below in _below(one, sysfs)} - found
    return found


def _of_ipv4(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if words[1] == words[7] == "00000000":
            yield words[0]


def _of_ipv6(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:  # no IPv6
        return
    for words in map(str.split, lines):
        if words[:2] == ["0" * 32, "00"]:
            yield words[-1]


def _below(name: str, sysfs: Sysfs) -> Iterator[str]:
    try:
        names = sysfs.kernel.names(sysfs.path(f"class/net/{name}"))
    except OSError:
        return
    yield from (one.removeprefix(_LOWER) for one in names if one.startswith(_LOWER))
