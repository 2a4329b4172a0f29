"""Reading a file, with a limit on time and size, and finding it below another root."""

import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final

_MOST_LINKS: Final = 40
"""The kernel's limit."""


def content(path: Path, most: int) -> bytes:
    """Return all that a regular file contains. It never blocks, as reading a pipe can.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a regular file, or has more than ``most`` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise ValueError("not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            found = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(found) > most:
        raise ValueError(f"more than {most} bytes")
    return found


def within(root: Path, path: str) -> Path:
    """Return where ``path`` of another file system is here, with that mounted at ``root``.

    All its links are followed, and none leads out of ``root``: ``/x`` is ``x`` below it. What does
    not exist is no link.

    Raises:
        OSError: A directory cannot be searched, or there are too many links.
    """
    left, done, links = [*reversed(PurePosixPath(path).parts)], list[str](), 0
    while left:
        part = left.pop()
        if part.startswith("/"):  # also //, with which a path may begin
            done.clear()
        elif part == "..":
            del done[-1:]
        elif (here := root.joinpath(*done, part)).is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(here))
            left += reversed(here.readlink().parts)
        else:
            done.append(part)
    return root.joinpath(*done)
