"""A cache between discoveries, so that a discovery costs only what has changed.

What could change without notice is not cached. Each discovery reads the directories and checks the
nodes again. The facts of sysfs about a node stay valid while its directory in sysfs is the same.
The matches of selectors stay valid until the kernel sends an event. The kernel counts its events;
if the number is unknown, nothing is reused. Everything else is evaluated again every few minutes.

The names of devices are kept for ever, so that no id is given to another device.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from stat import S_IFDIR, S_IFMT
from time import monotonic
from typing import Final

from deviceplugin.kit.hardware import KINDS
from deviceplugin.kit.usb import Ledger
from deviceplugin_generic.configuration import globs
from deviceplugin_generic.configuration.entries import Entry, Group, PathSpec
from deviceplugin_generic.discovery.cameras import Cameras
from deviceplugin_generic.discovery.devices import Share, of_entry
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.tree import Tree, folders, has_node

FULL_LOOK: Final = 300.0
"""Seconds after which nothing in the cache is valid."""

Signature = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    entry: Entry
    signature: Signature | None
    shares: list[Share]


class Cache:
    """The shares of entries in the last discovery."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._full_at = clock()
        self._events = ""
        self._kept: dict[str, _Kept] = {}
        self._identities: dict[tuple[int, int], object] = {}
        self._ledgers: dict[str, Ledger] = {}
        self.cameras = Cameras()
        self.folders: set[str] = set()
        """Directories that are devices, and the directories below them."""

    def begin(self, tree: Tree) -> None:
        """Begin a discovery of ``tree``. Drop what may no longer be valid."""
        self.folders = set()
        now = self._clock()
        if now - self._full_at >= FULL_LOOK:
            self._full_at = now
            self._kept.clear()
        if not tree.events or tree.events != self._events:
            self._identities.clear()
        self._events = tree.events

    def shares(self, entry: Entry, domain: str, tree: Tree, checker: Checker) -> list[Share]:
        """Return the shares of an entry: the same list as last time if nothing has changed."""
        signature = self._signature(entry, tree)
        kept = self._kept.get(entry.name)
        if kept and kept.entry is entry and kept.signature == signature is not None:
            return kept.shares
        ledger = self._ledgers.setdefault(entry.name, Ledger())
        found = of_entry(entry, domain, tree, checker, ledger)
        # What could not be read for a moment need not cause an event when it can be read again.
        self._kept[entry.name] = _Kept(entry, signature if tree.is_complete else None, found)
        return found

    def _signature(self, entry: Entry, tree: Tree) -> Signature | None:
        """Return everything that the shares of an entry depend on; None if that is unknown."""
        if any(group.asks_abilities for group in entry.groups):
            return None
        parts = [
            self._of_paths(group, tree) if group.paths else _of_events(group, tree)
            for group in entry.groups
        ]
        return tuple(parts) if entry.health.is_trivial and all(parts) else None

    def _of_paths(self, group: Group, tree: Tree) -> Signature:
        hits = [(spec, globs.glob(spec.path, tree.names)) for spec in group.paths]
        return tuple(
            [(path, self._mark(path, spec, tree)) for path in found] for spec, found in hits
        )

    def _mark(self, path: str, spec: PathSpec, tree: Tree) -> object:
        """Return what identifies the file at ``path``, for health and for sysfs."""
        try:
            status = os.stat(path)  # noqa: PTH116 - thousands of these
        except OSError as error:
            return error.errno
        kind = S_IFMT(status.st_mode)
        if kind == S_IFDIR and not spec.is_mount:
            self.folders.update(folders(path))
            return kind, has_node(path)
        if kind not in KINDS:
            return kind
        key = kind, status.st_rdev
        if key not in self._identities:
            self._identities[key] = tree.identity(KINDS[kind], status.st_rdev)
        return key, self._identities[key]


def _of_events(group: Group, tree: Tree) -> str:
    """Return the number of kernel events that a group has seen; empty if events do not suffice."""
    asks_more = any(one.link or one.properties or one.attributes for one in group.selectors)
    return "" if asks_more else tree.events
