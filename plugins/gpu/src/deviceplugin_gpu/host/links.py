"""Following links inside a file system that is mounted elsewhere, and finding names in it."""

from pathlib import Path, PurePosixPath
from typing import Final

_MOST_LINKS: Final = 40
"""The kernel's limit."""


def resolve(root: Path, path: str) -> str | None:
    """Return what ``path`` below ``root`` resolves to, relative to ``root``.

    A link to ``/x`` resolves to ``x`` below ``root``, and no link leads out of ``root``. None if
    there are too many links, or one cannot be read.
    """
    try:
        return _resolve(root, path)
    except OSError:
        return None


def matches(folder: Path, pattern: str) -> list[Path]:
    """Return the paths below a directory that match, in order; none if it cannot be listed."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _resolve(root: Path, path: str) -> str | None:
    left = [*reversed(PurePosixPath(path).parts)]
    done: list[str] = []
    links = 0
    while left:
        part = left.pop()
        if part == "/":
            done.clear()
        elif part == "..":
            del done[-1:]
        elif (here := root.joinpath(*done, part)).is_symlink():
            links += 1
            if links > _MOST_LINKS:
                return None
            left += reversed(here.readlink().parts)
        else:
            done.append(part)
    return "/".join(done)
