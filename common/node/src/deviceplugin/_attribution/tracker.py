"""Tracking which pods hold which devices, by one periodic poll for the whole process.

A poll is a Get for each pod that holds something, or did until recently: that shows the end of pods
and has no side effect. It is a List only if a new pod may hold something: a List makes the kubelet
collect the devices of finished pods, and during an allocation it can then give them out twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from deviceplugin._attribution.checkpoint import Checkpoint, CheckpointHolds
from deviceplugin._attribution.claim_holders import Place, with_claims
from deviceplugin._attribution.forgotten import Forgotten, refuse_held
from deviceplugin._attribution.ownership import Ownership
from deviceplugin._attribution.podresources import TIMEOUT, Holdings, NoGetError, PodResources
from deviceplugin._attribution.poll_interval import PollInterval, Refusals
from deviceplugin._attribution.poll_schedule import AttributionTiming, HoldingsView, Key, Schedule
from deviceplugin._attribution.releases import Observation, ReleaseLedger, Releases
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.file_identity import Identity, file_identity
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin.kit.log import Problems
from deviceplugin.plugin import overrides

log = logging.getLogger(__name__)

_IDLE_TIMEOUT: Final = 2.0
"""Most seconds to wait for an allocation to end before a List."""
_SHORT: Final = 0.5
"""Seconds for the first List if the checkpoint can take its place."""


class HoldingsTracker:
    """Keeps up to date what pods hold. ``run`` is its thread; the rest is thread-safe.

    ``resources`` returns those of this process, by name. Unless ``exposed``, it polls only for
    ``released`` and ``exclusive``. ``own_pod`` is the pod that it may be in.
    """

    def __init__(  # noqa: PLR0913 - the parts that meet here
        self,
        service: PodResources,
        timing: AttributionTiming,
        *,
        resources: Callable[[], Mapping[str, Resource]],
        metrics: Metrics,
        ownership: Ownership,
        exposed: bool = True,
        own_pod: str = "",
        checkpoint: Checkpoint,
    ) -> None:
        self._service = service
        self._timing = timing
        self._resources = resources
        self._ownership = ownership
        self.places: Callable[[], Mapping[Place, Collection[Key]]] = dict
        """Returns the devices of prepared claims by their names in slices."""
        self._exposed = exposed
        self._asking = threading.Lock()
        """Held during requests to the kubelet; guards changes of the view."""
        self._view = HoldingsView(timing, own_pod)
        self._changed = threading.Condition()
        """Notified when the schedule or ``_stopped`` changes, which it guards."""
        self._wakes_at = 0.0
        """The time until which the thread sleeps, unless it is notified."""
        self._awaits_idle = False
        """Whether a poll waits for allocations to end."""
        self._schedule = Schedule(timing)
        self._stopped = False
        self._problems = Problems(log)
        self._failures = Problems(log, logging.ERROR)
        self._recorded = CheckpointHolds(checkpoint)
        self._forgotten = Forgotten(service.socket, self._recorded.is_recorded)
        self.held, self.avoided = self._forgotten.held, self._forgotten.of
        self.watched, self.check_nodes = self._forgotten.watched, ownership.hardware.check_nodes
        self._interval, self._refusals = PollInterval(timing, ownership), Refusals()
        ledger = ReleaseLedger(timing.confirm, timing.admission, timing.recorded)
        self._releases = Releases(lambda name: resources().get(name), ledger, metrics)

    # Its thread.

    def run(self) -> None:
        """Poll whenever it is due, until stopped."""
        while self._wait_until_due():
            try:
                self._poll_once()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                self._failures.say("poll", "pod resources check failed", cause=error, error=text)
                self._poll_in(self._interval.seconds)

    def stop(self) -> None:
        """Make ``run`` return without waiting for hooks."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._releases.close()

    def poll_now(self) -> None:
        """Poll now, because there are devices where there were none."""
        self._poll_in(0.0)

    def _poll_in(self, seconds: float, *, by_list: bool = False) -> None:
        with self._changed:
            self._schedule.list_due |= by_list
            self._schedule.regular = time.monotonic() + seconds
            self._changed.notify_all()

    def _wait_until_due(self) -> bool:
        """Wait until the next poll is due; return False if stopped."""
        with self._changed:
            while not self._stopped:
                confirm_in = self._releases.confirm_in()
                now = time.monotonic()
                wait = self._schedule.wait(now, confirm_in)
                if wait <= 0:
                    return True
                self._wakes_at = now + wait
                self._changed.wait(wait)
            return False

    def _poll_once(self) -> None:
        with self._changed:
            self._schedule.begin_poll(time.monotonic())
        if not (self._ownership.wanted or any(map(self._matters, self._resources().values()))):
            self._poll_in(self._interval.seconds)
            return
        try:
            holdings, kubelet = self._poll()
        except KubeletUnavailableError as error:
            self._problems.say("poll", "pod resources unavailable", error=str(error))
            self._poll_in(self._timing.retry)
            return
        self._problems.over("poll")
        self._failures.over("poll")
        ended = self._interval.note(holdings, self._resources())
        # A kubelet that has not collected the devices of ended pods rejects pods with zero.
        self._poll_in(self._interval.seconds, by_list=ended)
        if holdings.holds is not None:
            self._releases.observe(Observation.of(holdings, kubelet))

    def _matters(self, resource: Resource) -> bool:
        plugin = resource.plugin
        wanted = self._exposed or plugin.exclusive or overrides(plugin, "released")
        return wanted and bool(resource.devices)

    # Asking the kubelet.

    def ask(self) -> Holdings:
        """Return what all pods hold now; KubeletUnavailableError if that is not known.

        If the kubelet does not answer, its checkpoint of this boot does: it is written before a
        container with a device starts.
        """
        with self._asking:
            is_first = self._view.holdings.holds is None and not self._refusals.any
            hurry = is_first and self._recorded.is_current
            try:
                with self._refusals.spared(file_identity(self._service.socket)):
                    found = self._list(_SHORT if hurry else TIMEOUT)
            except KubeletUnavailableError as error:
                found = self._recorded.instead(self._view.holdings, error)
            return self._with_claims(self._observed(found))

    def _poll(self) -> tuple[Holdings, Identity]:
        """Return what pods hold now, and which kubelet said so. Use List only if it is needed."""
        with self._asking:
            return self._observed(self._get() or self._list()), self._view.kubelet

    def _observed(self, holdings: Holdings) -> Holdings:
        """Return ``holdings`` with what is recorded; ownership takes account of both, in order."""
        holdings = self._recorded.added(holdings, self._resources())
        self._ownership.observe(holdings, self._view.kubelet, self._recorded.given)
        return holdings

    def _with_claims(self, holdings: Holdings) -> Holdings:
        return with_claims(holdings, self._ownership.claims(), self.places())

    def _get(self) -> Holdings | None:
        """Return what the relevant pods hold, by Get; None if a List is needed."""
        kubelet = file_identity(self._service.socket)
        pods = self._view.pods_to_get(kubelet, self._resources(), time.monotonic())
        with self._changed:
            list_due = self._schedule.list_due
        if list_due or pods is None:
            return None
        try:
            found = self._service.get(pods)
        except NoGetError:
            self._view = self._view.without_get(kubelet)
            return None
        self._service.check_same(kubelet)  # another one may know nothing of these pods
        found = self._forgotten.among(found, asked=pods)
        self._view = self._view.after_get(found, pods, self._resources(), time.monotonic())
        return self._view.holdings

    def _list(self, timeout: float = TIMEOUT) -> Holdings:
        with self._changed:
            self._awaits_idle = True
            self._changed.wait_for(lambda: self._schedule.idle, _IDLE_TIMEOUT)
            self._awaits_idle = False
            expected = self._schedule.begin_list(time.monotonic())
        moment = self._recorded.moment
        try:
            kubelet = file_identity(self._service.socket)
            listed = self._service.list(timeout)
            self._service.check_same(kubelet)
        except KubeletUnavailableError:
            with self._changed:
                self._schedule.list_due = True
            raise
        with self._changed:
            self._schedule.listed(listed, expected)
        self._recorded.listed(moment)
        now = time.monotonic()
        self._view = self._forgotten.after_list(self._view, listed, kubelet, self._resources(), now)
        return self._view.holdings

    # For other threads.

    def current(self) -> Holdings | None:
        """Return what pods hold, also through claims; None if that is unknown or too old."""
        holdings = self._view.current(time.monotonic())
        return None if holdings is None else self._with_claims(holdings)

    def stale(self, resource: str) -> Mapping[str, Mapping[str, Any]]:
        """Return what is known of the devices whose holder has a node that is gone, for JSON."""
        return {
            device_id: {
                "node": one.path,
                "number": one.number,
                "since": datetime.fromtimestamp(one.since, UTC).isoformat(timespec="seconds"),
                "by_link": one.by_link,
                "uid": given.pod if (given := self._recorded.given((resource, device_id))) else "",
            }
            for (name, device_id), (_, one) in self._ownership.stale().items()
            if name == resource
        }

    def may_wait(self, resource: Resource) -> bool:
        """Return whether ``admit`` may wait for ``released``, or ask the kubelet."""
        plugin = resource.plugin
        return plugin.exclusive or overrides(plugin, "released")

    def remembers(self, resource: str) -> bool:
        return self._recorded.remembers(resource)

    @contextmanager
    def admit(
        self, resource: Resource, ids: Collection[str], defer: Callable[[Callable[[], None]], Any]
    ) -> Iterator[None]:
        """Count ``ids`` as held by a pod after the context, unless its body, an Allocate, raises.

        What only attribution needs is passed to ``defer``. No List is made before that is done.
        AllocationError if ownership refuses it, or if the plugin is exclusive and a pod holds one.
        """
        began = time.monotonic()
        with self._changed:
            self._schedule.begin_allocation()
        given: list[Key] = []
        try:
            checked = self._checked(resource, ids) if self.may_wait(resource) else nullcontext()
            with checked, self._ownership.allocating(resource.name, ids):
                yield
            given = [(resource.name, device_id) for device_id in ids]
        finally:
            defer(partial(self._end_allocation, given, began))

    def _end_allocation(self, given: Sequence[Key], began: float) -> None:
        if given:
            self._recorded.allocated(given, self._view.pods_before(began))
        with self._changed:
            now = time.monotonic()
            if given:
                self._schedule.allocated(given, now)
            self._schedule.end_allocation()
            self._wake_if_needed(now)

    @contextmanager
    def _checked(self, resource: Resource, ids: Collection[str]) -> Iterator[None]:
        with self._releases.allocating(resource, ids):
            if resource.plugin.exclusive:
                remembered = self._view.current(time.monotonic())
                refuse_held(resource.name, ids, remembered, self._service, self._forgotten)
            yield

    def _wake_if_needed(self, now: float) -> None:
        """Notify of the end of an allocation, unless the thread sleeps and need not wake earlier.

        To wake it at each of many allocations would make all of them take longer.
        """
        if self._awaits_idle or now + self._schedule.wait(now) < self._wakes_at:
            self._changed.notify_all()
