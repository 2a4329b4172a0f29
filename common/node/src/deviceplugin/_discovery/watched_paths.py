"""Expanding the paths that a plugin watches, and finding changes that cannot be noticed."""

import os
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Final

MAX_DIRECTORIES: Final = 256
"""Most directories that are watched for one path that ends in ``/**``."""
_BELOW: Final = "**"
_SILENT: Final = ("/sys", "/proc")
"""File systems for which inotify does not report changes by the kernel."""


def expanded(path: Path) -> list[Path]:
    """Return ``path`` or, if it ends in ``/**``, its directory and all directories below.

    Those near the top come first. If there are more than ``MAX_DIRECTORIES``, one more than that
    are returned. Links are not followed, and other file systems are not entered.
    """
    if path.name != _BELOW:
        return [path]
    found, waiting = [path.parent], deque([path.parent])
    try:
        device = path.parent.stat().st_dev
    except OSError:
        return found
    while waiting and len(found) <= MAX_DIRECTORIES:
        below = [one for one in _directories(waiting.popleft()) if _device(one) == device]
        found += below
        waiting += below
    return found[: MAX_DIRECTORIES + 1]


def blind_spot(path: Path, watched: Collection[Path]) -> str:
    """Return advice if changes of ``path`` give no event; otherwise an empty string.

    ``watched`` has all watched paths.
    """
    if any(path.is_relative_to(top) for top in _SILENT):
        return f"the kernel reports no changes in /{path.parts[1]}: use changes()"
    try:
        with os.scandir(path) as entries:
            mixed = any(not entry.is_dir(follow_symlinks=False) for entry in entries)
    except OSError:  # not a directory
        return ""
    below = [] if mixed else _directories(path)
    if not below or any(one in watched for one in below):
        return ""
    return f"it has only sub-directories, which are not watched: write {path}/** to watch them too"


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # removed meanwhile, or unreadable
        return []
    return [path / name for name in sorted(names)]


def _device(path: Path) -> int | None:
    try:
        return path.lstat().st_dev
    except OSError:
        return None
