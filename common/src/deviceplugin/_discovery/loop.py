"""Looking for the devices of one plugin, and keeping its resources up to date."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from deviceplugin._attribution.podresources import Holdings
from deviceplugin._discovery.found import Groups, discover
from deviceplugin._discovery.health_changes import Changes
from deviceplugin._discovery.retention import Retention, Roster, unhealthy
from deviceplugin._discovery.triggers import Hints
from deviceplugin._inventory.published import Resource
from deviceplugin._platform import hooks
from deviceplugin._platform.file_watcher import Poller
from deviceplugin._telemetry.log import Once, shape
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import DevicePluginError, DiscoveryError, KubeletUnavailableError
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)

NOT_RETURNING: Final = "discover() does not return"
_REST: Final = 0.02
"""Seconds of rest between discoveries, at the least."""
_ASK_INTERVAL: Final = 10.0
"""Seconds, at most, between questions to the kubelet about what pods hold."""
_PATIENCE: Final = 30.0
"""Seconds from the start to wait for an answer about what pods hold, before going on without."""
_SOON: Final = 0.25
"""Seconds until the next discovery while that is being waited for."""
_MANY_SKIPPED: Final = 10
"""Reasons to skip devices that are logged one by one; more get one line."""

Ask = Callable[[], Holdings]


class Catalogue(Protocol):
    """Where resources are offered to the kubelet."""

    def claim(self, name: str, plugin: Plugin) -> Resource | None:
        """Return the resource for ``plugin``, or None if another plugin has it."""

    def advertise(self, resource: Resource) -> None:
        """Serve ``resource`` from now on, if that is not done yet."""

    def withdraw(self, resource: Resource) -> None:
        """Serve ``resource`` no longer."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When to look and what to make of it; seconds."""

    interval: float
    deadline: float
    """Devices that could not be looked at for this long are unhealthy."""
    retention: Retention


class Discovery:
    """The devices of one plugin. ``run`` is its thread."""

    def __init__(
        self,
        plugin: Plugin,
        *,
        name: str,
        timing: Timing,
        catalogue: Catalogue,
        ask: Ask,
        poller: Poller,
        metrics: Metrics,
    ) -> None:
        self.name = name
        """The plugin's name in logs and metrics."""
        self._plugin = plugin
        self._timing = timing
        self._catalogue = catalogue
        self._ask = ask
        self._poller = poller
        self._metrics = metrics
        self._lock = threading.Lock()
        self._resources: dict[str, Resource] = {}
        self._rosters: dict[str, Roster] = {}
        self._unchecked: set[str] = set()
        self._failure = ""
        self._skipped: Sequence[str] = ()
        self._troubles: dict[str, str] = {}
        self._asked_at = float("-inf")
        self._patience = time.monotonic() + _PATIENCE
        self._waiting_until = datetime.now(UTC) + timedelta(seconds=_PATIENCE)
        """The same in the time of people."""
        self._stopping = threading.Event()
        self._problems = Once(log)
        self._skips = Once(log)
        self._changes = Changes(metrics.events)
        self._hints = Hints(poller)
        self._looking_since: float | None = None
        metrics.expect_plugin(self.name)
        self._completed_at: float | None = None
        """When the last discovery that succeeded did so."""

    @property
    def plugin(self) -> Plugin:
        """The plugin that is asked; another one after ``replace``."""
        return self._plugin

    @property
    def hanging(self) -> bool:
        """Whether a discovery has been under way for longer than the deadline."""
        since = self._looking_since
        return since is not None and time.monotonic() - since > self._timing.deadline

    @property
    def completed(self) -> bool:
        """Whether any discovery has succeeded yet."""
        return self._completed_at is not None

    @property
    def overdue(self) -> bool:
        """Whether the last discovery that succeeded is longer ago than the deadline."""
        since = self._completed_at
        return since is not None and time.monotonic() - since > self._timing.deadline

    @property
    def failure(self) -> str:
        """Why no discovery succeeds; empty if the last one has, or the first is under way."""
        return NOT_RETURNING if self.hanging else self._failure

    def troubles(self) -> list[str]:
        """Return what keeps devices from being advertised, a text for each."""
        failure = [f"{self.name}: discovery failed: {self.failure}"] if self.failure else []
        skipped = [f"{self.name}: skipped: {text}" for text in self._skipped]
        with self._lock:
            refused = [f"{name}: {text}" for name, text in self._troubles.items()]
        return [*failure, *skipped, *(() if failure else refused)]

    @property
    def waiting(self) -> bool:
        """Whether nothing is advertised yet because it is not known what pods hold."""
        return bool(self._unchecked) and time.monotonic() < self._patience

    def run(self) -> None:
        """Look whenever there is a hint, and periodically, until stopped."""
        self._poller.every(self.check_deadline)
        with self._lock:
            self._hints.listen(self._plugin)
        try:
            while not self._stopping.is_set():
                self._watch_paths()
                took = self.look()
                self._watch_paths()
                # However many hints there are, at most half of the time goes into looking.
                rest = max(_REST, took)
                self._stopping.wait(rest)
                pause = _SOON if self.waiting else self._timing.interval
                self._hints.wait(max(0.0, pause - rest))
                self._hints.take()
        finally:
            self._poller.forget(self.check_deadline)
            self._hints.close()

    def stop(self) -> None:
        """Let ``run`` return after the discovery that is under way."""
        self._stopping.set()
        self._hints.give()

    def replace(self, plugin: Plugin) -> None:
        """Go on with ``plugin``: the same one as before with other settings."""
        with self._lock:
            self._plugin = plugin
            for resource in self._resources.values():
                resource.plugin = plugin
            self._hints.listen(plugin)
        self._hints.give()

    def _watch_paths(self) -> None:
        plugin = self._plugin
        try:
            paths = hooks.call(lambda: _paths(plugin.watch_paths))
        except DevicePluginError as error:
            self._problems.say(
                "watch_paths", "watch_paths cannot be used", plugin=self.name, error=str(error)
            )
        else:
            self._hints.watch(paths)

    def look(self) -> float:
        """Discover once, publish what has changed, and return how many seconds that took."""
        start = self._looking_since = time.monotonic()
        plugin = self._plugin
        known = {name: roster.present for name, roster in self._rosters.items()}
        try:
            groups, problems = discover(plugin, known)
        except DevicePluginError as error:
            self._failed(error)
        else:
            try:
                # Whatever an author's values still do in here ends nothing else.
                hooks.call(self._succeeded, groups, problems, plugin)
            except DevicePluginError as error:
                self._failed(error)
        finally:
            self._looking_since = None
            took = time.monotonic() - start
            self._metrics.discovery_seconds.labels(self.name).observe(took)
        return took

    def _failed(self, error: DevicePluginError) -> None:
        self._failure = str(error)
        self._metrics.discovery_errors.labels(self.name).inc()
        event = "discovery failed"
        if self._problems.say("discovery", event, plugin=self.name, error=str(error)):
            self._metrics.events.add(event, detail=f"{self.name}: {error}")
        with self._lock:
            self._troubles.update(dict.fromkeys(self._rosters, str(error)))

    def _succeeded(self, groups: Groups, problems: Mapping[str, int], plugin: Plugin) -> None:
        if plugin is not self._plugin:
            return  # replaced meanwhile
        self._failure = ""
        if self._problems.over("discovery"):
            log.info("discovery works again", extra={"plugin": self.name})
            self._metrics.events.add("discovery works again", detail=self.name)
        self._report_skipped(problems)
        with self._lock:
            for name in self._rosters.keys() - groups.keys():
                groups[name] = {}
            self._claim(groups)
        holdings = self._ask_holdings()
        if holdings is None and self._unchecked and time.monotonic() < self._patience:
            return  # a list without what pods hold can crash the kubelet
        with self._lock:
            names = sorted(groups.keys() & self._resources.keys())
            over = [name for name in names if not self._update(name, groups[name], holdings)]
            withdrawn = [self._forget(name) for name in over]
        for resource in withdrawn:
            self._catalogue.withdraw(resource)
        self._completed_at = time.monotonic()
        self._metrics.discovery_success.labels(self.name).set_to_current_time()

    def _report_skipped(self, problems: Mapping[str, int]) -> None:
        self._metrics.skipped_devices.labels(self.name).set(sum(problems.values()))
        told = list(problems)[:_MANY_SKIPPED]
        # By the shape of the text, and numbered: what an author puts into it may vary by itself.
        alike: Counter[str] = Counter()
        subjects = {""}
        for problem in told:
            form = shape(problem)
            alike[form] += 1
            subjects.add(subject := f"{form} {alike[form]}")
            self._skips.say(subject, "skipped", plugin=self.name, problem=problem)
        if more := len(problems) - len(told):
            self._skips.say("", "skipped more devices", plugin=self.name, count=more)
        self._skipped = [*told, f"{more} more"] if more else told
        self._skips.keep(subjects)

    def _claim(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._resources:
                continue
            resource = self._catalogue.claim(name, self._plugin)
            if resource is None:
                self._problems.say(
                    name, "resource belongs to another plugin", plugin=self.name, resource=name
                )
                continue
            self._resources[name] = resource
            self._rosters[name] = Roster(time.monotonic())
            self._unchecked.add(name)

    def _ask_holdings(self) -> Holdings | None:
        """Return what pods hold, if that matters and can be known now."""
        retention = self._timing.retention
        now = time.monotonic()
        vanished = any(roster.vanished for roster in self._rosters.values())
        interval = min(_ASK_INTERVAL, retention.grace, retention.unknown)
        due = vanished and now - self._asked_at >= interval
        if not (self._unchecked or due):
            return None
        try:
            holdings = self._ask()
        except KubeletUnavailableError as error:
            self._tell_unknown(str(error))
            return None
        if self._problems.over("held"):
            log.info("known now what pods hold", extra={"plugin": self.name})
        self._asked_at = now
        return holdings

    def _tell_unknown(self, error: str) -> None:
        """Log that there is no answer about what pods hold, and what that means now."""
        fields: dict[str, Any] = {"plugin": self.name, "error": error}
        if self.waiting:
            fields["until"] = self._waiting_until.isoformat(timespec="seconds")
            event = "waiting to know what pods hold, registering nothing before"
        elif self._unchecked:
            event = "registering without knowing what pods hold"
        else:
            event = "not known what pods hold"
        self._problems.say("held", event, **fields)

    def _update(self, name: str, present: Mapping[str, Device], holdings: Holdings | None) -> bool:
        """Publish what has become of the resource; False if nothing is left of it."""
        resource, roster = self._resources[name], self._rosters[name]
        now = time.monotonic()
        held = None if holdings is None else holdings.of(name)
        if holdings is not None:
            # Kept even if the list is refused: what pods hold is not asked again at once.
            roster = self._rosters[name] = roster.expecting(held or frozenset(), now)
            self._unchecked.discard(name)
        roster = roster.updated(present, now)
        if holdings is not None and holdings.complete:
            roster = roster.retired(held, now, self._timing.retention)
        if not roster and name != self._plugin.resource:
            return False
        try:
            changed = resource.publish(roster.devices())
        except DiscoveryError as error:
            self._troubles[name] = str(error)
            self._metrics.discovery_errors.labels(self.name).inc()
            self._problems.say(name, "list refused", plugin=self.name, error=str(error))
            return True
        self._rosters[name] = roster
        self._troubles.pop(name, None)
        self._problems.over(name)
        self._changes.tell(resource, changed)
        self._catalogue.advertise(resource)
        return True

    def _forget(self, name: str) -> Resource:
        del self._rosters[name]
        self._troubles.pop(name, None)
        self._unchecked.discard(name)
        self._changes.forget(name)
        return self._resources.pop(name)

    def check_deadline(self) -> None:
        """Report devices unhealthy that have not been looked at for too long."""
        now = time.monotonic()
        with self._lock:
            for name, roster in self._rosters.items():
                resource = self._resources[name]
                overdue = now - roster.fresh_at > self._timing.deadline
                if not overdue or not any(device.health for device in resource.devices.values()):
                    continue
                trouble = self._troubles.get(name, NOT_RETURNING)
                reason = f"not looked at for {self._timing.deadline:g} s: {trouble}"
                changed = resource.publish(unhealthy(roster.devices(), reason))
                self._changes.tell(resource, changed)


def _paths(given: Sequence[Path | str]) -> list[Path]:
    if isinstance(given, str):
        raise TypeError(f"{given!r} is no list of paths")
    if odd := [path for path in given if "\0" in str(path)]:
        raise ValueError(f"{odd[0]!r} is no path")
    return [Path(path) for path in given]
