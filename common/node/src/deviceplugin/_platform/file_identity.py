"""Recognising that a file was replaced by another of the same name."""

from pathlib import Path

Identity = tuple[int, int, int] | None
Signature = tuple[int, int, int, int] | None


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


def file_signature(path: Path) -> Signature:
    """Return what differs once ``path``, or what its link leads to, is changed or replaced."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
