"""Which processes have the device node of a GPU open, as far as they can be seen from here."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_MAJOR: Final = 195
"""Of the nodes of GPUs, and of nvidiactl and nvidia-modeset."""
_NOT_GPUS: Final = frozenset({254, 255})
_PROC: Final = Path("/proc")
_NODE: Final = re.compile(r"nvidia([0-9]+)")

Wanted = Callable[[int], bool]
"""Returns whether the node with this minor number is meant."""


def users(dev: Path, wanted: Wanted, *, own: bool = False) -> list[str]:
    """Return the processes that have a ``wanted`` node open, as ``name (pid)``; or this one alone.

    Those of other containers cannot be seen, unless they share the namespace of processes.
    """
    files = {*_files(dev, wanted)}
    found = []
    for process in [_PROC / "self"] if own else sorted(_PROC.glob("[0-9]*")):
        # It may have ended, or belong to somebody else.
        with suppress(OSError), os.scandir(process / "fd") as entries:
            if any(_is_meant(one, wanted, files) for one in entries):
                name = (process / "comm").read_text(errors="replace").strip()
                found.append(f"{name} ({process.name})")
    return found


def _files(dev: Path, wanted: Wanted) -> Iterator[tuple[int, int]]:
    for path in dev.glob("nvidia*"):
        if (name := _NODE.fullmatch(path.name)) and wanted(int(name[1])):
            with suppress(OSError):
                status = path.stat()
                yield status.st_dev, status.st_ino


def _is_meant(entry: "os.DirEntry[str]", wanted: Wanted, files: set[tuple[int, int]]) -> bool:
    try:
        status = entry.stat()
    except OSError:  # closed meanwhile
        return False
    if stat.S_ISCHR(status.st_mode):
        major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
        return major == _MAJOR and minor not in _NOT_GPUS and wanted(minor)
    return (status.st_dev, status.st_ino) in files
