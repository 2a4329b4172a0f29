"""Writing files that others may be reading: they see the old file or the new one, never a part.

Also what may be a path, or a name in one, where devices say it of themselves.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

from deviceplugin._config.documents.reading import within

__all__ = ["LONGEST_NAME", "name_problem", "path_problem", "remove", "sync", "within", "write"]

_ENDING: Final = ".draft"
"""Readers, such as container runtimes and feature discovery, ignore hidden files with this ending.
"""
_ATTEMPTS: Final = 100
"""Attempts to make a draft. One fails only if another writer takes the draft for abandoned."""
_NOT_DONE: Final = frozenset(
    {errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EROFS}
)
"""Of a directory's sync: a file system that has none answers others, such as EINVAL."""
_RANDOM: Final = 16
"""Random bytes in the name of a draft."""
LONGEST_NAME: Final = 255
"""The most bytes of a name that file systems of Linux take."""
_NOT_NAMES: Final = frozenset({"", ".", ".."})


def name_problem(text: str) -> str:
    """Return why ``text`` must not become a name in a path, or an empty string.

    Ask before a string that a device says of itself, such as a serial number, becomes a part of a
    path: a slash, ``..`` or nothing at all would lead to another directory.
    """
    if not text:
        return "is empty"
    if text in _NOT_NAMES or "/" in text:
        return "is not the name of a file"
    if not text.isprintable() or "\ufffd" in text:  # what unreadable bytes were replaced by
        return "has control characters or unreadable bytes"
    if (length := len(text.encode())) > LONGEST_NAME:
        return f"has {length} bytes, of at most {LONGEST_NAME}"
    return ""


def path_problem(path: str) -> str:
    """Return why ``path`` is not absolute and normalized, or an empty string.

    Then it leads nowhere but where it seems to lead, as far as it has no links.
    """
    if not path.startswith("/"):
        return "is not absolute"
    if path != "/" and not _NOT_NAMES.isdisjoint(path[1:].split("/")):
        return "is not normalized: it has '..', '.' or an empty part"
    return ""


def write(
    path: Path,
    content: str | bytes,
    *,
    mode: int = 0o644,
    durable: bool = True,
    named: bool = True,
    again: bool = False,
) -> bool:
    """Write ``content`` to ``path``; return whether the file changed.

    Readers see the old file or the new one, and never a part, even if the writer is killed. A link
    at ``path`` is replaced by a file, not followed. The file has exactly ``mode``, whatever the
    umask. Its directory is created if it is missing. Several threads or processes may write at
    once: the last one wins, and its content is whole. A writer also removes the drafts that killed
    writers of ``path`` have left.

    Args:
        path: The file.
        content: All of it; a string is encoded as UTF-8.
        mode: Its permission bits.
        durable: Whether the file must be on the disk when this returns, so that it survives a loss
            of power. That may take seconds on a busy disk. Without it, a loss of power can leave
            an empty file.
        named: Whether a durable file must have its name on the disk as well. Whoever writes many
            into one directory can leave that to one ``sync`` after the last.
        again: Whether to write a new file even if the content is the same.

    Raises:
        OSError: It cannot be written, for example because the disk is full or mounted read-only.
            The old file stays, or the new one if only its name may not survive a loss of power.
            ``filename`` is ``path``, or the directory that cannot be created;
            ``strerror`` is the reason.
    """
    wanted = content.encode() if isinstance(content, str) else content
    if not again and _is(path, wanted, mode):
        return False
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _remove_abandoned(path)
        _replace(path, wanted, mode, durable=durable)
        if durable and named:
            sync(path.parent)
    except OSError as error:
        # The error of a full disk names no file; others name the draft.
        raise OSError(error.errno, error.strerror, str(path)) from error
    return True


def remove(path: Path) -> bool:
    """Remove ``path``, and drafts that killed writers of it left; return whether it was there.

    After a loss of power it may come back, unless ``sync`` has returned.

    Raises:
        OSError: It cannot be removed.
    """
    _remove_abandoned(path)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def sync(directory: Path) -> None:
    """Write the names in ``directory`` to the disk too, if the file system can do that.

    Raises:
        OSError: It can, and failed. ``filename`` is ``directory``.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _NOT_DONE:
            raise OSError(error.errno, error.strerror, str(directory)) from error


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
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _new_draft(path: Path) -> tuple[Path, FileIO]:
    """Return a new file beside ``path``, locked until it is closed or its writer is dead."""
    for _ in range(_ATTEMPTS):
        draft = path.with_name(f".{path.name}.{os.urandom(_RANDOM).hex()}{_ENDING}")
        file = FileIO(draft, "x", opener=_private)
        try:
            _lock(file.fileno())
        except BlockingIOError:
            is_taken = True
        except OSError:  # a file system without locks: nobody removes drafts there
            is_taken = False
        else:
            is_taken = not draft.exists()
        if not is_taken:
            return draft, file
        file.close()  # another writer took it for abandoned before it was locked
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
    begin = f".{path.name}."
    length = len(begin) + 2 * _RANDOM + len(_ENDING)
    with suppress(OSError):
        for name in os.listdir(path.parent):  # noqa: PTH208 - names
            if len(name) == length and name.startswith(begin) and name.endswith(_ENDING):
                yield path.with_name(name)
