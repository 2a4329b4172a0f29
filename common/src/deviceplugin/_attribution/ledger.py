"""Which devices have been given back, by what was seen of them."""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from deviceplugin._attribution.schedule import Key
from deviceplugin._platform.file_identity import Identity


@dataclass(frozen=True, slots=True)
class Observation:
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
        confirm: Time between the two polls that must find a device free.
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
        """Note that ``keys`` were released, and reported."""
        for key in keys:
            self._tracks.pop(key, None)

    def observe(self, observation: Observation, busy: Collection[Key], now: float) -> list[Key]:
        """Return what has been given back by now. ``busy`` is being allocated at this moment.

        A device is if it was free in this poll and in one ``confirm`` seconds before, and in all
        between. Free is what nobody holds according to the kubelet that had it held before, or to
        another that knows of all pods.
        """
        for key in observation.held - self._tracks.keys():
            self._tracks[key] = _Track(observation.kubelet, float("-inf"))
        due = []
        for key, track in self._tracks.items():
            if key in observation.held:
                track.kubelet, track.free_since = observation.kubelet, None
            elif key in busy or not self._believable(track, observation, now):
                track.free_since = None
            elif track.free_since is None:
                track.free_since = now
            elif now - track.free_since >= self._confirm:
                due.append(key)
        return due

    def _believable(self, track: _Track, observation: Observation, now: float) -> bool:
        known = observation.complete or track.kubelet == observation.kubelet
        return known and now - track.allocated_at >= self._admission

    def still_free(self, keys: Iterable[Key]) -> list[Key]:
        """Return those of ``keys`` that have not been allocated since they were seen free."""
        tracks = ((key, self._tracks.get(key)) for key in keys)
        return [key for key, track in tracks if track and track.free_since is not None]

    def confirm_in(self, now: float) -> float | None:
        """Return the seconds until a poll that could confirm something; None without any."""
        waits = [
            track.free_since + self._confirm - now
            for track in self._tracks.values()
            if track.free_since is not None
        ]
        return min((wait for wait in waits if wait > 0), default=None)
