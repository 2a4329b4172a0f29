"""Following links of a file system that is mounted here, as they lead there."""

from pathlib import Path, PurePosixPath
from typing import Final

_MOST_LINKS: Final = 40
"""As the kernel has it."""


def resolve(root: Path, path: str) -> str | None:
    """Return where ``path`` below ``root`` leads, without links, and without ``root`` before it.

    A link to ``/x`` leads to ``x`` below ``root``, and no link leads out of it. None if there are
    too many, or it cannot be looked at.
    """
    try:
        return _resolve(root, path)
    except OSError:
        return None


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
