"""What stands for a device in a directory: a file, a directory, a device node or a link to one."""

import os
import stat
from pathlib import Path
from typing import Final

from deviceplugin_testing.tools.bench._errors import BenchError

KINDS: Final = ("file", "directory", "node", "link")
"""``link`` is a symbolic link to ``/dev/null``, for those who may not make nodes."""
_NULL: Final = Path("/dev/null")


def make(path: Path, kind: str) -> None:
    """Make an entry of ``kind`` at ``path``. A node is another name for ``/dev/null``.

    Raises:
        BenchError: This process may not make nodes, or not there.
    """
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(_NULL)
    elif kind == "node":
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, _NULL.stat().st_rdev)
        except PermissionError as error:
            raise BenchError(
                f"{path}: cannot make a device node: that needs CAP_MKNOD outside of a user "
                "namespace, so run it as root, or give --entries link"
            ) from error
    else:
        path.touch()


def remove(path: Path) -> None:
    """Remove the entry at ``path``, of whatever kind."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


def make_devices(directory: Path, number: int, kind: str) -> Path:
    """Create ``devices`` in ``directory`` with so many entries, and return it."""
    devices = directory / "devices"
    devices.mkdir()
    for one in range(number):
        make(devices / f"dev{one}", kind)
    return devices
