"""Faults of a directory for sockets."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin._platform.mounts import mount_of, mounts
from deviceplugin.checks import Finding, Node, failure, warning

_FREE_FOR_ALL: Final = stat.S_IWOTH


def faults(node: Node, path: Path) -> Iterator[Finding]:
    """Yield a finding for each fault of ``path``, which exists."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        yield failure(
            path,
            "is not a directory",
            means="nobody can create a socket in it.",
            do="remove it and restart the kubelet, which creates the directory.",
        )
        return
    mount = mount_of(path.resolve(), mounts(node.peek("proc/self/mountinfo")))
    if not status.st_nlink or (mount and mount.is_deleted):
        yield failure(
            path,
            "has been deleted on the node since it was mounted here",
            means="a socket that is created here is in a directory that the kubelet does not see.",
            do="restart this pod, and mount /var/lib/kubelet itself if that happens often.",
        )
    elif mount and "ro" in mount.options:
        yield failure(
            path,
            f"is on a file system that is mounted read-only (at {mount.point})",
            means="a plugin cannot create its socket in it.",
            do="remove readOnly from the volume mount; on the node, find out why the disk is "
            "read-only (dmesg), and remount it.",
        )
    elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield failure(
            path,
            f"this process (user {os.geteuid()}) may not read and write it",
            means="a plugin that runs as this user cannot create its socket in it.",
            do="run the plugin, and this command, as root (runAsUser: 0).",
        )
    yield from _ownership(path, status)


def _ownership(path: Path, status: os.stat_result) -> Iterator[Finding]:
    if status.st_mode & _FREE_FOR_ALL:
        yield warning(
            path,
            f"everybody may write to it (mode {stat.S_IMODE(status.st_mode):04o})",
            means="any process on the node can pose as a device plugin.",
            do=f"chmod o-w {path}",
        )
    if status.st_uid not in {0, os.geteuid()}:
        yield warning(
            path,
            f"it belongs to user {status.st_uid}, not to root",
            means="that user can delete the sockets of plugins.",
            do=f"chown root {path}",
        )
