"""Reading files that others made: nothing is waited for, and no more is read than is allowed."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from deviceplugin_fpga.hook.errors import HookError, shown

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


def load(path: Path, largest: int) -> bytes | None:
    """Return what is in the file at ``path``; None if there is none.

    Raises:
        HookError: It cannot be read, is not a regular file, has more than ``largest`` bytes, or
            changes meanwhile.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            return _read(file, shown(path), largest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HookError(f"{shown(path)}: {error.strerror}") from error
    except ValueError as error:  # a name that no file can have
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
        raise HookError(f"{what}: {size} bytes, of {largest} at most")
    content = file.read(size + 1)
    if len(content) != size:
        raise HookError(f"{what}: is being written: start the container again when it is whole")
    return content
