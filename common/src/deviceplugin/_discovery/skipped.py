"""Devices that a discovery has found and that are not advertised: counted, and told in the log."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from deviceplugin._telemetry.log import Once, shape
from deviceplugin._telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_MANY: Final = 10
"""Reasons to skip devices that are logged one by one; more get one line."""


class SkippedDevices:
    """What is skipped of the devices of one plugin. For one thread."""

    def __init__(self, plugin: str, metrics: Metrics) -> None:
        self._plugin = plugin
        self._metrics = metrics
        self._log = Once(log)
        self.reasons: Sequence[str] = ()
        """Why devices were skipped the last time, at most as many texts as are logged."""

    def report(self, problems: Mapping[str, int]) -> None:
        """Report that the last discovery skipped so many devices for each of these reasons."""
        self._metrics.skipped_devices.labels(self._plugin).set(sum(problems.values()))
        logged = list(problems)[:_MANY]
        # By the shape of the text, and numbered: what an author puts into it may vary by itself.
        alike: Counter[str] = Counter()
        subjects = {""}
        for problem in logged:
            form = shape(problem)
            alike[form] += 1
            subjects.add(subject := f"{form} {alike[form]}")
            self._log.say(subject, "skipped", plugin=self._plugin, problem=problem)
        if more := len(problems) - len(logged):
            self._log.say("", "skipped more devices", plugin=self._plugin, count=more)
        self.reasons = [*logged, f"{more} more"] if more else logged
        self._log.keep(subjects)
