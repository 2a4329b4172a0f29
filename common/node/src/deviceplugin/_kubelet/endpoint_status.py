"""The state of an endpoint, in the log, as events and as a metric; and starting its plugin."""

import logging
from pathlib import Path
from typing import Final

from deviceplugin._inventory.published import Resource
from deviceplugin._platform.hooks import Hooks
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit.log import Problems
from deviceplugin.plugin import Plugin, overrides

log = logging.getLogger(__name__)

_SERVE: Final = "serve"
"""The subject of everything that keeps the resource from being registered."""
_ALIAS: Final = "alias"
_SHARED: Final = "another process serves it too; the kubelet uses the one that registered last"


class EndpointStatus:
    """Whether the kubelet watches a resource, and if not, why."""

    def __init__(self, resource: str, metrics: Metrics) -> None:
        self.problem = "starting"
        """Why the kubelet is not watching the resource; empty while it is, or need not."""
        self.remark = ""
        """That another process serves the resource, too; empty if none does."""
        self._resource = resource
        self._metrics = metrics
        self._problems = Problems(log)
        self._failures = Problems(log, logging.ERROR)
        metrics.expect_resource(resource)

    def set(self, problem: str) -> None:
        """Set the current problem without logging it."""
        self.problem = problem
        self._metrics.registered.labels(self._resource).set(0 if problem else 1)

    def report(self, event: str, error: str) -> None:
        """Set the current problem, and log it unless it has been logged."""
        self.set(f"{event}: {error}")
        if self._problems.say(_SERVE, event, resource=self._resource, error=error):
            self._metrics.events.add(event, resource=self._resource, detail=error)

    def failed(self, error: str, cause: Exception) -> None:
        event = "endpoint failed, starting over"
        self.set(f"{event}: {error}")
        if self._failures.say(_SERVE, event, cause=cause, resource=self._resource, error=error):
            self._metrics.events.add(event, resource=self._resource, detail=error)

    def refused(self, reason: str) -> None:
        """Report that this kubelet will never accept the resource."""
        self.set(f"refused by the kubelet: {reason}")
        event = "registration refused"
        self._metrics.events.add(event, resource=self._resource, detail=reason)
        log.error(event, extra={"resource": self._resource, "error": reason})

    def aliased(self, path: Path, problem: str) -> None:
        """Report why the socket does not have the name ``path`` too; empty if it has."""
        if not problem:
            self._problems.over(_ALIAS)
            return
        event = "socket name not available"
        socket = str(path)
        self._problems.say(_ALIAS, event, resource=self._resource, socket=socket, error=problem)

    def registered(self) -> None:
        """Report that the kubelet accepted the resource: earlier problems are over."""
        if self._is_told():
            log.info("registered", extra={"resource": self._resource})
            self._metrics.events.add("registered", resource=self._resource)
        self._problems.over(_SERVE)
        self._failures.over(_SERVE)

    def lost(self, reason: str) -> None:
        if self._is_told():
            log.info("registration lost", extra={"resource": self._resource, "reason": reason})
            self._metrics.events.add("registration lost", resource=self._resource, detail=reason)
        self.set(reason)

    def stands_by(self, *, is_so: bool) -> None:
        """Set whether another process serves the resource, which the kubelet may use instead."""
        if is_so and not self.remark:
            log.info("another process serves the resource", extra={"resource": self._resource})
        self.remark = _SHARED if is_so else ""

    def withdrawn(self) -> None:
        tell_withdrawn(self._resource, self._metrics)

    def _is_told(self) -> bool:
        return self._metrics.events.registrations.take(self._resource)

    def unserved(self) -> None:
        """Set its metric to "not registered", because its server is about to stop."""
        self._metrics.registered.labels(self._resource).set(0)

    def forget(self) -> None:
        self._metrics.forget(self._resource)


def tell_withdrawn(resource: str, metrics: Metrics) -> None:
    if metrics.events.registrations.take(resource):
        log.info("resource withdrawn", extra={"resource": resource})
        metrics.events.add("resource withdrawn", resource=resource)


_START_TIMEOUT: Final = 60.0
"""Seconds that ``start()`` may take."""
_STOP_TIMEOUT: Final = 10.0
"""Seconds that ``stop()`` may take."""


class PluginLifecycle:
    """Starts and stops the plugin of ``resource``. For one thread."""

    def __init__(self, resource: Resource, hooks: Hooks, status: EndpointStatus) -> None:
        self._resource = resource
        self._hooks = hooks
        self._status = status
        self._started: Plugin | None = None

    def start(self) -> bool:
        """Start the resource's plugin, in place of the one before; return whether it is started."""
        plugin = self._resource.plugin
        if self._started is plugin:
            return True
        self.stop()
        if not overrides(plugin, "start"):
            self._started = plugin
            return True
        before = self._status.problem
        self._status.set("start() is under way")
        try:
            self._hooks.call("start", plugin.start, self._resource.name, timeout=_START_TIMEOUT)
        except DevicePluginError as error:
            self._status.report("start() failed", str(error))
            return False
        self._started = plugin
        self._status.set(before)
        return True

    def stop(self) -> None:
        plugin, self._started = self._started, None
        if plugin is None or not overrides(plugin, "stop"):
            return
        try:
            # The endpoint's own Hooks are closed when it stops.
            Hooks().call("stop", plugin.stop, self._resource.name, timeout=_STOP_TIMEOUT)
        except DevicePluginError as error:
            log.warning(
                "stop() failed", extra={"resource": self._resource.name, "error": str(error)}
            )
