"""Keeping two processes from serving one driver."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LOCK: Final = "lock"


@contextmanager
def alone(directory: Path) -> Iterator[bool]:
    """Keep others from serving the driver of ``directory``; yield whether that was possible.

    A process that dies leaves nothing behind.

    Raises:
        OSError: The directory cannot be used.
    """
    directory.mkdir(exist_ok=True)
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
