"""The metrics that plugins add to those of the framework."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from typing_extensions import override

from deviceplugin import _author
from deviceplugin._log import Once
from deviceplugin._metrics import series
from deviceplugin.errors import DevicePluginError
from deviceplugin.plugin import Plugin, overrides

log = logging.getLogger(__name__)

_TIMEOUT: Final = 2.0
"""Seconds for ``metrics`` to return; Prometheus waits 10 for the whole scrape."""
_FRESH: Final = 1.0
"""Seconds that an answer is good for, however many scrape."""


class Additions(Collector):
    """What the ``metrics`` hooks of ``plugins`` return, asked when scraped.

    A hook that raises, hangs or returns what cannot be written costs its own metrics only.
    ``taken`` has the names that are no longer free.
    """

    def __init__(self, plugins: Callable[[], Iterable[Plugin]], taken: Iterable[str]) -> None:
        self._plugins = plugins
        self._taken = frozenset(taken)
        self._lock = threading.Lock()
        self._hooks = _author.Hooks()
        self._problems = Once(log)
        self._answer: Sequence[Metric] = ()
        self._asked_at = float("-inf")

    @override
    def collect(self) -> Iterator[Metric]:
        with self._lock:
            if time.monotonic() - self._asked_at > _FRESH:
                self._answer = self._ask()
                self._asked_at = time.monotonic()
            yield from self._answer

    def _ask(self) -> Sequence[Metric]:
        families: dict[str, Metric] = {}
        for plugin in self._plugins():
            if not overrides(plugin, "metrics"):
                continue
            name = type(plugin).__name__
            try:
                found = self._hooks.call("metrics", _collect, plugin, timeout=_TIMEOUT)
            except DevicePluginError as error:
                self._problems.say(name, "no metrics of a plugin", plugin=name, error=str(error))
                continue
            self._problems.over(name)
            for family in found:
                self._add(families, family, name)
        return tuple(families.values())

    def _add(self, families: dict[str, Metric], family: Metric, plugin: str) -> None:
        first = families.get(family.name)
        others = (series(other) for other in families.values() if other is not first)
        taken = self._taken.union(*others)
        if taken & series(family) or (first is not None and first.type != family.type):
            self._problems.say(
                family.name, "metric name is taken", plugin=plugin, metric=family.name
            )
            return
        if first is not None:  # from the same class of plugin, twice
            family, samples = copy(family), [*first.samples, *family.samples]
            family.samples = samples
        families[family.name] = family


def _collect(plugin: Plugin) -> Sequence[Metric]:
    """Return the plugin's metrics, if they can be written in either format."""
    families = list(plugin.metrics())
    registry = CollectorRegistry()
    registry.register(_Given(families))
    for write in (generate_latest, openmetrics.generate_latest):
        write(registry)
    return families


class _Given(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    @override
    def collect(self) -> Iterator[Metric]:
        yield from self._families
