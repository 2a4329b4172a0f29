"""What is known of what pods hold: by which kubelet, how complete and how fresh."""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from deviceplugin._attribution.podresources import Hold, Holdings, PodName
from deviceplugin._attribution.schedule import AttributionTiming
from deviceplugin._platform.file_identity import Identity

_NEVER: Final = float("-inf")
_UNKNOWN: Final = Holdings()
_MOST_GETS: Final = 8
"""Pods that are asked for one by one; the kubelet lets ten calls in a row pass, of all clients."""
_LISTS: Final = 10
"""Every how many intervals a list is asked for in any case."""


@dataclass(frozen=True, slots=True)
class HoldingsView:
    """What pods hold, as far as the kubelet's answers so far tell.

    Never changes: an answer makes another one. Times are in monotonic seconds, and given by the
    caller. ``ours`` are the names of the resources of this process.
    """

    timing: AttributionTiming
    own_pod: str = ""
    """Name of the pod that this process may be in. Where it has been listed once, a kubelet that
    does not list it has not heard of its pods."""
    holdings: Holdings = _UNKNOWN
    """What pods hold by the last answer, however old that is."""
    kubelet: Identity = None
    """The kubelet that gave the last list."""
    gone: Mapping[PodName, float] = field(default_factory=dict)
    """Pods that held a device of ours lately, and when that was over."""
    _taken: float = _NEVER
    _listed: float = _NEVER
    _kubelet_since: float = _NEVER
    _without_get: Identity = None
    _own_pod_listed: bool = False

    def current(self, now: float) -> Holdings | None:
        """Return what pods hold; None where that is not known, or was found out too long ago."""
        known = self.holdings.holds is not None
        fresh = now - self._taken <= self.timing.stale
        return self.holdings if known and fresh else None

    def pods_to_get(
        self, kubelet: Identity, ours: Collection[str], now: float
    ) -> AbstractSet[PodName] | None:
        """Return the pods to ask ``kubelet`` for, or None where only a list is enough."""
        if self._needs_list(kubelet, now):
            return None
        pods = _owners(self.holdings, ours) | self.gone.keys()
        return pods if len(pods) <= _MOST_GETS else None

    def _needs_list(self, kubelet: Identity, now: float) -> bool:
        return (
            self.holdings.holds is None
            or not self.holdings.complete
            or kubelet != self.kubelet
            or kubelet == self._without_get
            or now - self._listed >= _LISTS * self.timing.interval
        )

    def without_get(self, kubelet: Identity) -> "HoldingsView":
        """Return the view in which ``kubelet`` can only be asked for lists."""
        return replace(self, _without_get=kubelet)

    def after_get(
        self,
        found: AbstractSet[Hold],
        pods: AbstractSet[PodName],
        ours: Collection[str],
        now: float,
    ) -> "HoldingsView":
        """Return the view in which ``pods`` hold what was ``found``, and the others as before."""
        before = self.holdings
        others = frozenset(hold for hold in before.holds or () if hold.owner not in pods)
        return self._with(Holdings(others | found, before.pods, complete=True), ours, now)

    def after_list(
        self, listed: Holdings, kubelet: Identity, ours: Collection[str], now: float
    ) -> "HoldingsView":
        """Return the view after ``kubelet`` gave this list.

        It counts as complete only if that kubelet has had time to hear of all its pods.
        """
        since = self._kubelet_since
        if kubelet != self.kubelet:
            since = _NEVER if self.kubelet is None else now
        here = self.own_pod in {name for _, name in listed.pods}
        expected_here = self._own_pod_listed or here
        settled = now - since >= self.timing.settle
        complete = listed.complete and settled and (here or not expected_here)
        return replace(
            self._with(replace(listed, complete=complete), ours, now),
            kubelet=kubelet,
            _listed=now,
            _kubelet_since=since,
            _own_pod_listed=expected_here,
        )

    def _with(self, holdings: Holdings, ours: Collection[str], now: float) -> "HoldingsView":
        owners, before = _owners(holdings, ours), _owners(self.holdings, ours)
        # Asked for again: a second poll that asks nobody would confirm nothing.
        long = self.timing.interval + self.timing.confirm
        gone = {**dict.fromkeys(before, now), **self.gone}
        gone = {pod: at for pod, at in gone.items() if pod not in owners and now - at <= long}
        return replace(self, holdings=holdings, _taken=now, gone=gone)


def _owners(holdings: Holdings, ours: Collection[str]) -> set[PodName]:
    """Return the pods that hold devices of ``ours``."""
    return {hold.owner for hold in holdings.holds or () if hold.resource in ours}
