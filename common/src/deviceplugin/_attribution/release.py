"""Telling a plugin that a pod has given devices back, which the kubelet never does.

Concluded from what PodResources no longer shows, so never at once, and not lightly: a list that
a kubelet gives before it has heard of its pods must release nothing.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from deviceplugin._inventory.published import Resource
from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform import hooks as _hooks
from deviceplugin._platform.file_identity import Identity
from deviceplugin._telemetry.log import Once
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import DevicePluginError
from deviceplugin.model import Device
from deviceplugin.plugin import Capabilities

log = logging.getLogger(__name__)

_TIMEOUT: Final = 10.0
"""Seconds that ``released()`` may take, and that an Allocate of the same device waits for it."""
_MANY: Final = 10
"""Devices that are named one by one; more are counted."""

Key = tuple[str, str]
"""A resource and the id of a device."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What pods held at one moment."""

    held: AbstractSet[Key]
    kubelet: Identity
    """Which kubelet said so."""
    complete: bool
    """Whether that kubelet knows of all pods, also of those that it has never listed."""


@dataclass(slots=True)
class _Track:
    kubelet: Identity
    """The one that last had the device held."""
    allocated_at: float
    free_since: float | None = None


class Ledger:
    """The devices that pods were given and have not been seen to give back. Seconds, monotonic.

    Args:
        confirm: Time between the two looks that must find a device free.
        admission: Time from an allocation until its pod is listed, or has been rejected.
    """

    def __init__(self, confirm: float, admission: float) -> None:
        self._confirm = confirm
        self._admission = admission
        self._tracks: dict[Key, _Track] = {}

    def allocated(self, keys: Iterable[Key], kubelet: Identity, now: float) -> None:
        """Take ``keys`` for given to a pod, most likely."""
        self._tracks.update((key, _Track(kubelet, now)) for key in keys)

    def forget(self, keys: Iterable[Key]) -> None:
        """Take ``keys`` for given back, and told."""
        for key in keys:
            self._tracks.pop(key, None)

    def look(self, sight: Sight, busy: Collection[Key], now: float) -> list[Key]:
        """Return what has been given back by now. ``busy`` is being allocated at this moment.

        A device is if it was free in this look and in one ``confirm`` seconds before, and in all
        between. Free is what nobody holds according to the kubelet that had it held before, or to
        another that knows of all pods.
        """
        for key in sight.held - self._tracks.keys():
            self._tracks[key] = _Track(sight.kubelet, float("-inf"))
        due = []
        for key, track in self._tracks.items():
            if key in sight.held:
                track.kubelet, track.free_since = sight.kubelet, None
            elif key in busy or not self._believable(track, sight, now):
                track.free_since = None
            elif track.free_since is None:
                track.free_since = now
            elif now - track.free_since >= self._confirm:
                due.append(key)
        return due

    def _believable(self, track: _Track, sight: Sight, now: float) -> bool:
        known = sight.complete or track.kubelet == sight.kubelet
        return known and now - track.allocated_at >= self._admission

    def still_free(self, keys: Iterable[Key]) -> list[Key]:
        """Return those of ``keys`` that have not been allocated since they were seen free."""
        tracks = ((key, self._tracks.get(key)) for key in keys)
        return [key for key, track in tracks if track and track.free_since is not None]

    def confirm_in(self, now: float) -> float | None:
        """Return the seconds until a look that could confirm something; None without any."""
        waits = [
            track.free_since + self._confirm - now
            for track in self._tracks.values()
            if track.free_since is not None
        ]
        return min((wait for wait in waits if wait > 0), default=None)


class Releases:
    """Calls ``released`` of plugins that have it. Thread-safe."""

    def __init__(
        self, find: Callable[[str], Resource | None], ledger: Ledger, metrics: Metrics
    ) -> None:
        self._find = find
        self._ledger = ledger
        self._metrics = metrics
        self._changed = threading.Condition()
        self._busy: Counter[Key] = Counter()
        self._telling: set[Key] = set()
        self._hooks: dict[str, _hooks.Hooks] = {}
        self._closed = False
        self._problems = Once(log)
        self._kubelet: Identity = None

    def close(self) -> None:
        """Call nothing more, and wait for no call any longer."""
        with self._changed:
            self._closed = True
            hooks = list(self._hooks.values())
        for each in hooks:
            each.close()

    @contextmanager
    def allocating(self, resource: Resource, ids: Iterable[str]) -> Iterator[None]:
        """Take ``ids`` for held by a pod from now on, unless the body raises.

        Waits first for a ``released`` that is under way for one of them, as long as that may take.
        """
        if not Capabilities.of(resource.plugin).released:
            yield
            return
        keys = {(resource.name, device_id) for device_id in ids}
        with self._changed:
            self._changed.wait_for(lambda: not keys & self._telling, _TIMEOUT)
            self._busy.update(keys)
        try:
            yield
            with self._changed:
                self._ledger.allocated(keys, self._kubelet, time.monotonic())
        finally:
            with self._changed:
                self._busy -= Counter(keys)

    def confirm_in(self) -> float | None:
        """Return the seconds until a look would be good; None where none is wanted."""
        with self._changed:
            return self._ledger.confirm_in(time.monotonic())

    def look(self, sight: Sight) -> None:
        """Tell plugins what has been released. Takes as long as their hooks do."""
        names = {name for name, _ in sight.held}
        wanting = {name for name in names if _wants(self._find(name))}
        wanted = {key for key in sight.held if key[0] in wanting}
        with self._changed:
            self._kubelet = sight.kubelet
            if self._closed:
                return
            sight = Sight(wanted, sight.kubelet, sight.complete)
            due = sorted(self._ledger.look(sight, self._busy, time.monotonic()))
        for name, keys in groupby(due, key=lambda key: key[0]):
            self._tell(name, list(keys))

    def _tell(self, name: str, keys: list[Key]) -> None:
        resource = self._find(name)
        with self._changed:
            # The hooks of other resources took their time, in which much can have happened.
            if self._closed:
                return
            keys = [key for key in self._ledger.still_free(keys) if key not in self._busy]
            self._telling = set(keys)
        if not keys:
            return
        told = False
        try:
            told = resource is None or not _wants(resource) or self._call(resource, keys)
        finally:
            with self._changed:
                if told:
                    self._ledger.forget(keys)
                self._telling = set()
                self._changed.notify_all()

    def _call(self, resource: Resource, keys: list[Key]) -> bool:
        known, plugin, name = resource.devices, resource.plugin, resource.name
        ids = sorted((device_id for _, device_id in keys), key=natural_key)
        devices = [known.get(device_id, Device(device_id, resource=name)) for device_id in ids]
        with self._changed:
            hooks = self._hooks.setdefault(name, _hooks.Hooks())
        try:
            hooks.call("released", plugin.released, devices, timeout=_TIMEOUT)
        except DevicePluginError as error:
            self._problems.say(name, "released() failed", resource=name, error=str(error))
            return False
        self._problems.over(name)
        self._metrics.released.labels(name).inc(len(ids))
        for device_id in ids[:_MANY]:
            self._metrics.events.add("device is released", resource=name, device=device_id)
        log.info(
            "devices are released", extra={"resource": name, "devices": ", ".join(ids[:_MANY])}
        )
        return True


def _wants(resource: Resource | None) -> bool:
    return resource is not None and Capabilities.of(resource.plugin).released
