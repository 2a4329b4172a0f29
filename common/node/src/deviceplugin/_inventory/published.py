"""The inventory: the latest devices of each resource."""

import threading
import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from deviceplugin._inventory.chunks import Chunk, encode_chunks
from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform.callbacks import Listeners
from deviceplugin.errors import DiscoveryError
from deviceplugin.model import Device, Health
from deviceplugin.plugin import Plugin
from deviceplugin.proto.v1beta1 import HEALTHY, MAX_LIST_BYTES, UNHEALTHY

_LONGER: Final = len(UNHEALTHY) - len(HEALTHY)
_NO_DEVICES: Final[Mapping[str, Device]] = MappingProxyType({})
_FEW: Final = 16
"""Inserting one device into a sorted list costs about as much as sorting this many."""


class Snapshot(NamedTuple):
    """The devices of a resource at one moment, by id in natural order."""

    devices: Mapping[str, Device]
    encoded: bytes
    """The same as the kubelet gets it if all are offered, encoded once for all streams."""
    chunks: Sequence[Chunk]
    """The chunks of ``encoded``."""


_NOTHING: Final = Snapshot(_NO_DEVICES, b"", ())


class Resource:
    """One resource name, the plugin that serves it and its latest snapshot. Thread-safe."""

    def __init__(self, name: str, plugin: Plugin) -> None:
        self.name = name
        self.plugin = plugin
        self.snapshot: Snapshot | None = None
        """The latest snapshot; None before the first. It is replaced and never modified."""
        self._lock = threading.Lock()
        self._listeners = Listeners()
        self._since: dict[str, float] = {}
        self._final = False

    @property
    def devices(self) -> Mapping[str, Device]:
        """The devices of the latest snapshot."""
        snapshot = self.snapshot
        return _NO_DEVICES if snapshot is None else snapshot.devices

    def since(self, device_id: str) -> float:
        """Return when the device's health last changed, in seconds since the epoch."""
        return self._since.get(device_id, 0.0)

    def publish(self, devices: Iterable[Device]) -> list[Device]:
        """Make ``devices`` the latest snapshot and return those whose health changed.

        Raises:
            DiscoveryError: The list is too long for the kubelet; the last one stays.
        """
        before = self.snapshot or _NOTHING
        new = _ordered({device.id: device for device in devices}, before.devices)
        chunks = encode_chunks(list(new.values()), before.chunks)
        encoded = b"".join(chunk.encoded for chunk in chunks)
        # It must still fit when all devices turn unhealthy, because "Unhealthy" is longer.
        longest = len(encoded) + _LONGER * sum(chunk.healthy for chunk in chunks)
        if longest > MAX_LIST_BYTES:
            raise DiscoveryError(
                f"the list of {len(new)} devices for {self.name} has {longest} bytes, but the "
                f"kubelet accepts {MAX_LIST_BYTES} at most: use fewer devices or shorter ids"
            )
        changed = list(_changed(chunks, before))
        now = time.time()
        with self._lock:
            if self._final:
                return []
            if self._since.keys() != new.keys():
                self._since = {device_id: self._since.get(device_id, now) for device_id in new}
            self._since.update((device.id, now) for device in changed)
            stale = self.snapshot is None or self.snapshot.encoded != encoded
            self.snapshot = Snapshot(MappingProxyType(new), encoded, chunks)
        if stale:
            self._listeners.call()
        return changed

    def close(self) -> None:
        """Ignore all later snapshots."""
        with self._lock:
            self._final = True

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed``, from any thread, after each snapshot that differs on the wire.

        Return a function that ends this.
        """
        return self._listeners.add(changed)


def _ordered(devices: dict[str, Device], old: Mapping[str, Device]) -> dict[str, Device]:
    """Return ``devices`` in natural order; ``old`` is in that order."""
    ids = list(old)
    if list(devices) == ids:
        return devices
    if devices.keys() != old.keys():
        # Sort keys cost more than all the rest, so this computes as few of them as possible.
        added = [device_id for device_id in devices if device_id not in old]
        if len(added) * _FEW > len(devices):
            ids = sorted(devices, key=natural_key)
        else:
            ids = [device_id for device_id in ids if device_id in devices]
            for device_id in added:
                insort(ids, device_id, key=natural_key)
    return {device_id: devices[device_id] for device_id in ids}


def _changed(chunks: Iterable[Chunk], before: Snapshot) -> Iterator[Device]:
    """Yield the devices that are new, or whose health has changed."""
    old = {id(chunk) for chunk in before.chunks}
    for chunk in chunks:
        for device in chunk.devices if id(chunk) not in old else ():
            was = before.devices.get(device.id)
            if was is None or not _same(was.health, device.health):
                yield device


def _same(one: Health, other: Health) -> bool:
    return one is other or one == other  # it is usually the same object, and == is slower
