"""Recognising that a file was replaced by another of the same name."""

from pathlib import Path

Identity = tuple[int, int, int] | None


def file_identity(path: Path) -> Identity:
    """Return a value that changes when another socket replaces ``path``; None if there is none.

    Some file systems reuse inode numbers at once. So the modification time is part of it: a socket
    keeps the time of its creation, even when its owner, mode or label change.
    """
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns
