"""Device nodes that a discovery saw, and that an answer must not name once they are gone.

Nor once another device has their path: it has another id, and another pod may get it by that.
"""

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from deviceplugin._attribution.stale import DevicesByResource
from deviceplugin._platform import mounts
from deviceplugin.errors import AllocationError
from deviceplugin.model import Allocation, Device

_State = tuple[str, int]
"""Where a path leads, if it is a link, and its device number; 0 for anything but a device node."""
_States = Mapping[str, _State]
"""The state of a path, and of where it led."""
_ANOTHER: Final = "is that of another device now"


class SeenNodes:
    """The device nodes that were there at a discovery, as long as devices have them. Thread-safe.

    CRI-O starts a container without a node that is missing on the host; containerd refuses it. Only
    what is in a file system in memory counts, as in /dev: there, looking again cannot hang. A node
    that was missing does not count: it is made later, or only the host sees it.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Mapping[str, _States]] = {}
        """What was at each path, by plugin."""

    def discovered(self, plugin: str, groups: DevicesByResource) -> None:
        """Record that ``groups`` are all devices of ``plugin`` now. It reads the file system."""
        self._seen[plugin] = dict(_seen(groups, self._seen.get(plugin, {})))

    def check(
        self,
        devices: Collection[Device],
        given: Allocation | None = None,
        *,
        may_differ: bool = False,
    ) -> None:
        """Raise AllocationError if a node that a discovery saw of ``devices`` is gone or another.

        Of those in ``given``, if it is not None: a plugin may leave nodes out. It is an ``lstat``
        for each, after all hooks, which may make nodes; then they ``may_differ``.
        """
        wanted = None if given is None else {node.host_path for node in given.nodes}
        plugins = list(self._seen.values())  # at once: others may be added meanwhile
        checked = set[str]()  # shares have the same nodes
        for device in devices:
            for path in (node.host_path for node in device.nodes):
                if path in checked or not (wanted is None or path in wanted):
                    continue
                checked.add(path)
                then = [seen[path] for seen in plugins if path in seen]
                became = _became(then)
                if became and not (may_differ and became == _ANOTHER):
                    problem = f"device node {path} of {device.id} {became}"
                    raise AllocationError(problem, device_ids=[device.id])


def _seen(
    groups: DevicesByResource, before: Mapping[str, _States]
) -> Iterator[tuple[str, _States]]:
    """Yield the device nodes, and directories of them, that are there, each by its path.

    What was there ``before`` and is gone counts too: the plugin goes on listing it.
    """
    every = [one for devices in groups.values() for one in devices.values() if one.nodes]
    distinct = {id(one.nodes): one.nodes for one in every}  # shares have the same object
    paths = {node.host_path for nodes in distinct.values() for node in nodes}
    in_memory = mounts.in_memory() if paths else ()
    for path in paths:
        try:
            own = status = os.lstat(path)
            real = path
            if stat.S_ISLNK(own.st_mode) and own.st_dev in in_memory:
                real = os.path.realpath(path)
                status = os.lstat(real)
            states = {path: _state(path, own), real: _state(real, status)}
        except (OSError, ValueError):
            yield from [(path, before[path])] if path in before else ()
            continue
        kind = stat.S_IFMT(status.st_mode)
        if status.st_dev in in_memory and kind in {stat.S_IFCHR, stat.S_IFBLK, stat.S_IFDIR}:
            yield path, states


def _state(path: str, status: os.stat_result) -> _State:
    return os.readlink(path) if stat.S_ISLNK(status.st_mode) else "", status.st_rdev  # noqa: PTH115


def _became(then: Sequence[_States]) -> str:
    """Return what became of what was seen; empty if nothing, or if that is not known."""
    now = dict[str, _State]()
    for path in dict.fromkeys(path for seen in then for path in seen):
        try:
            now[path] = _state(path, os.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            return "is gone"
        except OSError:
            continue
    # One plugin may not have discovered since.
    same = (all(now.get(path, one) == one for path, one in seen.items()) for seen in then)
    return _ANOTHER if then and not any(same) else ""
