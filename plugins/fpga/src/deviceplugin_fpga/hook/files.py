"""Reading untrusted files, without blocking and up to a limit."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from deviceplugin_fpga.hook.errors import HookError, shown

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


def load(path: Path, largest: int) -> bytes | None:
    """Return the content of the file at ``path``; None if there is none.

    Raises:
        HookError: It cannot be read, is not a regular file, has more than ``largest`` bytes, or
            changes while it is read.
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
