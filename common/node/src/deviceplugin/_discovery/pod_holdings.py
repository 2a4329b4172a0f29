"""Asking what pods hold, for a discovery: when it asks, and how long it waits for the answer."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from deviceplugin._attribution.podresources import Holdings
from deviceplugin._discovery.retention import Retention
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_ASK_INTERVAL: Final = 10.0
"""Most seconds between two requests to the kubelet."""
_PATIENCE: Final = 30.0
"""Seconds from the start to wait for an answer before going on without one."""

Ask = Callable[[], Holdings]
"""Returns what all pods hold now, or raises KubeletUnavailableError."""


class PodHoldings:
    """Asks the kubelet what pods hold, for the discovery of one plugin and in its thread.

    It asks before a resource is advertised for the first time, because a list that lacks a device
    held by a pod can crash the kubelet. It also asks periodically while devices have vanished.
    """

    def __init__(self, plugin: str, ask: Ask, retention: Retention) -> None:
        self._plugin = plugin
        self._ask = ask
        self._interval = min(_ASK_INTERVAL, retention.grace, retention.unknown)
        self._asked_at = float("-inf")
        self._unknown: set[str] = set()
        """Resources for which it has never been known what pods hold."""
        self._give_up_at = time.monotonic() + _PATIENCE
        self._waiting_until = datetime.now(UTC) + timedelta(seconds=_PATIENCE)
        """The same as wall-clock time."""
        self._problems = Problems(log)

    @property
    def waiting(self) -> bool:
        """Whether nothing should be advertised yet because it is unknown what pods hold."""
        return bool(self._unknown) and time.monotonic() < self._give_up_at

    def expect(self, resource: str) -> None:
        """Ask what pods hold of ``resource``, which is new, at the next discovery."""
        self._unknown.add(resource)

    def forget(self, resource: str) -> bool:
        """Stop asking for ``resource``: its holders are known, or it was withdrawn.

        Return whether they were not known before.
        """
        unknown = resource in self._unknown
        self._unknown.discard(resource)
        return unknown

    def ask(self, *, vanished: bool) -> Holdings | None:
        """Return what pods hold; None if that does not matter now or cannot be known.

        ``vanished`` is whether devices are kept until no pod holds them.
        """
        now = time.monotonic()
        due = vanished and now - self._asked_at >= self._interval
        if not (self._unknown or due):
            return None
        try:
            holdings = self._ask()
        except KubeletUnavailableError as error:
            self._log_unknown(str(error))
            return None
        if self._problems.over("held"):
            log.info("pod resources available", extra={"plugin": self._plugin})
        self._asked_at = now
        return holdings

    def _log_unknown(self, error: str) -> None:
        """Log that the kubelet does not answer, and what that means now."""
        fields: dict[str, Any] = {"plugin": self._plugin, "error": error}
        if self.waiting:
            fields["until"] = self._waiting_until.isoformat(timespec="seconds")
            event = "waiting for pod resources before registering"
        elif self._unknown:
            event = "registering without pod resources"
        else:
            event = "pod resources unavailable"
        self._problems.say("held", event, **fields)
