"""Files that others read while they are written: whole, or as they were before."""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final
from uuid import uuid4

__all__ = ["remove", "write"]

_ENDING: Final = ".draft"
"""No reader takes a hidden file with this ending: no container runtime, no feature discovery."""
_ATTEMPTS: Final = 100
"""To make a draft that no other writer takes for abandoned, which they all would have to do."""


def write(
    path: Path,
    content: str | bytes,
    *,
    mode: int = 0o644,
    durable: bool = True,
    again: bool = False,
) -> bool:
    """Have ``content`` at ``path``, and return whether it was not there before.

    Readers see the old file or the new one, and never a part, also when the writer is killed. What
    is at ``path`` is replaced, not followed: a link becomes a file. The file has exactly ``mode``,
    whatever the umask. Its directory is made where it is missing. Several can write at once, in
    one process or in many: one of them is the last, and its content is whole. Whoever writes
    removes the drafts that killed writers of ``path`` have left.

    Args:
        path: The file.
        content: All of it; text is written in UTF-8.
        mode: Its permission bits.
        durable: Whether it is on the disk when this returns, to survive a loss of power. That may
            take seconds on a busy disk. Without it, a loss of power can leave an empty file.
        again: Whether to write a new file also where the same content is there.

    Raises:
        OSError: It cannot be written, as on a full disk or a file system that is mounted
            read-only. What was there stays. ``filename`` is ``path``, or the directory that cannot
            be made; ``strerror`` says why.
    """
    wanted = content.encode() if isinstance(content, str) else content
    if not again and _is(path, wanted, mode):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _remove_abandoned(path)
        _replace(path, wanted, mode, durable=durable)
    except OSError as error:
        # A full disk, for one, names no file; others name the draft.
        raise OSError(error.errno, error.strerror, str(path)) from error
    return True


def remove(path: Path) -> bool:
    """Have nothing at ``path``, nor drafts of it that killed writers left; return whether it was.

    Raises:
        OSError: It cannot be removed.
    """
    _remove_abandoned(path)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _is(path: Path, content: bytes, mode: int) -> bool:
    try:
        status = path.lstat()
        is_alike = stat.S_IFREG | mode == status.st_mode and status.st_size == len(content)
        return is_alike and path.read_bytes() == content
    except OSError:
        return False


def _replace(path: Path, content: bytes, mode: int, *, durable: bool) -> None:
    draft, file = _new_draft(path)
    with file:
        try:
            _write_all(file.fileno(), content)
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            with suppress(OSError):  # it is in its place, as a rule
                draft.unlink()
    if durable:
        _sync_directory(path.parent)


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _new_draft(path: Path) -> tuple[Path, FileIO]:
    """Return a new file beside ``path``, locked until it is closed, or its writer is dead."""
    for _ in range(_ATTEMPTS):
        draft = path.with_name(f".{path.name}.{uuid4().hex}{_ENDING}")
        file = FileIO(draft, "x", opener=_private)
        try:
            _lock(file.fileno())
        except BlockingIOError:
            is_taken = True
        except OSError:  # a file system without locks, where nobody removes drafts
            is_taken = False
        else:
            is_taken = not draft.exists()
        if not is_taken:
            return draft, file
        file.close()  # before it was locked, another writer took it for abandoned
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _lock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_abandoned(path: Path) -> None:
    """Remove the drafts of ``path`` that nobody has locked."""
    for draft in _drafts(path):
        with suppress(OSError):
            descriptor = os.open(draft, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _lock(descriptor)
                draft.unlink()
            finally:
                os.close(descriptor)


def _drafts(path: Path) -> Iterator[Path]:
    form = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}{re.escape(_ENDING)}")
    with suppress(OSError):
        for name in os.listdir(path.parent):  # noqa: PTH208 - names
            if form.fullmatch(name):
                yield path.with_name(name)


def _sync_directory(path: Path) -> None:
    """Have the new name on the disk as well, where the file system can do that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
