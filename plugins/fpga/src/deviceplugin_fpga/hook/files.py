"""Reading untrusted files, without blocking and up to a limit, and the checksums beside them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


SUFFIX = ".sha256"
"""The suffix of a checksum file."""
_LARGEST_CHECKSUM = 4096
"""The most bytes of a checksum file: one digest and one path."""
_LINE = re.compile(r"([0-9A-Fa-f]{64})(?: [ *](.*\S))?")
"""A digest, alone or followed by the mode in which the file was read, and its name."""
_STREAM = "-"
"""The name that ``sha256sum`` gives to its standard input."""


class HookError(Exception):
    """The regions cannot be as the container requests. The message says why."""


def shown(value: object, longest: int = 300) -> str:
    """Return ``value`` as one line of at most ``longest`` characters, without control characters.

    Use it for untrusted values, because messages end in the events of a pod.
    """
    beginning = str(value)[: longest + 1]
    text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in beginning)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def load(path: Path, largest: int) -> bytes | None:
    """Return the content of the file at ``path``; None if there is none.

    HookError: it cannot be read, is not a regular file, is too large, or changes while it is read.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            return _read(file, shown(path), largest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HookError(f"{shown(path)}: {error.strerror}") from error
    except ValueError as error:  # not a possible file name
        raise HookError(f"'{shown(path)}': {shown(error)}") from error


def _open(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise HookError(f"{shown(path)}: not a regular file")


def _read(file: BinaryIO, what: str, largest: int) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size > largest:
        raise HookError(f"{what}: {size} bytes: at most {largest} are allowed")
    content = file.read(size + 1)
    if len(content) != size:
        raise HookError(f"{what}: is being written: start the container again when it is complete")
    return content


def check(path: Path, content: bytes) -> bool:
    """Compare ``content`` with the checksum beside ``path``, and return whether there is one.

    HookError: the checksum differs, or is malformed or unreadable.
    """
    checksum = path.with_name(f"{path.name}{SUFFIX}")
    how = f"write it with: sha256sum {path.name} > {checksum.name}"
    text = load(checksum, _LARGEST_CHECKSUM)
    if text is None:
        if os.path.lexists(checksum):
            raise HookError(f"{shown(checksum)}: a broken link; {how}")
        return False
    found = _LINE.fullmatch(text.decode("ascii", "replace").strip())
    if not found:
        raise HookError(f"{shown(checksum)}: not a SHA-256 checksum as sha256sum writes it; {how}")
    digest, name = found.groups()
    if name not in (None, _STREAM) and PurePosixPath(name).name != path.name:
        raise HookError(f"{shown(checksum)}: of '{shown(name, 80)}', not of {path.name}; {how}")
    now = hashlib.sha256(content).hexdigest()
    if now != digest.lower():
        raise HookError(
            f"{shown(path)}: damaged, truncated or another file: its SHA-256 is {now}, and "
            f"{checksum.name} says {digest.lower()}; copy it here again, or {how}"
        )
    return True
