"""Holders that the kubelet has forgotten, and refusing a device that it gives to a second pod."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from deviceplugin._attribution.podresources import Hold, Holdings, PodName, PodResources
from deviceplugin._attribution.poll_schedule import HoldingsView, Key
from deviceplugin._platform.file_identity import Identity, file_identity
from deviceplugin.errors import AllocationError, KubeletUnavailableError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)


class Forgotten:
    """What pods held before the kubelet restarted, as long as they are there. Thread-safe.

    A kubelet without its checkpoint lists pods that go on running, but not what they hold, and
    would give that to others. What a pod held is forgotten with the pod, and once the kubelet says
    that the pod holds devices of the same resource. A device that the new kubelet has restored is
    not lost: if it is not listed then, its pod has ended, and old kubelets list such pods too.
    """

    def __init__(self, socket: Path, is_recorded: Callable[[Key], bool]) -> None:
        self._socket, self._is_recorded = socket, is_recorded
        self._lock = threading.Lock()
        self._kubelet: Identity = None
        self._last: frozenset[Hold] = frozenset()
        """What pods held in the last list or later, as far as the kubelet had recorded it."""
        self._restored: frozenset[Hold] = frozenset()
        """Those of them that were recorded when a kubelet, perhaps a new one, began to watch."""
        self._lost: frozenset[Hold] = frozenset()
        """What earlier kubelets said that this one has not confirmed."""
        self._problems = Problems(log)

    def after_list(
        self,
        view: HoldingsView,
        listed: Holdings,
        kubelet: Identity,
        ours: Collection[str],
        now: float,
    ) -> HoldingsView:
        """Return the view after ``kubelet`` gave this list, with what it has forgotten."""
        after = view.after_list(listed, kubelet, ours, now)
        if found := self._listed(after.holdings, kubelet):
            listed = replace(listed, holds=(listed.holds or frozenset()) | found)
            after = view.after_list(listed, kubelet, ours, now)
        return after

    def _listed(self, holdings: Holdings, kubelet: Identity) -> frozenset[Hold]:
        holds = holdings.holds or frozenset()
        said = {(one.owner, one.resource) for one in holds}
        with self._lock:
            lost = self._lost_to(kubelet)
            self._lost = frozenset(
                one
                for one in lost
                if (one.owner, one.resource) not in said
                and (one.owner in holdings.pods or not holdings.complete)
            )
            found = frozenset(one for one in self._lost if one.owner in holdings.pods)
            self._kubelet, self._last = kubelet, self._recorded(holds)
            self._restored = frozenset()
        if holdings.complete:
            self._log(found)
        return found

    def among(self, found: Holdings, asked: Collection[PodName] = ()) -> Holdings:
        """Return ``found``, an answer of Get for the pods ``asked``, with what else they hold."""
        holds = found.holds or frozenset()
        with self._lock:
            gone = set(asked) - found.pods
            self._lost = frozenset(one for one in self._lost if one.owner not in gone)
            self._last = frozenset(
                one for one in self._last if one.owner not in asked or one in holds
            )
            lost = {one for one in self._lost_to_this() if one.owner in found.pods}
        said = {(one.owner, one.resource) for one in holds}
        lost = {one for one in lost if (one.owner, one.resource) not in said}
        return replace(found, holds=holds | lost)

    def held(self, resource: str) -> frozenset[str]:
        """Return the devices of ``resource`` that pods hold, as far as any kubelet has said."""
        with self._lock:
            holds = self._lost | self._last
        return frozenset(one.device for one in holds if one.resource == resource)

    def watched(self, resource: str) -> None:
        """Record that a kubelet begins to watch ``resource``, and has what it has restored yet."""
        with self._lock:
            mine = {one for one in self._last if one.resource == resource}
            self._restored = (self._restored - mine) | self._recorded(mine)

    def of(self, resource: str) -> frozenset[str]:
        """Return those of ``held`` that the present kubelet has not confirmed."""
        with self._lock:
            return frozenset(one.device for one in self._lost_to_this() if one.resource == resource)

    def _lost_to(self, kubelet: Identity) -> frozenset[Hold]:
        if kubelet == self._kubelet:
            return self._lost
        last = self._last - self._restored
        return self._lost | (last - self._recorded(last))

    def _recorded(self, holds: Iterable[Hold]) -> frozenset[Hold]:
        return frozenset(one for one in holds if self._is_recorded((one.resource, one.device)))

    def _lost_to_this(self) -> frozenset[Hold]:
        return self._lost_to(file_identity(self._socket))

    def _log(self, found: frozenset[Hold]) -> None:
        for one in sorted(found):
            self._problems.say(
                str(one),
                "device of a running pod forgotten by the kubelet",
                resource=one.resource,
                device=one.device,
                pod=f"{one.namespace}/{one.pod}",
            )
        self._problems.keep({str(one) for one in found})


_TIMEOUT: Final = 1.0
"""Seconds for the only request that an Allocate may make, because the node waits for it."""


def refuse_held(
    resource: str,
    ids: Collection[str],
    remembered: Holdings | None,
    service: PodResources,
    forgotten: Forgotten,
) -> None:
    """Raise AllocationError if a pod holds one of ``ids``.

    A remembered pod may have ended by now, so the kubelet is asked about these pods only, by Get:
    it does not wait for the admission that is under way, and does not collect finished pods.
    """
    held = remembered.holders(resource) if remembered else {}
    pods = {hold.owner for device_id in ids for hold in held.get(device_id, ())}
    if not pods:
        return
    try:
        now = forgotten.among(service.get(pods, _TIMEOUT))
    except KubeletUnavailableError as error:
        fields = {"resource": resource, "error": str(error)}
        log.warning("pod resources unavailable, allocating anyway", extra=fields)
        return
    taken = sorted(
        hold for hold in now.holds or () if hold.resource == resource and hold.device in ids
    )
    if taken:
        raise AllocationError(
            "held by another pod: "
            + ", ".join(f"{hold.device} ({hold.namespace}/{hold.pod})" for hold in taken),
            device_ids=[hold.device for hold in taken],
        )
