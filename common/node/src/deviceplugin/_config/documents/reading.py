"""Reading a file, with a limit on time and size."""

import errno
import os
import stat
from pathlib import Path


def content(path: Path, most: int) -> bytes:
    """Return all that a regular file contains. It never blocks, as reading a pipe can.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a regular file, or has more than ``most`` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise ValueError("not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            found = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(found) > most:
        raise ValueError(f"more than {most} bytes")
    return found
