"""Faults of a directory for sockets."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deviceplugin.checks import Finding, Node, failure, warning

_DELETED: Final = "//deleted"
"""What the kernel appends to the source of a mount that has been deleted."""
_FREE_FOR_ALL: Final = stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of ``/proc/self/mountinfo``."""

    source: str
    point: Path
    options: frozenset[str]


def mount_of(node: Node, path: Path) -> Mount | None:
    """Return the mount that ``path`` is on; None if that is unknown."""
    here = path.resolve()
    on = [m for m in _mounts(node) if here == m.point or m.point in here.parents]
    # If several are at one place, the last is on top.
    return max(reversed(on), key=lambda m: len(m.point.parts), default=None)


def _mounts(node: Node) -> Iterator[Mount]:
    for line in node.peek("proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) > 5 and len(rest) > 2:  # noqa: PLR2004 - the format of proc(5)
            options = {*fields[5].split(","), *(["ro"] if "ro" in rest[2].split(",") else [])}
            yield Mount(_plain(fields[3]), Path(_plain(fields[4])), frozenset(options))


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


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
    mount = mount_of(node, path)
    if not status.st_nlink or (mount and mount.source.endswith(_DELETED)):
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
