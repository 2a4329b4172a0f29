"""What pods hold according to the kubelet's answers: from which kubelet, how complete, how old."""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from deviceplugin._attribution.podresources import Holdings, PodName
from deviceplugin._attribution.poll_schedule import AttributionTiming
from deviceplugin._platform.file_identity import Identity

_NEVER: Final = float("-inf")
_UNKNOWN: Final = Holdings()
_MOST_GETS: Final = 8
"""Most pods in one poll by Get. The kubelet accepts bursts of ten calls from all clients."""
_LISTS: Final = 10
"""Intervals after which a List is made in any case."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HoldingsView:
    """What pods hold, as far as the kubelet's answers show.

    It is immutable: an answer makes a new one. Times are monotonic seconds that the caller passes.
    ``ours`` are the names of the resources of this process.
    """

    timing: AttributionTiming
    own_pod: str = ""
    """Name of the pod that this process may be in. If it has been listed before, a kubelet that
    does not list it does not know its pods yet."""
    holdings: Holdings = _UNKNOWN
    """What pods hold according to the last answer, however old that is."""
    kubelet: Identity = None
    """The kubelet that gave the last list."""
    gone: Mapping[PodName, float] = field(default_factory=dict)
    """Pods that recently held a device of ours, and the time when they no longer did."""
    _taken: float = _NEVER
    _listed: float = _NEVER
    _since: Mapping[PodName, float] = field(default_factory=dict)
    """The pods of the last list, each with the time of the first list of those that have had it."""
    _kubelet_since: float = _NEVER
    _without_get: Identity = None
    _own_pod_listed: bool = False

    def current(self, now: float) -> Holdings | None:
        """Return what pods hold; None if that is unknown or the last answer is too old."""
        known = self.holdings.holds is not None
        fresh = now - self._taken <= self.timing.stale
        return self.holdings if known and fresh else None

    def pods_before(self, allocation: float) -> frozenset[PodName]:
        """Return the pods that cannot be the one of an allocation that began then."""
        return frozenset(
            pod
            for pod, since in self._since.items()
            if since <= allocation - self.timing.admission or pod[1] == self.own_pod
        )

    def pods_to_get(
        self, kubelet: Identity, ours: Collection[str], now: float
    ) -> AbstractSet[PodName] | None:
        """Return the pods to ask ``kubelet`` for by Get, or None if a List is needed."""
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
        """Return a view that uses only List with ``kubelet``."""
        return replace(self, _without_get=kubelet)

    def after_get(
        self,
        found: Holdings,
        pods: AbstractSet[PodName],
        ours: Collection[str],
        now: float,
    ) -> "HoldingsView":
        """Return a view in which ``pods`` hold what was ``found``; the others are unchanged."""
        before = self.holdings
        others = frozenset(hold for hold in before.holds or () if hold.owner not in pods)
        claimed = frozenset(one for one in before.claimed if (one.namespace, one.pod) not in pods)
        holdings = Holdings(
            others | (found.holds or frozenset()),
            before.pods,
            complete=True,
            claimed=claimed | found.claimed,
        )
        return self._with(holdings, ours, now)

    def after_list(
        self, listed: Holdings, kubelet: Identity, ours: Collection[str], now: float
    ) -> "HoldingsView":
        """Return the view after ``kubelet`` gave this list.

        The list counts as complete only if that kubelet has had time to learn of all its pods.
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
            _since={pod: self._since.get(pod, now) for pod in listed.pods},
            _kubelet_since=since,
            _own_pod_listed=expected_here,
        )

    def _with(self, holdings: Holdings, ours: Collection[str], now: float) -> "HoldingsView":
        owners, before = _owners(holdings, ours), _owners(self.holdings, ours)
        # Pods that are gone are asked for again: without that, no poll could confirm a release.
        long = self.timing.interval + self.timing.confirm
        gone = {**dict.fromkeys(before, now), **self.gone}
        gone = {pod: at for pod, at in gone.items() if pod not in owners and now - at <= long}
        return replace(self, holdings=holdings, _taken=now, gone=gone)


def _owners(holdings: Holdings, ours: Collection[str]) -> set[PodName]:
    return {hold.owner for hold in holdings.holds or () if hold.resource in ours}
