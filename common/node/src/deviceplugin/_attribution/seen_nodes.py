"""Device nodes that a discovery saw, and that an answer must not name once they are gone."""

import os
import stat
from collections.abc import Collection, Iterator, Mapping

from deviceplugin._attribution.stale import DevicesByResource
from deviceplugin._platform import mounts
from deviceplugin.errors import AllocationError
from deviceplugin.model import Allocation, Device


class SeenNodes:
    """The device nodes that were there at a discovery, as long as devices have them. Thread-safe.

    CRI-O starts a container without a node that is missing on the host; containerd refuses it. Only
    what is in a file system in memory counts, as in /dev: there, looking again cannot hang. A node
    that was missing does not count: it is made later, or only the host sees it.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Mapping[str, str]] = {}
        """The paths by plugin, each with where it led."""

    def discovered(self, plugin: str, groups: DevicesByResource) -> None:
        """Record that ``groups`` are all devices of ``plugin`` now. It reads the file system."""
        self._seen[plugin] = dict(_seen(groups, self._seen.get(plugin, {})))

    def check(self, devices: Collection[Device], given: Allocation | None = None) -> None:
        """Raise AllocationError if a node that a discovery saw of ``devices`` is gone.

        Of those in ``given``, if it is not None: a plugin may leave nodes out. It is an ``lstat``
        for each, after all hooks, which may make nodes.
        """
        wanted = None if given is None else {node.host_path for node in given.nodes}
        plugins = list(self._seen.values())  # at once: others may be added meanwhile
        checked = set[str]()  # shares have the same nodes
        for device in devices:
            for path in (node.host_path for node in device.nodes):
                if path in checked or not (wanted is None or path in wanted):
                    continue
                checked.add(path)
                if any(path in seen and _is_gone(path, seen[path]) for seen in plugins):
                    problem = f"device node {path} of {device.id} is gone"
                    raise AllocationError(problem, device_ids=[device.id])


def _seen(groups: DevicesByResource, before: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the device nodes, and directories of them, that are there, each with its real path.

    What was there ``before`` and is gone counts too: the plugin goes on listing it.
    """
    every = [one for devices in groups.values() for one in devices.values() if one.nodes]
    distinct = {id(one.nodes): one.nodes for one in every}  # shares have the same object
    paths = {node.host_path for nodes in distinct.values() for node in nodes}
    in_memory = mounts.in_memory() if paths else ()
    for path in paths:
        try:
            status = os.lstat(path)
            is_link = stat.S_ISLNK(status.st_mode) and status.st_dev in in_memory
            real = os.path.realpath(path) if is_link else path
            status = os.lstat(real)
        except (OSError, ValueError):
            yield from [(path, before[path])] if path in before else ()
            continue
        kind = stat.S_IFMT(status.st_mode)
        if status.st_dev in in_memory and kind in {stat.S_IFCHR, stat.S_IFBLK, stat.S_IFDIR}:
            yield path, real


def _is_gone(*paths: str) -> bool:
    for path in dict.fromkeys(paths):
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # it is not known
            continue
    return False
