"""The folder with the holds of one plugin, and its lock."""

import fcntl
import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from deviceplugin._app.hold_socket import SOCKET

FOLDER: Final = ".holds"
"""Below the plugin directory, with a folder for each plugin. A kubelet leaves folders alone."""
_POD: Final = re.compile(r"(?P<owner>.+)-[bcdfghjklmnpqrstvwxz2456789]{5}")
"""The name of a DaemonSet's pod, with its random end."""


def instance(given: str, hostname: str, otherwise: str) -> str:
    """Return the name of this plugin among those of the node: the same after a restart of its pod.

    It is the one ``given``, or that of the DaemonSet whose pod is on its own network.
    """
    pod = _POD.fullmatch(hostname)
    return given or (pod["owner"] if pod else otherwise)


def locked(folder: Path) -> int:
    """Return a file descriptor that has the lock on ``folder``; OSError if another has it."""
    for one in (folder.parent, folder):
        one.mkdir(mode=0o700, exist_ok=True)
    found = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(found), (folder / "lock").stat()):
            raise BlockingIOError  # removed by a process that ended meanwhile
    except OSError:
        os.close(found)
        raise
    return found


def remove(folder: Path, files: Collection[str]) -> None:
    """Leave nothing behind where nothing is held: the plugin may be uninstalled."""
    with suppress(OSError):
        for name in (SOCKET, *files, "lock"):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
        folder.parent.rmdir()
