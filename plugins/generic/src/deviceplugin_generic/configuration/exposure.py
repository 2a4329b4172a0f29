"""What an entry gives to containers that makes them root on the node."""

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from deviceplugin_generic.configuration import globs
from deviceplugin_generic.configuration.entries import Entry, ExtraMount, PathSpec

_WITH_ALL_BELOW: Final = (
    *("/bin", "/boot", "/etc", "/lib", "/lib64", "/root", "/sbin", "/usr"),
    *("/var/lib/kubelet", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker"),
    *("/var/lib/etcd", "/var/lib/rancher", "/run/containerd", "/run/crio", "/run/docker.sock"),
)
"""Programs, accounts and secrets of the host: what is below is as good as the whole."""
_AS_A_WHOLE: Final = ("/dev", "/home", "/proc", "/run", "/sys")
"""Parts of these are common, such as /run/udev. All of one is too much."""
_VARIABLE: Final = re.compile(r"[*?\[\\{]")
_DISKS: Final = r"((sd|hd|vd|xvd)[a-z]+|(nvme|dm-|md|mmcblk|loop)\d).*|(mapper|disk|block)/.+"
_NODES: Final = re.compile(rf"/dev/(mem|kmem|port|{_DISKS})")
_SAMPLES: Final = (
    *("/dev/mem", "/dev/sda", "/dev/sda1", "/dev/vda", "/dev/nvme0n1", "/dev/dm-0", "/dev/md0"),
    *("/dev/mmcblk0", "/dev/mapper/root", "/dev/disk/by-label/root"),
)
"""What a pattern of device nodes is tried on."""


def exposed(entry: Entry) -> Iterator[str]:
    """Yield the mounts and device nodes of an entry by which a container is root on the node."""
    specs = [spec for group in entry.groups for spec in group.paths]
    mounts: list[PathSpec | ExtraMount] = [spec for spec in specs if spec.is_mount]
    for one in (*mounts, *entry.mounts):
        if _is_sensitive(one.path):
            yield _written(one)
    nodes = [spec.path for spec in specs if not spec.is_mount]
    nodes += [path for group in entry.groups for path in group.shared]
    yield from filter(is_memory_or_disk, nodes)
    if any(one.subsystem == "block" for group in entry.groups for one in group.selectors):
        yield "devices of the subsystem block"


def is_memory_or_disk(path: str) -> bool:
    """Return whether a device node, or one that a pattern matches, is memory or a disk."""
    known = _NODES.fullmatch(posixpath.normpath(path))
    return known is not None or any(globs.matches(one, path) for one in _SAMPLES)


def _is_sensitive(path: str) -> bool:
    """Return whether a mount is, or can be, above, at or in a part of the host that matters."""
    fixed, *variable = _VARIABLE.split(f"/{path.lstrip('/')}", maxsplit=1)
    end = "/" if fixed.endswith("/") else ""
    place = re.sub(r"^/var/run(?=/|$)", "/run", posixpath.normpath(fixed).rstrip("/") + end)
    above = place if variable else f"{place.rstrip('/')}/"
    return any(
        f"{one}/".startswith(above) for one in (*_WITH_ALL_BELOW, *_AS_A_WHOLE)
    ) or place.startswith(tuple(f"{one}/" for one in _WITH_ALL_BELOW))


def _written(one: PathSpec | ExtraMount) -> str:
    return f"{one.path} ({'read-only' if one.read_only else 'writable'})"
