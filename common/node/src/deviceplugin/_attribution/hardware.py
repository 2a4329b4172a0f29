"""Which devices are the same hardware as one that is held under another id or resource."""

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, NamedTuple

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._attribution.seen_nodes import SeenNodes
from deviceplugin._attribution.stale import DevicesByResource, Given, GivenNodes, Stale
from deviceplugin._platform.callbacks import Listeners
from deviceplugin.errors import AllocationError
from deviceplugin.kit import pieces
from deviceplugin.model import Allocation, Device

Rivals = Mapping[Key, tuple[Key, ...]]
"""Devices, each with the held devices that are the same hardware."""

_Uses = Mapping[str, str]
"""The pieces of a device, each with the name of those that may have it together."""
_At = Callable[[str], Collection[str]]
_ALONE: Final = ""
"""No other device is that piece."""
_COMMON: Final = "\0common"
"""Several devices have that node, such as a control node. It excludes nobody."""
_PARTS: Final = "\0parts"
"""Several devices name that piece, as partitions name what they are parts of."""
_NO_USES: Final[_Uses] = MappingProxyType({})
_NO_RIVALS: Final[Rivals] = MappingProxyType({})

Records = Callable[[Key], Given | None]
"""Returns what is recorded of a device that this process did not give out, if anything is."""


def no_records(_key: Key) -> None:
    """Return that nothing is recorded."""


class _Present(NamedTuple):
    plugin: str
    uses: _Uses


class HeldHardware:
    """The hardware of all devices, and which of it is held. Thread-safe.

    Two devices are rivals if they have a piece in common, unless they are shares of one device, or
    one plugin discovered both at once: then both are meant to be given out. One id under several
    resources with the same pieces is always one device.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, list[tuple[Key, Device, frozenset[str]]]] = {}
        """The present devices of each plugin that have pieces."""
        self._present: dict[Key, _Present] = {}
        self._by_piece: dict[str, dict[str, list[Key]]] = {}
        """The present devices with each piece, by the use of it."""
        self._by_id: dict[str, list[Key]] = {}
        self._held: dict[Key, _Uses] = {}
        """The held devices, with what they were when they were given out."""
        self._recorded: dict[Key, Given] = {}
        self.rivals: Rivals = _NO_RIVALS
        """The present devices that must not be given out. It is replaced and never modified."""
        self._nodes = GivenNodes(self._is_of_another)
        self._seen = SeenNodes()
        self.changes = Listeners()
        """Those that want to know of other ``rivals``, or other ``stale`` holders. ``identify``
        and ``renew`` call them; after others the caller must, without its locks."""

    def identify(self, plugin: str, groups: DevicesByResource) -> None:
        """Record that ``groups`` are all devices of ``plugin`` now. It reads the file system."""
        found = list(_identified(groups))
        self._seen.discovered(plugin, groups)
        with self._lock:
            changed = False
            if self._found.get(plugin, []) != found:
                self._found[plugin] = found
                self._index()
                changed = self._compare()
            self._nodes.discovered(plugin, groups)
            changed |= self._nodes.compare()
        if changed:
            self.changes.call()

    def hold(self, keys: Collection[Key]) -> bool:
        """Count ``keys`` as given out now. Return whether ``rivals`` have changed."""
        with self._lock:
            self._held.update((key, self._uses(key)) for key in keys)
            return (
                any(True for key in keys for _ in self._rivals_of(key, _pieces_at))
                and self._compare()
            )

    def give(self, keys: Collection[Key]) -> bool:
        """Record that containers get the nodes of ``keys`` now; return whether one was stale."""
        with self._lock:
            for key in keys:
                self._recorded.pop(key, None)
            return self._nodes.give(keys)

    def check_nodes(
        self,
        devices: Collection[Device],
        given: Allocation | None = None,
        *,
        may_differ: bool = False,
    ) -> None:
        """As `SeenNodes.check`; after an error, devices are discovered again at once."""
        try:
            self._seen.check(devices, given, may_differ=may_differ)
        except AllocationError:
            self.changes.call()
            raise

    def renew(self, keys: Collection[Key]) -> None:
        """As ``give``, and it calls ``changes``."""
        if self.give(keys):
            self.changes.call()

    @property
    def stale(self) -> Mapping[Key, Stale]:
        """The held devices of which the holder has a node that is gone. It is never modified."""
        return self._nodes.stale

    @property
    def waits(self) -> bool:
        """Whether a device is kept from others until its holder has ended."""
        return bool(self.rivals or self.stale)

    def keep(self, held: Collection[Key], records: Records) -> bool:
        """Count exactly ``held`` as given out. Return whether ``rivals`` have changed."""
        with self._lock:
            over, new = self._held.keys() - held, held - self._held.keys()
            for key in over:
                del self._held[key]
                self._recorded.pop(key, None)
                self._nodes.forget(key)
            self._held.update((key, self._uses(key)) for key in new)
            found = {key: record for key in new if (record := records(key))}
            self._recorded |= found
            self._nodes.restore(found)
            if not (over or new):
                return False
            stale = self._nodes.compare(over | new)
            at = cache(_pieces_at)  # devices that were given out together have the same paths
            is_rival = any(True for key in new for _ in self._rivals_of(key, at))
            return ((is_rival or bool(self.rivals)) and self._compare()) or stale

    def became(self, key: Key, device: Device) -> str:
        """Return what became of ``device``, which is gone, by the file system; empty if nothing."""
        own = pieces.of(device)
        with self._lock:
            if not own and key in self._held:
                own = frozenset(self._was(key, _pieces_at))
            for piece in sorted(own):
                uses = self._by_piece.get(piece, {}).items()
                if others := sorted(one for use, keys in uses if use != _COMMON for one in keys):
                    what = "device node" if pieces.is_node(piece) else "hardware"
                    return f"its {what} is offered as {shown(others[0], key)} now"
        if any(os.path.exists(node.host_path) for node in device.nodes):  # noqa: PTH110
            return "its device node is there, but nothing offers it now"
        return ""

    def _index(self) -> None:
        self._present = {}
        by_piece: dict[str, defaultdict[str, list[Key]]] = defaultdict(lambda: defaultdict(list))
        by_id: dict[str, list[Key]] = defaultdict(list)
        for plugin, found in self._found.items():
            for key, uses in _uses_of(found):
                self._present[key] = _Present(plugin, uses)
                by_id[key[1]].append(key)
                for piece, use in uses.items():
                    by_piece[piece][use].append(key)
        self._by_piece, self._by_id = {**by_piece}, {**by_id}

    def _uses(self, key: Key) -> _Uses:
        now = self._present.get(key)
        return now.uses if now else _NO_USES

    def _was(self, held: Key, at: _At) -> _Uses:
        """Return what the device ``held`` was when it was given out, and what it is now.

        ``at`` returns the pieces at a path.
        """
        now = self._uses(held)
        given = self._held[held] = self._held[held] or now
        if held not in self._recorded:
            return {**given, **now}
        # What is at these paths now is what a container can open: a node that had gone may be back
        # as another device's.
        recorded = self._recorded[held]
        own = {piece for path in recorded.paths for piece in at(path)}
        if now and now.keys() <= own:  # nothing has gone, and plugins may add nodes to all
            return {**given, **now}
        own.difference_update(*map(self._uses, recorded.together))
        return {**dict.fromkeys(own, _ALONE), **given, **now}

    def _rivals_of(self, held: Key, at: _At) -> Iterator[Key]:
        """Yield the present devices that are the same hardware as ``held``."""
        was, now = self._was(held, at), self._present.get(held)
        for key in self._by_id.get(held[1], ()):
            if key != held and self._present[key].uses.keys() == was.keys():
                yield key
        for piece, use in was.items():
            # A part has no other whole, but its node may be the one of another whole by now.
            moved = use == _PARTS and now and piece not in now.uses and pieces.is_node(piece)
            for other, keys in self._by_piece.get(piece, {}).items():
                if _COMMON in {use, other} or (use == other != _ALONE and not moved):
                    continue
                for key in keys:
                    meant = now and piece in now.uses and self._present[key].plugin == now.plugin
                    if key != held and not meant:
                        yield key

    def _is_of_another(self, piece: str, key: Key) -> bool:
        uses = self._by_piece.get(piece, {})
        return any(one != key for keys in uses.values() for one in keys)

    def _compare(self) -> bool:
        found: dict[Key, set[Key]] = defaultdict(set)
        at = cache(_pieces_at)  # devices that were given out together have the same paths
        for held in self._held:
            for key in self._rivals_of(held, at):
                found[key].add(held)
        before, self.rivals = self.rivals, {key: tuple(sorted(found[key])) for key in found}
        return before != self.rivals


def _pieces_at(path: str) -> frozenset[str]:
    return pieces.named_by((path,))


def shown(key: Key, beside: Key) -> str:
    """Return the device ``key`` for people, with its resource if that is not the one of another."""
    return key[1] if key[0] == beside[0] else f"{key[1]} of {key[0]}"


def _identified(groups: DevicesByResource) -> Iterator[tuple[Key, Device, frozenset[str]]]:
    """Yield the devices that have pieces, each with these."""
    read: dict[int, frozenset[str]] = {}
    for resource, devices in groups.items():
        for device in devices.values():
            if not (names := device.hardware or device.nodes):
                continue
            same = id(names)  # shares have the same object, and there can be very many
            if same not in read:
                read[same] = pieces.of(device)
            if own := read[same]:
                yield (resource, device.id), device, own


def _uses_of(found: Collection[tuple[Key, Device, frozenset[str]]]) -> Iterator[tuple[Key, _Uses]]:
    """Yield the uses of the pieces of each device."""
    owners: dict[str, set[str]] = defaultdict(set)
    for key, device, own in found:
        for piece in own:
            owners[piece].add(device.share_of or key[1])
    made: dict[tuple[int, str, bool], _Uses] = {}
    for key, device, own in found:
        same = id(own), device.share_of, bool(device.hardware)
        if same not in made:
            several = _PARTS if device.hardware else _COMMON
            made[same] = {
                piece: device.share_of if len(owners[piece]) == 1 else several for piece in own
            }
        yield key, made[same]
