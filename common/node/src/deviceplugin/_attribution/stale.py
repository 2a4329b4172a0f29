"""Holders whose containers have a device node that is gone, though the device is back."""

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NamedTuple

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin.kit import pieces
from deviceplugin.model import Device

DevicesByResource = Mapping[str, Mapping[str, Device]]
"""Devices by id, by resource."""
PREFIX: Final = "stale: "
"""What the reason of a device begins with whose holder has a node that is gone."""
_NUMBERS: Final = re.compile(r"\d+")


class Stale(NamedTuple):
    """A device node that a container was given, and that is not its device's any more."""

    path: str
    """Where it was on the host."""
    number: str
    """Its device number, such as ``c189:4``; empty if this process could not see the node."""
    since: float
    """In seconds since the epoch: since when the path leads to the new node, or it was noticed."""
    by_link: bool
    """Whether the path leads to the new node, so that a container that restarts gets that."""

    @property
    def what(self) -> str:
        return f"{self.path} ({self.number})" if self.number else self.path


class Given(NamedTuple):
    """What was given out before this process started, in one answer, as far as it is recorded."""

    paths: Collection[str]
    """The device nodes of all these devices."""
    together: Collection[Key]
    """The devices."""
    pod: str = ""
    """The uid of the pod that has them, if one has."""


class _Node(NamedTuple):
    name: str
    """The device number; the path if the node cannot be seen here."""
    inode: int = 0
    """That of the node when it was given out; 0 if that is not known."""

    @property
    def is_seen(self) -> bool:
        """Whether its device number is known."""
        return not self.name.startswith("/")


_Nodes = Mapping[str, _Node]
"""Device nodes by their paths."""
_NONE: Final[Mapping[Key, Stale]] = MappingProxyType({})


class GivenNodes:
    """The device nodes of held devices: as they were given out, and as they are. Not thread-safe.

    A holder is stale if one of its nodes is gone and its device has another one of that kind. A
    node is the same as long as its device number is, wherever the device was meanwhile. What is in
    a directory that is the device does not count: it comes and goes.
    """

    def __init__(self, is_taken: Callable[[str, Key], bool]) -> None:
        self._is_taken = is_taken
        """Returns whether another device than a given one has a device number now."""
        self._devices: dict[str, DevicesByResource] = {}
        self._given: dict[Key, tuple[_Nodes, Collection[Key]]] = {}
        """The nodes that were given out for a device, and for which others at the same time."""
        self.stale: Mapping[Key, Stale] = _NONE
        """It is replaced and never modified."""

    def discovered(self, plugin: str, groups: DevicesByResource) -> None:
        """Record that ``groups`` are all devices of ``plugin`` now."""
        self._devices[plugin] = groups

    def give(self, keys: Collection[Key]) -> bool:
        """Record that ``keys`` have the nodes that they have now; return whether one was stale."""
        for key in keys:
            self._given[key] = dict(self._now(key)), (key,)
        before = self.stale
        self.stale = {key: one for key, one in before.items() if key not in keys} or _NONE
        return before != self.stale

    def restore(self, records: Mapping[Key, Given]) -> None:
        """Record what was given out by an earlier process. Where a link led is unknown."""
        every = {path for given in records.values() for path in given.paths}
        paths = (path for path in every if os.path.realpath(path) == path)
        nodes = {path: node for path in paths if (node := _node_then(path))}
        for key, (own, together, _) in records.items():
            self._given[key] = {path: nodes[path] for path in own if path in nodes}, together

    def forget(self, key: Key) -> None:
        self._given.pop(key, None)

    def compare(self, keys: Collection[Key] | None = None) -> bool:
        """Compare all, or ``keys``, again, by the file system. Return whether ``stale`` changed."""
        among = self._given.keys() if keys is None else self._given.keys() & keys
        found = {key: one for key in among if (one := self._of(key))}
        if keys is not None:
            found |= {key: one for key, one in self.stale.items() if key not in keys}
        before, self.stale = self.stale, found or _NONE
        return before != self.stale

    def _of(self, key: Key) -> Stale | None:
        nodes, together = self._given[key]
        now = dict(self._now(key))
        if all(path in nodes and nodes[path].name == node.name for path, node in now.items()):
            return None
        # One that was away when this process started may be back by now.
        given = {
            path: node if node.is_seen else _node_then(path) or node for path, node in nodes.items()
        }
        known = {node.name for node in given.values()}
        # A path where nothing is now is no other node: the device is only away.
        known |= {path for path in now if path in given}
        new = {path: node for path, node in now.items() if node.name not in known}
        present = {name for one in together for name in self._names(one)}
        for path, node in given.items():
            gone = node.name not in present and not self._is_there(key, path, node)
            if gone and any(_replaces(node, path, *other) for other in new.items()):
                number = node.name if node.is_seen else ""
                was = self.stale.get(key)
                since = was.since if was and was.path == path else _since(path)
                return Stale(path, number, since, by_link=path in now)
        return None

    def _is_there(self, key: Key, path: str, given: _Node) -> bool:
        """Return whether the node still is, as if only the configuration was changed."""
        now = _node(path)
        if now is None or now.name != given.name or not now.inode:
            return False
        return now.inode == given.inode if given.inode else not self._is_taken(now.name, key)

    def _present(self, key: Key) -> Iterator[Device]:
        resource, device_id = key
        for groups in self._devices.values():
            if device := groups.get(resource, {}).get(device_id):
                yield device

    def _now(self, key: Key) -> Iterator[tuple[str, _Node]]:
        for device in self._present(key):
            for one in device.nodes:
                if node := _node(one.host_path):
                    yield one.host_path, node

    def _names(self, key: Key) -> Iterator[str]:
        """Yield the nodes that the device has, also those that nobody would be given now."""
        for device in self._present(key):
            paths = (*(one.host_path for one in device.nodes), *device.hardware)
            yield from (node.name for path in paths if (node := _node(path)))


def _since(path: str) -> float:
    """Return since when ``path`` leads where it does: that is noticed later, or it is gone now."""
    with suppress(OSError):
        return min(time.time(), os.lstat(path).st_ctime)
    return time.time()


def _replaces(node: _Node, path: str, other: str, new: _Node) -> bool:
    """Return whether the node ``new`` at ``other`` is what became of ``node``.

    Without having seen both, only their names say so: ttyUSB0 and ttyUSB1 are of one kind.
    """
    seen = bool(node.inode and new.inode)
    return seen or _NUMBERS.sub("", path) == _NUMBERS.sub("", other)


def _node_then(path: str) -> _Node | None:
    """Return the node that was given out as ``path``, if the path always means that number."""
    node = _node(path)
    return node and node._replace(inode=0)


def _node(path: str) -> _Node | None:
    """Return the node at ``path``; None for a directory."""
    try:
        status = os.stat(path)  # noqa: PTH116 - there are many
    except (OSError, ValueError):
        return _Node(path)
    if stat.S_ISDIR(status.st_mode):
        return None
    number = pieces.device_number(status)
    return _Node(number, status.st_ino) if number else _Node(path)
