"""Counting and logging devices that were discovered but are invalid."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_MANY: Final = 10
"""Reasons to skip devices that are shown one by one."""


class SkippedDevices:
    """Reports the skipped devices of one plugin. For one thread."""

    def __init__(self, plugin: str, metrics: Metrics) -> None:
        self._plugin = plugin
        self._metrics = metrics
        self._log = Problems(log)
        self.reasons: Sequence[str] = ()
        """Why the last discovery skipped devices; as many messages as are logged."""

    def report(self, problems: Mapping[str, int]) -> None:
        """Report the reasons why the last discovery skipped devices, each with their number."""
        self._metrics.skipped_devices.labels(self._plugin).set(sum(problems.values()))
        self._log.say_all("device skipped", list(problems), plugin=self._plugin)
        shown = list(problems)[:_MANY]
        more = len(problems) - len(shown)
        self.reasons = [*shown, f"{more} more"] if more else shown
