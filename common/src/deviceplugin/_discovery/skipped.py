"""Devices that a discovery has found and that are not advertised: counted and logged."""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_MANY: Final = 10
"""Reasons to skip devices that are shown one by one."""


class SkippedDevices:
    """What is skipped of the devices of one plugin. For one thread."""

    def __init__(self, plugin: str, metrics: Metrics) -> None:
        self._plugin = plugin
        self._metrics = metrics
        self._log = Problems(log)
        self.reasons: Sequence[str] = ()
        """Why devices were skipped the last time, at most as many texts as are logged."""

    def report(self, problems: Mapping[str, int]) -> None:
        """Report that the last discovery skipped so many devices for each of these reasons."""
        self._metrics.skipped_devices.labels(self._plugin).set(sum(problems.values()))
        self._log.say_all("device skipped", list(problems), plugin=self._plugin)
        shown = list(problems)[:_MANY]
        more = len(problems) - len(shown)
        self.reasons = [*shown, f"{more} more"] if more else shown
