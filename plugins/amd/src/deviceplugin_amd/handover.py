"""Devices that no pod has and that processes still use.

A process can outlive its pod, such as one that hangs in the driver. Its memory is not free, and the
next pod might read it. The kernel says which processes use a device, but not whose pod they are of.
So a device is checked only while no pod has a share of it, as far as the plugin knows.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Event, Lock
from time import monotonic
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import kfd
from deviceplugin_amd.advertised import AdvertisedUnit
from deviceplugin_amd.snapshot import Unit

_LIMIT: Final = 5.0
"""Seconds that an allocation waits: the driver takes some time to clean up after a process."""
_EVERY: Final = 0.1
_FEW: Final = 3
"""Processes that a message names."""


class Handover:
    """Which devices no pod has, and which of them are not clean. Thread-safe."""

    def __init__(
        self,
        sysfs: Sysfs,
        clock: Callable[[], float] = monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._sysfs = sysfs
        self._clock = clock
        self._pause = pause or Event().wait
        self._lock = Lock()
        self._free: set[str] = set()
        """Ids that a pod has given back. Of others it is not known that no pod has them."""
        self._dirty: dict[str, int] = {}
        """KFD's number of the device, by unit."""
        self._news = False

    def give(self, devices: Collection[str], offers: Mapping[str, AdvertisedUnit]) -> None:
        """Note that a pod gets devices; AllocationError if one has been in use for some seconds."""
        wanted = _offers_of(devices, offers)
        until = self._clock() + _LIMIT
        while users := self._first_users(wanted, devices):
            if self._clock() >= until:
                unit, reason = users
                self._mark(unit)
                raise dp.AllocationError(f"{unit.id}: {reason}", device_ids=list(devices))
            self._pause(_EVERY)
        with self._lock:
            self._free.difference_update(devices)

    def take_back(self, devices: Collection[str], offers: Mapping[str, AdvertisedUnit]) -> None:
        """Note that no pod has devices any more."""
        with self._lock:
            self._free.update(devices)
        for offer in _offers_of(devices, offers):
            if self._first_users([offer], devices):
                self._mark(offer.unit)

    def reasons(self, units: Collection[Unit]) -> dict[str, str]:
        """Return why units are not clean, by id, and forget those that are clean by now."""
        with self._lock:
            self._news = False
            dirty = [unit for unit in units if unit.id in self._dirty]
            found = {one.id: reason for one in dirty if (reason := _reason(self._sysfs, one))}
            self._dirty = {one.id: one.gpu_id for one in dirty if one.id in found}
        return found

    def is_due(self) -> bool:
        """Return whether a unit has become dirty or clean since ``reasons`` was called."""
        with self._lock:
            dirty, news = list(self._dirty.values()), self._news
        return news or any(not kfd.users(self._sysfs, gpu_id) for gpu_id in dirty)

    def is_watching(self) -> bool:
        """Return whether any unit is dirty, and so ``is_due`` should be called often."""
        with self._lock:
            return bool(self._dirty)

    def _mark(self, unit: Unit) -> None:
        with self._lock:
            self._dirty[unit.id] = unit.gpu_id
            self._news = True

    def _first_users(
        self, offers: Iterable[AdvertisedUnit], devices: Collection[str]
    ) -> tuple[Unit, str] | None:
        """Return a unit that is in use although no pod has a share of it, and by whom."""
        with self._lock:
            free = self._free.union(devices)
        for offer in offers:
            is_free = all(device.id in free for device in offer.devices)
            if is_free and (reason := _reason(self._sysfs, offer.unit)):
                return offer.unit, reason
        return None


def _offers_of(
    devices: Collection[str], offers: Mapping[str, AdvertisedUnit]
) -> list[AdvertisedUnit]:
    """Return the offers of devices, each once."""
    found = [offers[one] for one in devices if one in offers]
    return list({offer.unit.id: offer for offer in found}.values())


def _reason(sysfs: Sysfs, unit: Unit) -> str:
    """Return which processes use a unit; empty if none does, or that is not known."""
    users = kfd.users(sysfs, unit.gpu_id) if unit.gpu_id else []
    return f"still in use by {', '.join(users[:_FEW])}, though no pod has it" if users else ""
