"""Directories as devices: a runtime gives a container the device nodes in them."""

import os
from collections.abc import Iterator
from itertools import islice
from stat import S_ISBLK, S_ISCHR, S_ISDIR
from typing import Final

_PASSED_OVER: Final = frozenset(
    {"pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev", "console"}
)
"""Names in a directory that runtimes ignore."""
_MOST_NAMES: Final = 10_000
"""The most names that are read in search of a device node."""
_MOST_FOLDERS: Final = 100
"""The most directories below a device that are watched."""


def has_node(path: str) -> bool:
    """Return whether a directory has a device node, at any depth.

    Links do not count, because runtimes do not follow links inside a directory.
    """
    return any(_is_node(one) for one in islice(_below(path), _MOST_NAMES))


def folders(path: str) -> list[str]:
    """Return a directory and those below it, in which device nodes can come and go."""
    below = (one.path for one in islice(_below(path), _MOST_NAMES) if _is_folder(one))
    return [path, *islice(below, _MOST_FOLDERS)]


def _below(path: str) -> Iterator["os.DirEntry[str]"]:
    """Yield all below a directory, the nearest first. An unreadable directory counts as empty."""
    waiting = [path]
    for folder in waiting:
        try:
            with os.scandir(folder) as found:
                names = [one for one in found if one.name not in _PASSED_OVER]
        except OSError:
            continue
        yield from names
        waiting += [one.path for one in names if _is_folder(one)]


def _is_folder(one: "os.DirEntry[str]") -> bool:
    return S_ISDIR(_mode(one))


def _is_node(one: "os.DirEntry[str]") -> bool:
    mode = _mode(one)
    return S_ISCHR(mode) or S_ISBLK(mode)


def _mode(one: "os.DirEntry[str]") -> int:
    try:
        return one.stat(follow_symlinks=False).st_mode
    except OSError:
        return 0
