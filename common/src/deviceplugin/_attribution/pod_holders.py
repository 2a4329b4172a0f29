"""Which devices pods hold through the device plugin, as far as DRA must respect it."""

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import AttributionTiming, Key
from deviceplugin._attribution.release_ledger import Ledger, Observation
from deviceplugin._platform.file_identity import Identity


class PodHolders:
    """The devices that pods hold, or may hold. Not thread-safe; times are monotonic seconds.

    A device is held from its allocation until its release is certain, by the rules of `Ledger`. One
    that the kubelet only has recorded for a pod counts as held, but not for ever: the pod may have
    ended, and an idle kubelet does not write its checkpoint again.
    """

    def __init__(self, timing: AttributionTiming) -> None:
        self._ledger = Ledger(timing.handover_confirm, timing.admission, timing.recorded)
        self._last = Holdings()
        self._kubelet: Identity = None
        self._disbelieved: AbstractSet[Key] = frozenset()
        """Those that are recorded, but have been for so long that no pod can have them."""
        self.listed: AbstractSet[Key] = frozenset()
        """The devices that pods held in the last poll, or that were recorded for one."""
        self.known = False
        """Whether a kubelet that knows all pods has reported what they hold."""

    @property
    def held(self) -> AbstractSet[Key]:
        """The devices that pods hold, or may hold."""
        return self._ledger.tracked

    def name(self, key: Key) -> str:
        """Return which pod holds the device ``key``, which is held, for a message."""
        resource, device_id = key
        holds = self._last.holders(resource).get(device_id)
        return f"pod {holds[0].namespace}/{holds[0].pod}" if holds else "a pod"

    def allocated(self, keys: Collection[Key], now: float) -> None:
        """Record that ``keys`` were allocated to a pod, which may still be rejected."""
        self._ledger.allocated(keys, self._kubelet, now)

    def observe(
        self, holdings: Holdings, kubelet: Identity, busy: Collection[Key], now: float
    ) -> None:
        """Take account of what ``kubelet`` says that pods hold. ``busy`` are being allocated."""
        if holdings.holds is None:
            return
        self._last, self._kubelet = holdings, kubelet
        self.known = self.known or holdings.complete
        seen = Observation.of(holdings, kubelet)
        held = seen.held
        self._disbelieved &= holdings.recorded
        found = holdings.recorded - held - self.held - self._disbelieved
        self._ledger.allocated(found, kubelet, now)
        over = self._ledger.observe(seen, busy, now)
        self._disbelieved |= holdings.recorded & frozenset(over)
        self._ledger.forget(over)
        self.listed = held | (holdings.recorded - self._disbelieved)
