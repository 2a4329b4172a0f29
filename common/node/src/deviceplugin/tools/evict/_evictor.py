"""Evicting suspects whose time is up, within a budget, and never another pod of the same name."""

import logging
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from threading import Lock
from typing import Any, Final

from deviceplugin.apiserver import ApiServerError
from deviceplugin.kit.log import Problems
from deviceplugin.tools._plugin_pods import advised
from deviceplugin.tools.evict._pods import GOING, Pods, Suspect

log = logging.getLogger(__name__)

CONFIRM: Final = 60.0
"""Seconds for which a pod must have held the device under one UID.

Holders are known by name only, and up to 35 s late. By then, a StatefulSet may have another pod of
the same name, with a healthy device.
"""
AGAIN: Final = 60.0
"""Seconds until the next attempt for a pod that could not be evicted."""
_LATER: Final = 600.0
"""Seconds until a pod that is exempt is checked again."""
_BUDGET: Final = "budget"
_ADVICE: Final = "apply the ClusterRole and its binding of the component evict"

_Pod = tuple[str, str]


class Budget:
    """At most ``per_minute`` in any minute and ``per_hour`` in any hour. Thread-safe.

    A budget ``within`` which this one is, and which several share, must allow it as well.
    """

    def __init__(self, per_minute: int, per_hour: int, within: "Budget | None" = None) -> None:
        self._limits = ((60.0, per_minute), (3600.0, per_hour))
        self._within = within
        self._spent: deque[float] = deque()
        self._lock = Lock()

    def allows(self, now: float) -> bool:
        """Return whether one more pod may be evicted at ``now``, in monotonic seconds."""
        with self._lock:
            return self._allows(now) and (self._within is None or self._within.allows(now))

    def take(self, now: float) -> bool:
        """Record that a pod is evicted at ``now``, if one more may be; return whether."""
        with self._lock:
            if not self._allows(now) or not (self._within is None or self._within.take(now)):
                return False
            self._spent.append(now)
            return True

    def give_back(self, now: float) -> None:
        """Undo the record of ``now``: the pod was not evicted."""
        with self._lock:
            self._spent.remove(now)
            if self._within is not None:
                self._within.give_back(now)

    def _allows(self, now: float) -> bool:
        while self._spent and now - self._spent[0] >= self._limits[-1][0]:
            self._spent.popleft()
        return all(
            sum(now - moment < span for moment in self._spent) < limit
            for span, limit in self._limits
        )


@dataclass(slots=True)
class _Known:
    uid: str
    since: float
    """The time of the first request for it with this UID."""
    not_before: float = 0.0
    """The time of the next request for it."""


@dataclass(eq=False, repr=False)
class Evictor:
    """Evicts pods, or logs which ones it would evict."""

    pods: Pods
    budget: Budget
    """The limit on evictions, of which other nodes may have a part."""
    keep: Collection[str] = ()
    """Namespaces in which no pod is evicted."""
    _: KW_ONLY
    dry_run: bool = True
    """Whether to log only."""

    def __post_init__(self) -> None:
        self._known: dict[_Pod, _Known] = {}
        self._problems = Problems(log)

    def act(self, suspects: Sequence[Suspect], now: float) -> None:
        """Evict those of all ``suspects`` whose time is up, in their order."""
        first: dict[_Pod, Suspect] = {}
        for suspect in suspects:
            if suspect.left <= CONFIRM and suspect.namespace not in self.keep:
                first.setdefault((suspect.namespace, suspect.name), suspect)
        self._known = {pod: known for pod, known in self._known.items() if pod in first}
        self._problems.keep({"event", *map(_subject, first)} | ({_BUDGET} if first else set()))
        for pod, suspect in first.items():
            if self._is_due(pod, suspect, now):
                try:
                    self._consider(pod, suspect, now)
                except ApiServerError as error:
                    known = self._known.setdefault(pod, _Known("", now))
                    known.not_before = now + max(AGAIN, error.after)
                    text = advised(error, _ADVICE)
                    self._problems.say(
                        _subject(pod),
                        "pod eviction failed, retrying",
                        **_names(self.pods, pod),
                        error=text,
                    )

    def _is_due(self, pod: _Pod, suspect: Suspect, now: float) -> bool:
        known = self._known.get(pod)
        if known is None:
            return True
        if suspect.left > 0 or now < known.not_before or now - known.since < CONFIRM:
            return False
        if not self.budget.allows(now):
            self._problems.say(_BUDGET, "eviction delayed by budget", **_names(self.pods, pod))
            return False
        return True

    def _consider(self, pod: _Pod, suspect: Suspect, now: float) -> None:
        uid, objection = self.pods.uid_of(suspect)
        known = self._known.get(pod)
        if known is None or known.uid != uid:
            known = self._known[pod] = _Known(uid, now)
        if objection in GOING:
            known.not_before = now + AGAIN
        elif objection:
            known.not_before = now + _LATER
            fields = {**_names(self.pods, pod), "device": suspect.device, "error": objection}
            self._problems.say(_subject(pod), "pod exempt from eviction", **fields)
        elif suspect.left <= 0 and now - known.since >= CONFIRM:
            self._evict(pod, suspect, known, now)

    def _evict(self, pod: _Pod, suspect: Suspect, known: _Known, now: float) -> None:
        message = (
            f"{suspect.resource}: {suspect.device} has been unhealthy for"
            f" {suspect.seconds / 60:.0f} minutes: {suspect.reason}"
        )
        fields = {**_names(self.pods, pod), "device": suspect.device, "error": message}
        if self.dry_run:
            known.not_before = now + _LATER
            if self._problems.say(_subject(pod), "pod would be evicted", **fields):
                self.budget.take(now)
            return
        if not self.budget.take(now):  # another node has taken the last one meanwhile
            return
        try:
            self.pods.evict(suspect, known.uid)
        except ApiServerError:
            self.budget.give_back(now)
            raise
        known.not_before = now + AGAIN
        log.warning("pod evicted", extra=fields)
        try:
            self.pods.create_event(suspect, known.uid, message)
        except ApiServerError as error:
            node = self.pods.node
            self._problems.say("event", "event creation failed", node=node, error=str(error))


def _names(pods: Pods, pod: _Pod) -> dict[str, Any]:
    return {"node": pods.node, "pod": "/".join(pod)}


def _subject(pod: _Pod) -> str:
    return "pod " + "/".join(pod)
