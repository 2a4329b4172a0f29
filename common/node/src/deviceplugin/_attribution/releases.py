"""Which devices pods have released, and calling ``released`` of their plugins for them.

The kubelet never reports a release. It is concluded from what PodResources no longer shows, so it
is never immediate. It must also be certain: a kubelet that does not know its pods yet gives a list
without them, and that must not release anything.
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
from typing import Final, NamedTuple

from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._inventory.published import Resource
from deviceplugin._inventory.validation import natural_key
from deviceplugin._platform.file_identity import Identity
from deviceplugin._platform.hooks import HooksByResource
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device
from deviceplugin.plugin import overrides

log = logging.getLogger(__name__)


class Observation(NamedTuple):
    """What pods held at one moment."""

    held: AbstractSet[Key]
    kubelet: Identity
    """The kubelet that reported it."""
    complete: bool
    """Whether that kubelet knows all pods. After a restart it does not at first."""
    recorded: AbstractSet[Key] = frozenset()
    """What that kubelet has recorded for pods that may still be there, listed or not."""

    @classmethod
    def of(cls, holdings: Holdings, kubelet: Identity) -> "Observation":
        held = frozenset((hold.resource, hold.device) for hold in holdings.holds or ())
        return cls(held, kubelet, holdings.complete, holdings.recorded)


@dataclass(slots=True, eq=False, repr=False)
class _Track:
    """A device that is held."""

    kubelet: Identity
    """The kubelet that last reported the device as held."""
    allocated_at: float
    free_since: float | None = None


class ReleaseLedger:
    """The devices that were allocated and not released. Times are those of `AttributionTiming`."""

    def __init__(self, confirm: float, admission: float, recorded: float) -> None:
        self._confirm = confirm
        self._admission = admission
        self._recorded = recorded
        self._tracks: dict[Key, _Track] = {}

    @property
    def tracked(self) -> AbstractSet[Key]:
        """The devices that count as held: their release has not been observed."""
        return self._tracks.keys()

    def allocated(self, keys: Iterable[Key], kubelet: Identity, now: float) -> None:
        """Record that ``keys`` were allocated to a pod, which may still be rejected."""
        self._tracks.update((key, _Track(kubelet, now)) for key in keys)

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._tracks.pop(key, None)

    def observe(self, observation: Observation, busy: Collection[Key], now: float) -> list[Key]:
        """Return the devices that are released by now. ``busy`` are being allocated at the moment.

        A device is released if it was free in this poll, in one at least ``confirm`` seconds
        earlier, and in all between. It is free if no pod holds it, according to the kubelet that
        last reported it as held, or to another kubelet that knows all pods.
        """
        for key in observation.held - self._tracks.keys():
            self._tracks[key] = _Track(observation.kubelet, float("-inf"))
        due = []
        for key, track in self._tracks.items():
            if key in observation.held:
                track.kubelet, track.free_since = observation.kubelet, None
            elif key in busy or not self._believable(key, track, observation, now):
                track.free_since = None
            elif track.free_since is None:
                track.free_since = now
            elif now - track.free_since >= self._confirm:
                due.append(key)
        return due

    def _believable(self, key: Key, track: _Track, observation: Observation, now: float) -> bool:
        known = observation.complete or track.kubelet == observation.kubelet
        age = now - track.allocated_at
        recorded = key in observation.recorded and age < self._recorded
        return known and age >= self._admission and not recorded

    def still_free(self, keys: Iterable[Key]) -> list[Key]:
        """Return those of ``keys`` that have not been allocated since they were found free."""
        tracks = ((key, self._tracks.get(key)) for key in keys)
        return [key for key, track in tracks if track and track.free_since is not None]

    def confirm_in(self, now: float) -> float | None:
        """Return the seconds until a poll could confirm a release; None if there is none."""
        waits = [
            track.free_since + self._confirm - now
            for track in self._tracks.values()
            if track.free_since is not None
        ]
        return min((wait for wait in waits if wait > 0), default=None)


_TIMEOUT: Final = 10.0
"""Most seconds that ``released()`` may take, and that an Allocate of the same device waits."""
_MANY: Final = 10
"""Most devices that one log line names."""


class Releases:
    """Calls ``released`` of plugins that override it. Thread-safe."""

    def __init__(
        self, find: Callable[[str], Resource | None], ledger: ReleaseLedger, metrics: Metrics
    ) -> None:
        self._find = find
        self._ledger = ledger
        self._metrics = metrics
        self._changed = threading.Condition()
        self._busy: Counter[Key] = Counter()
        self._reporting: set[Key] = set()
        self._hooks = HooksByResource()
        self._closed = False
        self._problems = Problems(log)
        self._kubelet: Identity = None

    def close(self) -> None:
        """Make no more calls, and stop waiting for those under way."""
        with self._changed:
            self._closed = True
        self._hooks.close()

    @contextmanager
    def allocating(self, resource: Resource, ids: Iterable[str]) -> Iterator[None]:
        """Count ``ids`` as held by a pod after the context, unless its body raises.

        First it waits for a ``released`` that is under way for one of them, up to its time limit.
        """
        if not overrides(resource.plugin, "released"):  # but the plugin is exclusive
            yield
            return
        keys = {(resource.name, device_id) for device_id in ids}
        with self._changed:
            self._changed.wait_for(lambda: not keys & self._reporting, _TIMEOUT)
            self._busy.update(keys)
        try:
            yield
            with self._changed:
                self._ledger.allocated(keys, self._kubelet, time.monotonic())
        finally:
            with self._changed:
                self._busy -= Counter(keys)

    def confirm_in(self) -> float | None:
        with self._changed:
            return self._ledger.confirm_in(time.monotonic())

    def observe(self, observation: Observation) -> None:
        """Call ``released`` of the plugins concerned. This takes as long as their hooks take."""
        names = {name for name, _ in observation.held}
        wanting = {name for name in names if _wants(self._find(name))}
        wanted = {key for key in observation.held if key[0] in wanting}
        with self._changed:
            self._kubelet = observation.kubelet
            if self._closed:
                return
            observation = observation._replace(held=wanted)
            due = sorted(self._ledger.observe(observation, self._busy, time.monotonic()))
        for name, keys in groupby(due, key=lambda key: key[0]):
            self._report(name, list(keys))

    def _report(self, name: str, keys: list[Key]) -> None:
        resource = self._find(name)
        with self._changed:
            # Devices may have been allocated while the hooks of other resources ran.
            if self._closed:
                return
            keys = [key for key in self._ledger.still_free(keys) if key not in self._busy]
            self._reporting = set(keys)
        if not keys:
            return
        over = False
        try:
            over = resource is None or not _wants(resource) or self._call(resource, keys)
        finally:
            with self._changed:
                if over:
                    self._ledger.forget(keys)
                self._reporting = set()
                self._changed.notify_all()

    def _call(self, resource: Resource, keys: list[Key]) -> bool:
        known, plugin, name = resource.devices, resource.plugin, resource.name
        ids = sorted((device_id for _, device_id in keys), key=natural_key)
        devices = [known.get(device_id, Device(device_id, resource=name)) for device_id in ids]
        try:
            self._hooks[name].call("released", plugin.released, devices, timeout=_TIMEOUT)
        except DevicePluginError as error:
            self._problems.say(name, "released() failed", resource=name, error=str(error))
            return False
        self._problems.over(name)
        self._metrics.released.labels(name).inc(len(ids))
        for device_id in ids[:_MANY]:
            self._metrics.events.add("device released", resource=name, device=device_id)
        log.info("devices released", extra={"resource": name, "devices": ", ".join(ids[:_MANY])})
        return True


def _wants(resource: Resource | None) -> bool:
    return resource is not None and overrides(resource.plugin, "released")
