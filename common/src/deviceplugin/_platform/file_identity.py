"""Telling a file from another one of the same name."""

from pathlib import Path

Identity = tuple[int, int, int] | None


def file_identity(path: Path) -> Identity:
    """Return what changes when ``path`` is replaced by another socket; None if it is not there.

    Inode numbers are used again at once by some file systems. A socket's modification time is that
    of its creation, and stays when its owner, mode or label change.
    """
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
