"""Deleting ResourceSlices: all of the node's at a start, and those of a driver that is gone."""

import logging
from dataclasses import dataclass
from typing import Final

from deviceplugin_testing.simulator._host.claim_source import ClusterError
from deviceplugin_testing.simulator._host.host import Host

log = logging.getLogger(__name__)

_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 300.0
_JITTER: Final = 0.2


@dataclass(slots=True)
class _Wipe:
    """A deletion to come."""

    due: float
    retry: float = _FIRST_RETRY
    begun: bool = False
    """Whether it has been tried. Then it is tried until it succeeds, even if the driver is back."""
    running: bool = False


class Wiper:
    """Deletes slices when they are due, and tries again with growing gaps."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._wipes: dict[str, _Wipe] = {}
        """By driver; that of the start is at the empty name."""

    @property
    def due(self) -> dict[str, float]:
        """When each deletion to come is due, by driver."""
        with self._host.changed:
            return {driver: wipe.due for driver, wipe in self._wipes.items()}

    def schedule(self, driver: str, delay: float) -> None:
        """Delete the driver's slices after ``delay`` seconds, unless that is planned already."""
        with self._host.changed:
            self._wipes.setdefault(driver, _Wipe(self._host.clock() + delay))

    def cancel(self, driver: str) -> None:
        """Do not delete the driver's slices, if that has not begun."""
        with self._host.changed:
            wipe = self._wipes.get(driver)
            if wipe and not wipe.begun:
                del self._wipes[driver]

    def run(self) -> None:
        """Delete what is due now."""
        now = self._host.clock()
        with self._host.changed:
            due = {
                driver: wipe
                for driver, wipe in self._wipes.items()
                if wipe.due <= now and not wipe.running
            }
            for wipe in due.values():
                wipe.begun = wipe.running = True
        for driver, wipe in due.items():
            self._delete(driver, wipe)

    def _delete(self, driver: str, wipe: _Wipe) -> None:
        problem = ""
        try:
            self._host.cluster.delete_slices(self._host.config.node_name, driver)
        except ClusterError as error:
            problem = str(error)
            log.debug("slices not deleted", extra={"driver": driver, "error": problem})
        with self._host.changed:
            wipe.running = False
            if problem:
                jitter = 1 + self._host.rng.random() * _JITTER
                wipe.due = self._host.clock() + wipe.retry * jitter
                wipe.retry = min(wipe.retry * 2, _LAST_RETRY)
            else:
                del self._wipes[driver]
                self._host.metrics.slice_deletions[driver] += 1
            self._host.notify()
