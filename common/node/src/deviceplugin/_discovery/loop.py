"""Discovering the devices of one plugin repeatedly, and publishing what has changed."""

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from deviceplugin._discovery.found import NOT_RETURNING, Groups, discover
from deviceplugin._discovery.resources import DiscoveredResources, Surroundings
from deviceplugin._discovery.retention import unhealthy
from deviceplugin._discovery.triggers import Triggers
from deviceplugin._platform import hooks
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._telemetry.instruments import Gauge
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)

_REST: Final = 0.02
"""Least seconds between discoveries."""
_SOON: Final = 0.25
"""Seconds between discoveries while it is unknown what pods hold."""


class Discovery:
    """Discovers the devices of one plugin. ``run`` is its thread."""

    def __init__(self, plugin: Plugin, name: str, around: Surroundings) -> None:
        self.name = name
        """The plugin's name in logs and metrics."""
        self._timing, self._watcher, self._lost = around.timing, around.watcher, around.lost
        self._hold = around.hold
        self._metrics = metrics = around.metrics
        self._paths: Sequence[Path] = ()
        self._clock: Clock = MONOTONIC
        self._skipped = Omissions(name, metrics.skipped_devices)
        self._missing = Omissions(name, metrics.shortfalls)
        self._invalid = Omissions(name, metrics.invalid_entries)
        self._errors = Problems(log, logging.ERROR)
        self._resources = DiscoveredResources(plugin, name, around)
        self._holdings = self._resources.holdings
        self._triggers = Triggers(around.watcher)
        self.rediscover = self._triggers.fire
        """Has it discover soon, because something else than the devices has changed."""
        around.ownership.hardware.changes.add(self._triggers.fire)
        self._replacing = threading.Lock()
        self._stopping = threading.Event()
        self._problems = Problems(log)
        self._failure = ""
        self._discovering_since: float | None = None
        self._completed_at: float | None = None
        """The time of the last successful discovery."""
        metrics.discovery_errors.labels(name)  # at 0, so that the first increase is visible

    # Discovering.

    def run(self) -> None:
        """Discover at each trigger, and periodically, until stopped."""
        self._watcher.every(self._resources.check_deadline)
        with self._replacing:
            self._triggers.listen(self.plugin)
        try:
            while not self._stopping.is_set():
                self._watch_paths()
                took = self.discover()
                self._watch_paths()
                # However many triggers there are, discovery takes at most half of the time.
                rest = max(_REST, took)
                self._clock.pause(self._stopping, rest)
                pause = _SOON if self.waiting else self._timing.interval
                self._triggers.wait(max(0.0, pause - rest))
                self._triggers.clear()
        finally:
            self._watcher.forget(self._resources.check_deadline)
            self._triggers.close()

    def discover(self) -> float:
        """Discover once, publish what has changed, and return how many seconds that took."""
        start = self._discovering_since = self._clock.now()
        plugin = self.plugin
        try:
            hooks.call(self._note_invalid, plugin)
            groups, problems = self._found_by(plugin)
            # Values of the plugin can raise even in here, and must not end anything else.
            hooks.call(self._publish, groups, problems, plugin)
        except DevicePluginError as error:
            self._fail(error)
        finally:
            self._discovering_since = None
            took = self._clock.now() - start
            self._metrics.discovery_seconds.labels(self.name).observe(took)
        return took

    def _found_by(self, plugin: Plugin) -> tuple[Groups, Mapping[str, int]]:
        try:
            groups, problems = discover(plugin, self._resources.present())
            if reason := self._lost(self._paths):
                groups = {
                    name: {one.id: one for one in unhealthy(devices.values(), reason)}
                    for name, devices in groups.items()
                }
            return groups, problems
        finally:  # it has returned, however late; what hangs from here on hangs since now
            self._discovering_since = self._clock.now()

    def _note_invalid(self, plugin: Plugin) -> None:
        found = [*map(str, plugin.invalid_entries)]
        self._errors.say_all("invalid entry skipped", found, plugin=self.name)
        self._invalid.count(Counter(found))

    def _publish(self, groups: Groups, problems: Mapping[str, int], plugin: Plugin) -> None:
        if plugin is not self.plugin:
            return  # replaced meanwhile
        self._failure = ""
        if self._problems.over("discovery"):
            log.info("discovery recovered", extra={"plugin": self.name})
            self._metrics.events.add("discovery recovered", detail=self.name)
        self._skipped.note("device skipped", problems)
        texts = plugin.shortfalls
        missing = Counter([texts] if isinstance(texts, str) else map(str, texts))
        self._missing.note("discovery incomplete", missing)
        self._hold(self.name, groups)
        self._resources.claim(groups)
        holdings = self._holdings.ask(vanished=self._resources.any_vanished)
        if holdings is None and self._holdings.waiting:
            return  # a list that lacks a device held by a pod can crash the kubelet
        self._resources.update(groups, holdings)
        self._completed_at = self._clock.now()
        self._metrics.discovery_success.labels(self.name).set_to_current_time()

    def _fail(self, error: DevicePluginError) -> None:
        self._failure = str(error)
        self._metrics.discovery_errors.labels(self.name).inc()
        event = "discovery failed"
        if self._problems.say("discovery", event, plugin=self.name, error=str(error)):
            self._metrics.events.add(event, detail=f"{self.name}: {error}")
        self._resources.fail(str(error))

    def _watch_paths(self) -> None:
        plugin = self.plugin
        try:
            paths = hooks.call(lambda: _paths(plugin.watch_paths))
        except DevicePluginError as error:
            self._problems.say(
                "watch_paths", "invalid watch_paths ignored", plugin=self.name, error=str(error)
            )
        else:
            self._paths = paths
            self._triggers.watch(paths)

    def stop(self) -> None:
        self._stopping.set()
        self._triggers.fire()

    def replace(self, plugin: Plugin) -> None:
        """Continue with ``plugin``, which is the same with other settings, or the same object."""
        if plugin is self.plugin:
            return
        with self._replacing:
            self._resources.replace(plugin)
            self._triggers.listen(plugin)
        self._triggers.fire()

    # Its state.

    @property
    def plugin(self) -> Plugin:
        """The plugin that discovers; ``replace`` changes it."""
        return self._resources.plugin

    @property
    def hanging(self) -> bool:
        """Whether a discovery has been under way for longer than the deadline."""
        since = self._discovering_since
        return since is not None and self._clock.now() - since > self._timing.deadline

    @property
    def completed(self) -> bool:
        """Whether any discovery has succeeded yet."""
        return self._completed_at is not None

    @property
    def overdue(self) -> bool:
        """Whether the last successful discovery is older than the deadline."""
        since = self._completed_at
        return since is not None and self._clock.now() - since > self._timing.deadline

    @property
    def waiting(self) -> bool:
        return self._holdings.waiting

    @property
    def failure(self) -> str:
        """Why discovery fails; empty if the last one succeeded, or the first is under way."""
        return NOT_RETURNING if self.hanging else self._failure

    @property
    def shortfalls(self) -> list[str]:
        """What the last discovery should offer and does not, a message for each."""
        return [f"{self.name}: {text}" for text in self._missing.reasons]

    @property
    def invalid_entries(self) -> Sequence[str]:
        """What is wrong with entries of the settings that are skipped, a message for each."""
        return self._invalid.reasons

    def troubles(self) -> list[str]:
        """Return what keeps devices from being advertised, a message for each."""
        failure = [f"{self.name}: discovery failed: {self.failure}"] if self.failure else []
        skipped = [f"{self.name}: skipped: {text}" for text in self._skipped.reasons]
        invalid = [f"{self.name}: invalid entry: {text}" for text in self.invalid_entries]
        more = [] if failure else self._resources.troubles()
        return [*failure, *invalid, *skipped, *self.shortfalls, *more]


def _paths(given: Sequence[Path | str]) -> list[Path]:
    if isinstance(given, str):
        raise TypeError(f"{given!r} is not a list of paths")
    if odd := [path for path in given if "\0" in str(path)]:
        raise ValueError(f"{odd[0]!r} is not a path")
    return [Path(path) for path in given]


_SHOWN: Final = 10
"""Reasons that are shown one by one."""


class Omissions:
    """What discoveries of one plugin do not offer. For one thread."""

    def __init__(self, plugin: str, metric: Gauge) -> None:
        self._plugin = plugin
        self._number = metric.labels(plugin)
        self._problems = Problems(log)
        self.reasons: Sequence[str] = ()
        """Those of the last discovery; as many messages as are logged."""

    def note(self, event: str, problems: Mapping[str, int]) -> None:
        """Count the reasons of the last discovery, each with its number; log them as ``event``."""
        self.count(problems)
        self._problems.say_all(event, list(problems), plugin=self._plugin)

    def count(self, problems: Mapping[str, int]) -> None:
        """Count the reasons of the last discovery, each with its number."""
        self._number.set(sum(problems.values()))
        shown = list(problems)[:_SHOWN]
        more = len(problems) - len(shown)
        self.reasons = [*shown, f"{more} more"] if more else shown
