"""Which pods hold which devices: one look every now and then, for the whole process.

A look is a Get for each pod that is known to hold something, or did until just now: it tells of the
end of pods and does nothing else. Only where a new pod may have come is it a List: that makes the
kubelet collect the devices of finished pods and, in the middle of an allocation, give them out
twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from deviceplugin._attribution.exclusive import refuse_held
from deviceplugin._attribution.podresources import Holdings, NoGetError, PodName, PodResources
from deviceplugin._attribution.release import Ledger, Releases, Sight
from deviceplugin._attribution.schedule import Pace
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.file_identity import Identity, file_identity
from deviceplugin._telemetry.log import Once
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin.plugin import Capabilities

log = logging.getLogger(__name__)

_NEVER: Final = float("-inf")
_MOST_GETS: Final = 8
"""Pods that are asked for one by one; the kubelet lets ten calls in a row pass, of all clients."""
_LISTS: Final = 10
"""Every how many intervals a list is asked for in any case."""
_IDLE_TIMEOUT: Final = 2.0
"""Seconds to wait, at most, for an allocation to end before a list is asked for."""


class Holders:
    """What pods hold, as last seen. ``run`` is its thread; the rest is thread-safe.

    Args:
        service: The kubelet's.
        pace: When to look.
        resources: Gives all resources of this process, by name.
        metrics: Where to count.
        told: Whether somebody may ask what is ``current``. If not there are no looks, but for
            plugins that have ``released`` or are exclusive.
        own_pod: Name of the pod that this process may be in. Where it has been listed once, a
            kubelet that does not list it has not heard of its pods.
    """

    def __init__(
        self,
        service: PodResources,
        pace: Pace,
        *,
        resources: Callable[[], Mapping[str, Resource]],
        metrics: Metrics,
        told: bool = True,
        own_pod: str = "",
    ) -> None:
        self._service = service
        self._pace = pace
        self._resources = resources
        self._metrics = metrics
        self._told = told
        self._own_pod = own_pod
        self._witnessed = False
        self._asking = threading.RLock()
        """Held while the kubelet is asked."""
        self._lock = threading.RLock()
        self._idle = threading.Condition(self._lock)
        self._under_way = 0
        self._first: float | None = None
        self._last = 0.0
        """When the first and the last allocation ended that no list can have in it."""
        self._unseen: dict[tuple[str, str], float] = {}
        """Devices that no list has shown since they were allocated, and when that was."""
        self._gone: dict[PodName, float] = {}
        """Pods that held a device of this process lately, and when that was over."""
        self._latest: Holdings | None = None
        self._taken = self._listed = self._kubelet_since = _NEVER
        self._kubelet: Identity = None
        self._without_get: Identity = None
        self._list_due = True
        self._regular = 0.0
        """When to look where nothing else calls for it."""
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._problems = Once(log)
        self._failures = Once(log, logging.ERROR)
        ledger = Ledger(pace.confirm, pace.admission)
        self._releases = Releases(lambda name: resources().get(name), ledger, metrics)

    # Its thread.

    def run(self) -> None:
        """Look now and then, until stopped."""
        while not self._stopped.is_set():
            self._wake.wait(self._wait())
            self._wake.clear()
            try:
                if not self._stopped.is_set() and self._wait() <= 0:
                    self._turn()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                self._failures.say(
                    "look", "a look at what pods hold failed, going on", cause=error, error=text
                )
                self._again(self._pace.interval)

    def stop(self) -> None:
        """Let ``run`` return; no hook is waited for."""
        self._stopped.set()
        self._releases.close()
        self._wake.set()

    def look_again(self) -> None:
        """Notice that there are devices where there were none."""
        self._again(0.0)
        self._wake.set()

    def _again(self, seconds: float) -> None:
        with self._lock:
            self._regular = time.monotonic() + seconds

    def _wait(self) -> float:
        """Return the seconds until the next look."""
        now = time.monotonic()
        with self._lock:
            if self._under_way:  # its end calls for a look
                return self._pace.interval
            due = [self._regular]
            if self._first is not None:
                due.append(min(self._last + self._pace.soon, self._first + self._pace.at_last))
        if (confirm := self._releases.confirm_in()) is not None:
            due.append(now + confirm)
        return max(0.0, min(due) - now)

    def _turn(self) -> None:
        with self._lock:
            self._first = None
            self._still_expected()
        if not any(self._matters(resource) for resource in self._resources().values()):
            self._again(self._pace.interval)
            return
        try:
            holdings = self._look()
        except KubeletUnavailableError as error:
            self._problems.say("look", "not known what pods hold", error=str(error))
            self._again(self._pace.retry)
            return
        self._problems.over("look")
        self._failures.over("look")
        self._again(self._pace.interval)
        if holdings.holds is not None:
            held = frozenset((hold.resource, hold.device) for hold in holdings.holds)
            self._releases.look(Sight(held, self._kubelet, holdings.complete))

    def _matters(self, resource: Resource) -> bool:
        plugin = resource.plugin
        wanted = self._told or plugin.exclusive or Capabilities.of(plugin).released
        return wanted and bool(resource.devices)

    def _look(self) -> Holdings:
        """Find out what pods hold now, with a list only where that may show more."""
        with self._asking:
            latest, kubelet = self._latest, file_identity(self._service.socket)
            if latest is None or latest.holds is None or self._must_list(latest, kubelet):
                return self._list()
            pods = self._owners(latest) | self._gone.keys()
            if len(pods) > _MOST_GETS:
                return self._list()
            try:
                found = self._service.get(pods)
            except NoGetError:
                self._without_get = kubelet
                return self._list()
            others = frozenset(hold for hold in latest.holds if hold.owner not in pods)
            self._check_same(kubelet)
            return self._store(Holdings(others | found, latest.pods, complete=True))

    def _must_list(self, latest: Holdings, kubelet: Identity) -> bool:
        return (
            self._list_due
            or not latest.complete
            or kubelet != self._kubelet
            or kubelet == self._without_get
            or time.monotonic() - self._listed >= _LISTS * self._pace.interval
        )

    # Asking the kubelet.

    def ask(self) -> Holdings:
        """Return what all pods hold now.

        Raises:
            KubeletUnavailableError: There is no answer now.
        """
        with self._asking:
            return self._list()

    def _list(self) -> Holdings:
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, _IDLE_TIMEOUT)
            self._list_due = False
            unseen = self._still_expected()
        try:
            kubelet = file_identity(self._service.socket)
            holdings = self._service.list()
            self._check_same(kubelet)
        except KubeletUnavailableError:
            self._list_due = True
            raise
        now = self._listed = time.monotonic()
        if kubelet != self._kubelet:
            self._kubelet_since = _NEVER if self._kubelet is None else now
            self._kubelet = kubelet
        self._expect(unseen, holdings)
        return self._store(replace(holdings, complete=self._is_complete(holdings, now)))

    def _still_expected(self) -> Mapping[tuple[str, str], float]:
        """Forget what has not been seen for too long, also by a kubelet that never answers."""
        oldest = time.monotonic() - self._pace.settle
        self._unseen = {key: since for key, since in self._unseen.items() if since > oldest}
        return dict(self._unseen)

    def _expect(self, unseen: Iterable[tuple[str, str]], held: Holdings) -> None:
        """Have another list asked for where a pod may still be on its way in."""
        with self._lock:
            for resource, device_id in unseen:
                if device_id in held.holders(resource):
                    self._unseen.pop((resource, device_id), None)
            self._list_due = self._list_due or bool(self._unseen)

    def _is_complete(self, holdings: Holdings, now: float) -> bool:
        here = self._own_pod in {name for _, name in holdings.pods}
        self._witnessed = self._witnessed or here
        settled = now - self._kubelet_since >= self._pace.settle
        return holdings.complete and settled and (here or not self._witnessed)

    def _check_same(self, kubelet: Identity) -> None:
        if file_identity(self._service.socket) != kubelet:
            raise KubeletUnavailableError(
                f"{self._service.socket}: the kubelet restarted meanwhile"
            )

    def _store(self, holdings: Holdings) -> Holdings:
        now = time.monotonic()
        owners, before = self._owners(holdings), self._owners(self._latest)
        # Asked for again: a second look that asks nobody would confirm nothing.
        long = self._pace.interval + self._pace.confirm
        gone = {**dict.fromkeys(before, now), **self._gone}
        self._gone = {p: t for p, t in gone.items() if p not in owners and now - t <= long}
        with self._lock:
            self._latest, self._taken = holdings, now
        return holdings

    def _owners(self, holdings: Holdings | None) -> set[PodName]:
        """Return the pods that hold devices of this process."""
        ours, holds = self._resources(), (holdings and holdings.holds) or ()
        return {hold.owner for hold in holds if hold.resource in ours}

    # What it is known for.

    def current(self) -> Holdings | None:
        """Return what pods hold; None where that is not known, or was found out too long ago."""
        with self._lock:
            known = self._latest is not None and self._latest.holds is not None
            fresh = time.monotonic() - self._taken <= self._pace.stale
            return self._latest if known and fresh else None

    @contextmanager
    def guard(self, resource: Resource, ids: Collection[str]) -> Iterator[None]:
        """Take ``ids`` for held by a pod from now on, unless the body, an Allocate, raises.

        Raises:
            AllocationError: The plugin is exclusive, and a pod holds one of them now.
        """
        with self._lock:
            self._under_way += 1
        try:
            with self._releases.allocating(resource, ids):
                if resource.plugin.exclusive:
                    refuse_held(resource.name, ids, self.current(), self._service)
                yield
            with self._lock:
                self._list_due = True
                self._last = time.monotonic()
                self._unseen.update(((resource.name, device_id), self._last) for device_id in ids)
                self._first = self._last if self._first is None else self._first
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()
            self._wake.set()
