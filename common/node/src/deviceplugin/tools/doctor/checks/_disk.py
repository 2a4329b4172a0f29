"""Whether the kubelet's disk has space."""

from collections.abc import Iterator
from typing import Final

from deviceplugin.checks import Finding, Node, failure, ok, warning
from deviceplugin.tools.doctor._check import Check

_NONE: Final = 1 << 20
_LITTLE: Final = 64 << 20
_FEW_INODES: Final = 64


def _check(node: Node) -> Iterator[Finding]:
    path = node.plugin_dir
    if not path.is_dir():
        return
    room = node.statvfs(path)
    free = room.f_bavail * room.f_frsize
    found = f"{free >> 20} MiB are free"
    means = (
        "the kubelet cannot write its checkpoint, without which it allocates no device, and a "
        "plugin cannot create its socket."
    )
    if room.f_files and room.f_favail < _FEW_INODES:
        found = f"{room.f_favail} inodes are free, although {free >> 20} MiB are"
        yield failure(path, found, means=means, do="remove small files (df -i), or make a new fs.")
    elif free < _NONE:
        yield failure(path, found, means=means, do="free space: df -h, crictl rmi --prune.")
    elif free < _LITTLE:
        yield warning(path, found, means=f"soon {means}", do="free space: df -h.")
    else:
        yield ok(path, found)


CHECK: Final = Check("disk", "space for the kubelet's checkpoint and sockets", _check)
