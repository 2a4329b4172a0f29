"""Which devices pods have released, concluded from observations."""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._platform.file_identity import Identity


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
        """Return what ``kubelet`` says that pods hold."""
        held = frozenset((hold.resource, hold.device) for hold in holdings.holds or ())
        return cls(held, kubelet, holdings.complete, holdings.recorded)


@dataclass(slots=True, eq=False, repr=False)
class _Track:
    kubelet: Identity
    """The kubelet that last reported the device as held."""
    allocated_at: float
    free_since: float | None = None


class Ledger:
    """The devices that were allocated and whose release has not been observed.

    Times are monotonic seconds.

    Args:
        confirm: Time between the two polls that must find a device free.
        admission: Time from an allocation until its pod is listed or rejected.
        recorded: Time from an allocation for which a device is not free as long as it is recorded.
    """

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
        """Forget ``keys``, whose release was reported."""
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
