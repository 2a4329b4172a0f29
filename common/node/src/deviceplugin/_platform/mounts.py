"""The mounts that a process sees, from its ``mountinfo``."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

MOUNTINFO: Final = Path("/proc/self/mountinfo")
_VERSION: Final = re.compile(r"/\.\.\d{4}(_\d\d){5}\.\d+(/|$)")
"""The directory of one version of a ConfigMap or a Secret. The kubelet makes a new one each time.
"""
_IN_MEMORY: Final = frozenset({"devtmpfs", "ramfs", "tmpfs"})
_NUMBER: Final = re.compile("([0-9]{1,9}):([0-9]{1,9})")
_DELETED: Final = "//deleted"
"""What the kernel appends to the root of a mount that has been deleted."""


class Mount(NamedTuple):
    """One line of ``/proc/self/mountinfo``."""

    number: int
    """Its number while it lasts; a later mount can have the same."""
    parent: int
    """The number of the mount that it is on."""
    root: str
    """The path in its file system of what is mounted, as it is called now."""
    point: Path
    options: frozenset[str]
    kind: str
    """The type of its file system."""
    is_follower: bool
    """Whether it gets what is mounted in it elsewhere, as with HostToContainer."""
    device: str
    """The number of its file system, such as ``0:6``."""

    @property
    def is_deleted(self) -> bool:
        return self.root.endswith(_DELETED)

    def serves(self, path: Path) -> bool:
        """Return whether ``path``, which is resolved, is on it or on a mount in it."""
        return self.point == path or self.point in path.parents


def mounts(mountinfo: str) -> Iterator[Mount]:
    """Yield the mounts that a ``mountinfo`` lists, skipping lines of another format."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        numbers = all(one.isdecimal() for one in fields[:2])
        if len(fields) > 5 and len(rest) > 2 and numbers:  # noqa: PLR2004 - proc(5)
            options = {*fields[5].split(","), *(["ro"] if "ro" in rest[2].split(",") else [])}
            root, point = _plain(fields[3]), Path(_plain(fields[4]))
            follows = any(one.startswith("master:") for one in fields[6:])
            parent = int(fields[1])
            of = frozenset(options), rest[0], follows, fields[2]
            yield Mount(int(fields[0]), parent, root, point, *of)


def mount_of(path: Path, found: Iterable[Mount]) -> Mount | None:
    """Return which of the mounts ``path``, which is resolved, is on; None if that is unknown."""
    # If several are at one place, the last is on top.
    on = [one for one in found if one.serves(path)]
    return max(reversed(on), key=lambda one: len(one.point.parts), default=None)


def in_memory(mountinfo: Path = MOUNTINFO) -> frozenset[int]:
    """Return ``st_dev`` of the file systems in memory, such as /dev, which never hang."""
    try:
        found = list(mounts(mountinfo.read_text(errors="surrogateescape")))
    except OSError:
        return frozenset()
    numbers = [_NUMBER.fullmatch(one.device) for one in found if one.kind in _IN_MEMORY]
    return frozenset(os.makedev(int(one[1]), int(one[2])) for one in numbers if one)


def fixed(paths: Iterable[Path], mountinfo: Path = MOUNTINFO) -> Iterator[str]:
    """Yield a message for each regular file of which a new version is not seen here.

    With ``subPath`` it is mounted in a fixed version. One that is mounted by itself, as from the
    host, is seen to be edited, until another file replaces it.
    """
    try:
        found = list(mounts(mountinfo.read_text(errors="surrogateescape")))
    except OSError:
        return
    for path in dict.fromkeys(paths):
        real = Path(os.path.realpath(path))
        mount = mount_of(real, found)
        if not mount or not real.is_file():
            continue
        if _VERSION.search(mount.root):
            how = "is mounted by subPath, so that no new version of it is seen"
        elif mount.point == real and mount.is_deleted:
            how = "is mounted by itself, and another file has replaced it, which is not seen"
        else:
            continue
        yield f"{path} {how}: mount its whole volume at {path.parent}, without subPath"


def _plain(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
