"""When to poll the kubelet for what pods hold, by List or by Get, and what its answers say."""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Self

from deviceplugin._attribution.podresources import Holdings, PodName
from deviceplugin._platform.file_identity import Identity

Key = tuple[str, str]
"""A resource and the id of a device."""

_PART: Final = 1 / 60
"""The part of the time waited so far that a poll may be late."""


class AttributionTiming(NamedTuple):
    """The intervals of polls, and how long an answer is valid; in seconds."""

    interval: float
    draining: float
    """The same, at first, while another protocol waits for pods to release devices."""
    soon: float
    """From the end of an allocation to a poll: the kubelet records it and admits the pod first."""
    at_last: float
    """From the first of several allocations to a poll, even if more follow."""
    retry: float
    stale: float
    """The age at which the last answer is no longer valid."""
    settle: float
    """From the start of another kubelet until it knows all pods."""
    confirm: float
    """Between two polls that find a device free."""
    admission: float
    """From an allocation until its pod is listed or rejected; and from the first list with a pod,
    which may be earlier, until its allocation."""
    recorded: float
    """From an allocation for which the kubelet's checkpoint shows that a device is not free. It
    may have a pod that was rejected for much longer."""
    handover_confirm: float
    """Between two polls that find a device free, before another protocol may give it out."""

    @classmethod
    def of(cls, interval: float) -> Self:
        """Return the timing for a poll every ``interval`` seconds."""
        return cls(
            interval=interval,
            draining=min(interval, 2.0),
            soon=min(interval, 1.0),
            at_last=min(interval, 5.0),
            retry=min(interval, 5.0),
            stale=max(3 * interval, 2.0),  # a slow answer may take 2 s
            settle=2 * interval,
            confirm=min(interval, 5.0),
            admission=min(interval, 10.0),
            recorded=min(2880 * interval, 86400.0),
            handover_confirm=min(interval, 2.0),
        )

    def while_draining(self, waited: float) -> float:
        """Return the interval after DRA has ``waited`` in vain: a pod can run for months."""
        return min(self.interval, max(self.draining, _PART * waited))


class Schedule:
    """Decides when the next poll is due, from the allocations and polls so far.

    Times are monotonic seconds that the caller passes. Not thread-safe.
    """

    def __init__(self, timing: AttributionTiming) -> None:
        self._timing = timing
        self._under_way = 0
        self._first: float | None = None
        self._last = 0.0
        """The times at which the first and the last allocation ended since the last poll."""
        self.unseen: dict[Key, float] = {}
        """Devices that no list has shown since their allocation, each with its time."""
        self.regular = 0.0
        """The time of the next regular poll."""
        self.list_due = True
        """Whether the next poll must be a List."""

    def wait(self, now: float, confirm_in: float | None = None) -> float:
        """Return the seconds until the next poll, which could confirm a release ``confirm_in``."""
        if self._under_way:  # a poll follows at its end
            return self._timing.interval
        due = [self.regular]
        if self._first is not None:
            due.append(min(self._last + self._timing.soon, self._first + self._timing.at_last))
        if confirm_in is not None:
            due.append(now + confirm_in)
        return max(0.0, min(due) - now)

    # Allocations.

    @property
    def idle(self) -> bool:
        return not self._under_way

    def begin_allocation(self) -> None:
        """Hold back polls until ``end_allocation``."""
        self._under_way += 1

    def allocated(self, devices: Iterable[Key], now: float) -> None:
        """Poll by List soon, because the allocation of ``devices`` has succeeded."""
        self.list_due = True
        self._last = now
        self._first = now if self._first is None else self._first
        self.unseen.update((device, now) for device in devices)

    def end_allocation(self) -> None:
        self._under_way -= 1

    # Polls.

    def begin_poll(self, now: float) -> None:
        """Record that a poll begins, so the allocations so far need no other."""
        self._first = None
        self._forget_old(now)

    def begin_list(self, now: float) -> Collection[Key]:
        """Record that a List begins; return the devices that it may show for the first time."""
        self.list_due = False
        self._forget_old(now)
        return tuple(self.unseen)

    def listed(self, holdings: Holdings, expected: Iterable[Key]) -> None:
        """Record a list. Another one is due while the pod of an allocation may still appear.

        ``expected`` is what ``begin_list`` returned: later allocations cannot be in the list.
        """
        for resource, device_id in expected:
            if device_id in holdings.holders(resource):
                self.unseen.pop((resource, device_id), None)
        self.list_due = self.list_due or bool(self.unseen)

    def _forget_old(self, now: float) -> None:
        """Forget devices that lists have not shown for too long, even if there were no lists."""
        oldest = now - self._timing.settle
        self.unseen = {device: at for device, at in self.unseen.items() if at > oldest}


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
        self, found: Holdings, pods: AbstractSet[PodName], ours: Collection[str], now: float
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

        It counts as complete only if that kubelet has had time to learn of all its pods.
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
