"""The metrics that plugins add to the framework's."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Sample
from typing_extensions import override

from deviceplugin._platform import hooks as _hooks
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.plugin import Plugin, overrides

log = logging.getLogger(__name__)

_TIMEOUT: Final = 2.0
"""Seconds for ``metrics`` to return; Prometheus waits 10 for the whole scrape."""
_FRESH: Final = 1.0
"""Seconds for which an answer is cached, for all scrapers."""
_PART: Final[Mapping[str, str]] = {"histogram": "le", "gaugehistogram": "le", "summary": "quantile"}
"""The label that distinguishes the parts of a metric, by the metric's type."""

_SUFFIXES: Final[Mapping[str, Sequence[str]]] = {
    "counter": ("_total", "_created"),
    "summary": ("_sum", "_count", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "info": ("_info",),
}


def series(family: Metric) -> set[str]:
    """Return the names that ``family`` has in any format, which no other family may have."""
    return {family.name, *(family.name + suffix for suffix in _SUFFIXES.get(family.type, ()))}


class Additions(Collector):
    """Collects the metrics that the ``metrics`` hooks of ``plugins`` return at each scrape.

    If a hook raises, hangs or returns what cannot be written, only its own metrics are missing.
    Duplicates are dropped, because a scraper would refuse everything for one. ``taken`` has names
    that plugins may not use. ``skipped`` gets a plugin's name and the number of dropped samples.
    """

    def __init__(
        self,
        plugins: Callable[[], Mapping[str, Plugin]],
        taken: Iterable[str],
        skipped: Callable[[str, int], None],
    ) -> None:
        self._plugins = plugins
        self.taken = frozenset(taken)
        self._skipped = skipped
        self._lock = threading.Lock()
        self._hooks: defaultdict[str, _hooks.Hooks] = defaultdict(_hooks.Hooks)
        """By the name of the plugin: calls that hang prevent only calls of the same plugin."""
        self._problems = Problems(log)
        self._answer: Sequence[Metric] = ()
        self._asked_at = float("-inf")

    @override
    def collect(self) -> Iterator[Metric]:
        with self._lock:
            if time.monotonic() - self._asked_at > _FRESH:
                self._answer = self._ask()
                self._asked_at = time.monotonic()
            return iter(self._answer)

    def _ask(self) -> Sequence[Metric]:
        families: dict[str, Metric] = {}
        for name, plugin in self._plugins().items():
            if not overrides(plugin, "metrics"):
                continue
            try:
                found = self._hooks[name].call("metrics", _collect, plugin, timeout=_TIMEOUT)
            except DevicePluginError as error:
                event = "plugin metrics unavailable"
                self._problems.say(name, event, plugin=name, error=str(error))
                continue
            self._problems.over(name)
            dropped = sum(self._add(families, family, name) for family in found)
            self._skipped(name, dropped)
        return tuple(families.values())

    def _add(self, families: dict[str, Metric], family: Metric, plugin: str) -> int:
        """Add the samples of ``family`` that are new; return how many are not."""
        first = families.get(family.name)
        others = (series(other) for other in families.values() if other is not first)
        taken = self.taken.union(*others)
        if taken & series(family) or (first is not None and first.type != family.type):
            event = "duplicate metric dropped"
            self._problems.say(family.name, event, plugin=plugin, metric=family.name)
            return len(family.samples)
        earlier = () if first is None else first.samples  # maybe of the same class of plugin
        new = _new(family, earlier)
        if dropped := len(family.samples) - len(new):
            event = "duplicate metric samples dropped"
            self._problems.say(
                f"samples of {family.name}", event, plugin=plugin, metric=family.name
            )
        families[family.name] = copy(family)
        families[family.name].samples = [*earlier, *new]
        return dropped


def _new(family: Metric, earlier: Iterable[Sample]) -> Sequence[Sample]:
    """Return the samples of ``family`` that do not conflict with ``earlier`` ones of its name.

    A histogram or a summary is returned with all its parts or not at all.
    """
    part = _PART.get(family.type, "")
    there = {_labels(sample, part) for sample in earlier}
    new: dict[Any, Sample] = {}
    for sample in family.samples:
        if _labels(sample, part) not in there:
            new.setdefault((sample.name, _labels(sample)), sample)
    return list(new.values())


def _labels(sample: Sample, without: str = "") -> frozenset[tuple[str, str]]:
    """Return what identifies ``sample``; an empty label counts as absent."""
    return frozenset(
        (name, value) for name, value in sample.labels.items() if value and name != without
    )


def _collect(plugin: Plugin) -> Sequence[Metric]:
    """Return the plugin's metrics, if they can be written in either format."""
    families = list(plugin.metrics())
    registry = CollectorRegistry()
    registry.register(_Given(families))
    openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
    for family in families:
        for sample in family.samples:
            int(float(sample.timestamp or 0) * 1000)  # as the text format has it
            if sample.name not in series(family):
                raise ValueError(f"{family.name} has a sample of {sample.name}")
    return families


class _Given(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    @override
    def collect(self) -> Iterator[Metric]:
        yield from self._families
