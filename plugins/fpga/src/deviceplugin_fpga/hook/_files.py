"""Reading files that others made: nothing is waited for, and no more is read than is allowed."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from deviceplugin_fpga.hook._errors import HookError

if TYPE_CHECKING:
    from pathlib import Path


def load(path: Path, largest: int) -> bytes | None:
    """Return what is in the file at ``path``; None if there is none.

    Raises:
        HookError: It cannot be read, is no regular file or has more than ``largest`` bytes.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            data = file.read(largest + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HookError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a name that no file can have
        raise HookError(f"{str(path)!a:.200}: {error}") from error
    if len(data) > largest:
        raise HookError(f"{path}: more than {largest} bytes")
    return data


def _open(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise HookError(f"{path}: not a regular file")
