"""What becomes known of an endpoint: its problem, in the log, as events and as a metric."""

import logging
from typing import Final

from deviceplugin._telemetry.log import Once
from deviceplugin._telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_SERVE: Final = "serve"
"""The one subject: all that keeps the resource from being registered."""


class EndpointStatus:
    """Whether the kubelet watches one resource, and if not, why."""

    def __init__(self, resource: str, metrics: Metrics) -> None:
        self.problem = "starting"
        """Why the kubelet is not watching the resource; empty while it is."""
        self._resource = resource
        self._metrics = metrics
        self._said = Once(log)
        self._failures = Once(log, logging.ERROR)
        metrics.expect_resource(resource)

    def set(self, problem: str) -> None:
        """Let ``problem`` be the present one, which is told only to those who ask."""
        self.problem = problem
        self._metrics.registered.labels(self._resource).set(0 if problem else 1)

    def report(self, event: str, error: str, cause: Exception | None = None) -> None:
        """Let ``error`` be the present problem, and tell of it unless it has been told.

        With ``cause`` it is an error of ours, and has a traceback.
        """
        self.set(f"{event}: {error}")
        said = self._failures if cause else self._said
        if said.say(_SERVE, event, cause=cause, resource=self._resource, error=error):
            self._metrics.events.add(event, resource=self._resource, detail=error)

    def refused(self, reason: str) -> None:
        """Tell that this kubelet never takes the resource."""
        self.set(f"refused by the kubelet: {reason}")
        event = "the kubelet refuses the resource"
        self._metrics.events.add(event, resource=self._resource, detail=reason)
        log.error(event, extra={"resource": self._resource, "error": reason})

    def registered(self) -> None:
        """Tell that the kubelet has taken the resource: what was reported before is over."""
        log.info("registered", extra={"resource": self._resource})
        self._metrics.events.add("registered", resource=self._resource)
        self._said.over(_SERVE)
        self._failures.over(_SERVE)

    def lost(self, reason: str) -> None:
        """Tell how the registration was lost."""
        log.info("registration lost", extra={"resource": self._resource, "reason": reason})
        self._metrics.events.add("registration lost", resource=self._resource, detail=reason)
        self.set(reason)

    def unserved(self) -> None:
        """Let it not count as registered: its server is about to stop."""
        self._metrics.registered.labels(self._resource).set(0)

    def forget(self) -> None:
        """Remove the resource from the metrics."""
        self._metrics.forget(self._resource)
