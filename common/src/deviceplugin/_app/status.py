"""What a process reports of itself: over HTTP, in its metrics, and to tests."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from deviceplugin._app.served_resources import Endpoints
from deviceplugin._attribution.tracker import HoldingsTracker
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.found import NOT_RETURNING, counts
from deviceplugin._discovery.loop import Discovery
from deviceplugin._http.report import NOT_ADVERTISED, Report, attribution
from deviceplugin._kubelet.liveness import Liveness
from deviceplugin._telemetry.metrics import Attribution, Count


class Status:
    """How all that runs is. Thread-safe."""

    def __init__(
        self,
        settings: Settings,
        *,
        discoveries: Sequence[Discovery],
        endpoints: Endpoints,
        tracker: HoldingsTracker,
        liveness: Liveness,
    ) -> None:
        self._settings = settings
        self._discoveries = discoveries
        self._endpoints = endpoints
        self._tracker = tracker
        self._liveness = liveness

    def alive(self) -> str:
        """Return an empty text, or why the process should be restarted."""
        hanging = [discovery.name for discovery in self._discoveries if discovery.hanging]
        if hanging:
            return f"{NOT_RETURNING}: {', '.join(hanging)}"
        directory = self._settings.plugin_dir
        with suppress(OSError):  # not there, or not for us to see: a restart mends neither
            if not directory.stat().st_nlink:
                # As a mount in a container, it stays what it was: only a new one sees the new.
                return f"{directory} has been deleted under its mount"
        return self._liveness.problem()

    def ready(self) -> str:
        """Return an empty text, or why devices cannot be allocated from here now."""
        if waiting := [d.name for d in self._discoveries if d.waiting]:
            return f"waiting for pod resources: {', '.join(waiting)}"
        if pending := [d for d in self._discoveries if not d.completed]:
            return _without_success("yet", pending)
        if overdue := [d for d in self._discoveries if d.overdue]:
            deadline = self._settings.discovery_deadline.total_seconds()
            return _without_success(f"for {deadline:g} s", overdue)
        return "\n".join(self._unregistered())

    def troubles(self) -> list[str]:
        """Return everything that keeps devices from being advertised now, a message for each."""
        own = [text for discovery in self._discoveries for text in discovery.troubles()]
        return [*own, *self._unregistered()]

    def _unregistered(self) -> list[str]:
        return [
            f"{endpoint.resource.name}: {endpoint.problem}"
            for endpoint in self._endpoints.running()
            if endpoint.problem
        ]

    def reports(self) -> list[Report]:
        """Return all resources as they are now, by name."""
        holdings = self._tracker.current()
        return [
            Report.of(resource, endpoint.problem if endpoint else NOT_ADVERTISED, holdings)
            for resource, endpoint in self._endpoints.by_resource()
        ]

    def inventory(self) -> Mapping[str, Any]:
        """Return all resources and their devices, ready for JSON."""
        return {
            "resources": [
                {**report.as_json(), "devices": list(report.devices_as_json())}
                for report in self.reports()
            ]
        }

    # What the metrics ask for at each scrape.

    def count_devices(self) -> list[Count]:
        """Return how many devices of each resource are healthy, and how many are not."""
        resources = self._endpoints.resources()
        return [(name, *counts(resource.devices)) for name, resource in resources.items()]

    def attribute(self) -> list[Attribution]:
        """Return who holds the devices of each resource."""
        holdings = self._tracker.current()
        resources = self._endpoints.resources().values()
        return [attribution(resource, holdings) for resource in resources]


def _without_success(since: str, discoveries: Iterable[Discovery]) -> str:
    return "\n".join(
        f"no discovery has succeeded {since}: {d.name}{d.failure and f': {d.failure}'}"
        for d in discoveries
    )
