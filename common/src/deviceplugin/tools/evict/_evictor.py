"""Evicts suspects whose time is up, a few at a time, and no pod that has taken another's name."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deviceplugin.apiserver import ApiServerError, ForbiddenError
from deviceplugin.kit.log import Problems
from deviceplugin.tools.evict._budget import Budget
from deviceplugin.tools.evict._patience import Suspect
from deviceplugin.tools.evict._pods import GOING, Pods

log = logging.getLogger(__name__)

CONFIRM: Final = 60.0
"""Seconds that a pod must have held the device under one uid.

Who holds what is known by names, and up to 35 s late: a StatefulSet's pod may be another one by
then, of the same name, with a device that is well.
"""
AGAIN: Final = 60.0
"""Seconds until a pod that could not be evicted is tried again."""
_LATER: Final = 600.0
"""Seconds until a pod that may not be evicted is asked for again."""
_BUDGET: Final = "budget"
_ADVICE: Final = "apply the ClusterRole and its binding of the component evict"

_Pod = tuple[str, str]


@dataclass(slots=True)
class _Known:
    """What is known of a suspect."""

    uid: str
    since: float
    """When it was first asked for under this uid."""
    not_before: float = 0.0
    """When it may be asked for again."""


class Evictor:
    """Evicts pods, or says which it would.

    Args:
        pods: The pods of this node.
        budget: How many may go.
        keep: Namespaces in which no pod is evicted.
        dry_run: Whether to say it only.
    """

    def __init__(
        self, pods: Pods, budget: Budget, keep: Collection[str] = (), *, dry_run: bool = True
    ) -> None:
        self._pods = pods
        self._budget = budget
        self._keep = keep
        self._dry_run = dry_run
        self._known: dict[_Pod, _Known] = {}
        self._once = Problems(log)

    def act(self, suspects: Sequence[Suspect], now: float) -> None:
        """Do what is to be done about ``suspects``, which are all there are, the first first.

        Args:
            suspects: As ``Patience.observe`` returns them.
            now: Seconds of a clock that never jumps.
        """
        first: dict[_Pod, Suspect] = {}
        for suspect in suspects:
            if suspect.left <= CONFIRM and suspect.namespace not in self._keep:
                first.setdefault((suspect.namespace, suspect.name), suspect)
        self._known = {pod: known for pod, known in self._known.items() if pod in first}
        self._once.keep({"event", *map(_subject, first)} | ({_BUDGET} if first else set()))
        for pod, suspect in first.items():
            if self._is_to_be_asked_for(pod, suspect, now):
                try:
                    self._consider(pod, suspect, now)
                except ApiServerError as error:
                    self._failed(pod, error, now)

    def _is_to_be_asked_for(self, pod: _Pod, suspect: Suspect, now: float) -> bool:
        known = self._known.get(pod)
        if known is None:
            return True
        if suspect.left > 0 or now < known.not_before or now - known.since < CONFIRM:
            return False
        if not self._budget.allows(now):
            self._once.say(_BUDGET, "eviction delayed by budget", pod="/".join(pod))
            return False
        return True

    def _consider(self, pod: _Pod, suspect: Suspect, now: float) -> None:
        uid, objection = self._pods.uid_of(suspect)
        known = self._known.get(pod)
        if known is None or known.uid != uid:
            known = self._known[pod] = _Known(uid, now)
        if objection in GOING:
            known.not_before = now + AGAIN
        elif objection:
            known.not_before = now + _LATER
            fields: dict[str, Any] = {
                "pod": "/".join(pod),
                "device": suspect.device,
                "error": objection,
            }
            self._once.say(_subject(pod), "pod exempt from eviction", **fields)
        elif suspect.left <= 0 and now - known.since >= CONFIRM:
            self._evict(pod, suspect, known, now)

    def _evict(self, pod: _Pod, suspect: Suspect, known: _Known, now: float) -> None:
        message = (
            f"{suspect.resource}: {suspect.device} has been unhealthy for"
            f" {suspect.seconds / 60:.0f} minutes: {suspect.reason}"
        )
        fields: dict[str, Any] = {"pod": "/".join(pod), "device": suspect.device, "error": message}
        if self._dry_run:
            known.not_before = now + _LATER
            if self._once.say(_subject(pod), "pod would be evicted", **fields):
                self._budget.spend(now)
            return
        self._pods.evict(suspect, known.uid)
        self._budget.spend(now)
        known.not_before = now + AGAIN
        log.warning("pod evicted", extra=fields)
        try:
            self._pods.tell(suspect, known.uid, message)
        except ApiServerError as error:
            self._once.say("event", "event creation failed", error=str(error))

    def _failed(self, pod: _Pod, error: ApiServerError, now: float) -> None:
        """Take in that ``pod`` could not be asked for or evicted, and is to be tried again."""
        known = self._known.setdefault(pod, _Known("", now))
        known.not_before = now + max(AGAIN, error.after)
        text = f"{error}; {_ADVICE}" if isinstance(error, ForbiddenError) else str(error)
        fields: dict[str, Any] = {"pod": "/".join(pod), "error": text}
        self._once.say(_subject(pod), "pod eviction failed, retrying", **fields)


def _subject(pod: _Pod) -> str:
    return "pod " + "/".join(pod)
