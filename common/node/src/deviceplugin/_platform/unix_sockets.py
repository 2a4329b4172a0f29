"""Unix sockets in a directory: whether one can be made there, and whether one is served."""

import errno
import os
import socket
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_ADVICE: Final[Mapping[int, str]] = {
    errno.EROFS: "mount it writable",
    errno.EACCES: "run as a user who may write there, such as root",
    errno.EPERM: "run as a user who may write there, such as root",
}
_DEAD: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT})
MAX_PATH: Final = 107
"""Most bytes in the path of a Unix socket."""


def answers(path: Path) -> bool:
    """Return whether a process listens on the socket ``path``."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        return client.connect_ex(str(path)) not in _DEAD


def is_ours(path: Path) -> bool:
    """Return whether it is this process that listens on the socket ``path``."""
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.settimeout(1)
        client.connect(str(path))
        found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return bool(struct.unpack("3i", found)[0] == os.getpid())
    return False


def check_exists(directory: Path) -> None:
    """Raise OSError if ``directory`` does not exist or cannot be accessed."""
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError:
        mode = 0
    except OSError as error:
        raise OSError(f"{directory}: {advised(error)}") from error
    if not stat.S_ISDIR(mode):
        raise OSError(f"{directory}: no such directory")


def try_socket(path: Path) -> None:
    """Raise OSError if no socket can be created at ``path``: gRPC would not give the reason.

    The message does not have the name of the socket, which is new at each attempt.
    """
    try:
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as trial:
            trial.bind(str(path))
        path.unlink()
    except OSError as error:
        raise OSError(f"{path.parent}: cannot make a socket in it: {advised(error)}") from error


def advised(error: OSError) -> str:
    """Return the message of ``error`` without the name of any file, and advice."""
    text = error.strerror or str(error)
    advice = _ADVICE.get(error.errno or 0)
    return f"{text}: {advice}" if advice else text
