"""The latest list of each resource, and waiting for the next one."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from deviceplugin._rules import natural_key
from deviceplugin._wire import encode_list
from deviceplugin.errors import DiscoveryError
from deviceplugin.model import Device, Health
from deviceplugin.plugin import Plugin
from deviceplugin.v1beta1 import HEALTHY, MAX_LIST_BYTES, UNHEALTHY

_LONGER: Final = len(UNHEALTHY) - len(HEALTHY)
_NO_DEVICES: Final[Mapping[str, Device]] = MappingProxyType({})


Guard = Callable[["Resource", Collection[str]], AbstractContextManager[None]]
"""Entered around each Allocate of these ids; what it raises refuses them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The devices of a resource at one moment, by id in natural order."""

    devices: Mapping[str, Device]
    encoded: bytes
    """The same as the kubelet gets it; encoded once, however many streams send it."""


class Resource:
    """One resource name, the plugin that serves it and its latest snapshot. Thread-safe."""

    def __init__(
        self, name: str, plugin: Plugin, guard: Guard = lambda _resource, _ids: nullcontext()
    ) -> None:
        self.name = name
        self.plugin = plugin
        self.guard = guard
        self._changed = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._since: dict[str, float] = {}
        self._final = False

    @property
    def devices(self) -> Mapping[str, Device]:
        """The devices as last published."""
        snapshot = self._snapshot
        return _NO_DEVICES if snapshot is None else snapshot.devices

    def since(self, device_id: str) -> float:
        """Return when the device's health last changed, in seconds since the epoch."""
        return self._since.get(device_id, 0.0)

    def publish(self, devices: Iterable[Device]) -> list[Device]:
        """Make ``devices`` the latest snapshot and return those whose health changed.

        Raises:
            DiscoveryError: The list is too long for the kubelet; the last one stays.
        """
        new = self._ordered({device.id: device for device in devices})
        encoded = encode_list(new.values())
        # It must still fit when the devices turn unhealthy, which is a longer word.
        longest = len(encoded) + _LONGER * sum(device.health.healthy for device in new.values())
        if longest > MAX_LIST_BYTES:
            raise DiscoveryError(
                f"the list of {len(new)} devices for {self.name} has {longest} bytes, and the "
                f"kubelet takes {MAX_LIST_BYTES} at most: use fewer devices or shorter ids"
            )
        old = self.devices
        changed = [
            device
            for device in new.values()
            if (before := old.get(device.id)) is None or not _same(before.health, device.health)
        ]
        now = time.time()
        with self._changed:
            if self._final:
                return []
            self._since = {device_id: self._since.get(device_id, now) for device_id in new}
            self._since.update((device.id, now) for device in changed)
            stale = self._snapshot is None or self._snapshot.encoded != encoded
            self._snapshot = Snapshot(MappingProxyType(new), encoded)
            if stale:
                self._changed.notify_all()
        return changed

    def close(self) -> None:
        """Keep the present snapshot for good."""
        with self._changed:
            self._final = True

    def _ordered(self, devices: Mapping[str, Device]) -> dict[str, Device]:
        old = self.devices
        # Sorting costs more than all the rest, and mostly the same devices are here as before.
        ids = old if old.keys() == devices.keys() else sorted(devices, key=natural_key)
        return {device_id: devices[device_id] for device_id in ids}

    def next_list(self, last: bytes | None, done: Callable[[], bool]) -> bytes | None:
        """Wait for an encoded list other than ``last`` and return it; None once ``done`` says so.

        A list that is waiting when ``done`` comes true is still returned: a stream that is being
        closed sends what it has to say first. Call ``wake`` to have ``done`` asked again.
        """
        with self._changed:
            while True:
                snapshot = self._snapshot
                if snapshot is not None and snapshot.encoded != last:
                    return snapshot.encoded
                if done():
                    return None
                self._changed.wait()

    def wake(self) -> None:
        """Let everyone in ``next_list`` look at ``done``."""
        with self._changed:
            self._changed.notify_all()


def _same(one: Health, other: Health) -> bool:
    return one is other or one == other  # mostly the same object, and comparing costs more
