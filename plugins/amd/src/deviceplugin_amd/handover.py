"""Devices that nobody has and that are still in use: by what a pod left behind, or by a stranger.

A process can outlive its pod, as one that hangs in the driver. Its memory is not free, and what is
in it may be read by who comes next. The kernel says who uses a device, and not whose pod it is. So
a device is looked at only while no pod has a share of it, as far as the kubelet and we know.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from threading import Event, Lock
from time import monotonic
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.sysfs import Sysfs
from deviceplugin_amd import kfd

_LIMIT: Final = 5.0
"""Seconds that an allocation waits: the driver takes some time to clean up after a process."""
_EVERY: Final = 0.1
_FEW: Final = 3
"""Processes that are named."""


@dataclass(frozen=True, slots=True)
class Used:
    """What can be in use."""

    unit: str
    gpu_id: int
    """By which the kernel says who uses it; 0 if that is not known."""
    shares: frozenset[str]
    """All ids of it."""


class Handover:
    """Who has which device, and which of those that nobody has are not clean. Thread-safe."""

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
        """Ids that a pod has given back. Of others we do not know that nobody has them."""
        self._dirty: dict[str, int] = {}
        """Number of the device by unit."""
        self._news = False

    def give(self, devices: Collection[str], used: Mapping[str, Used]) -> None:
        """Take note that a pod gets devices.

        Raises:
            AllocationError: One is still in use, and was for some seconds.
        """
        wanted = {used[one].unit: used[one] for one in devices if one in used}
        until = self._clock() + _LIMIT
        while users := self._first_users(wanted.values(), devices):
            if self._clock() >= until:
                unit, reason = users
                with self._lock:
                    self._dirty[unit.unit] = unit.gpu_id
                    self._news = True
                raise dp.AllocationError(f"{unit.unit}: {reason}", device_ids=list(devices))
            self._pause(_EVERY)
        with self._lock:
            self._free.difference_update(devices)

    def take_back(self, devices: Collection[str], used: Mapping[str, Used]) -> None:
        """Take note that no pod has devices any more."""
        with self._lock:
            self._free.update(devices)
        for one in {used[one] for one in devices if one in used}:
            if self._first_users([one], devices):
                with self._lock:
                    self._dirty[one.unit] = one.gpu_id
                    self._news = True

    def reasons(self, used: Collection[Used]) -> dict[str, str]:
        """Return which units are not clean and why, and forget those that are clean by now."""
        with self._lock:
            self._news = False
            dirty = [one for one in used if one.unit in self._dirty]
            found = {one: reason for one in dirty if (reason := _reason(self._sysfs, one.gpu_id))}
            self._dirty = {one.unit: one.gpu_id for one in found}
        return {one.unit: reason for one, reason in found.items()}

    def is_due(self) -> bool:
        """Return whether a unit has become dirty or clean since they were last asked for."""
        with self._lock:
            dirty, news = dict(self._dirty), self._news
        return news or any(not _reason(self._sysfs, gpu_id) for gpu_id in dirty.values())

    def _first_users(
        self, used: Collection[Used], devices: Collection[str]
    ) -> tuple[Used, str] | None:
        """Return a unit that is in use although nobody has a share of it; None if there is none."""
        with self._lock:
            known = self._free.union(devices)
        for one in used:
            if one.shares <= known and (reason := _reason(self._sysfs, one.gpu_id)):
                return one, reason
        return None


def _reason(sysfs: Sysfs, gpu_id: int) -> str:
    """Return who uses a device; empty if nobody does, or that is not known."""
    users = kfd.users(sysfs, gpu_id) if gpu_id else []
    return f"still in use by {', '.join(users[:_FEW])}, though no pod has it" if users else ""
