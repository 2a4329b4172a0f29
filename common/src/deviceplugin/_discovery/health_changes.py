"""Reporting devices whose health has changed, in the log and on the page."""

import logging
from collections.abc import Sequence
from typing import Final

from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.events import Events
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device

log = logging.getLogger(__name__)

_MANY: Final = 10
"""Changes of health that are reported one by one; one line counts the rest."""


class HealthChanges:
    """Reports changes of health of one plugin's devices. Not thread-safe by itself.

    While a device stays unhealthy or degraded, a reason that merely varies is not reported each
    time.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._reasons: dict[str, Problems] = {}
        """The reasons of unhealthy and degraded devices, by resource."""

    def report(self, resource: Resource, changed: Sequence[Device]) -> None:
        """Report the news among ``changed``, which ``publish`` returned."""
        if not changed:
            return
        reasons = self._reasons.setdefault(resource.name, Problems(log))
        reasons.keep(resource.devices)
        news = [device for device in changed if _is_news(device, reasons)]
        for device in news[:_MANY]:
            self._report_one(resource.name, device)
        if more := news[_MANY:]:
            self._report_more(resource.name, more)

    def forget(self, resource: str) -> None:
        """Forget ``resource``, which was withdrawn."""
        self._reasons.pop(resource, None)

    def _report_one(self, resource: str, device: Device) -> None:
        reason = device.health.reason
        well = "device is degraded" if reason else "device is healthy"
        event = well if device.health else "device is unhealthy"
        self._events.add(event, resource=resource, device=device.id, detail=reason)
        fields = {"resource": resource, "device": device.id}
        log.info(event, extra={**fields, **({"reason": reason} if reason else {})})

    def _report_more(self, resource: str, devices: Sequence[Device]) -> None:
        event = "health of more devices changed"
        healthy = sum(bool(device.health) for device in devices)
        unhealthy = len(devices) - healthy
        detail = f"{healthy} healthy, {unhealthy} unhealthy"
        self._events.add(event, resource=resource, detail=detail)
        log.info(event, extra={"resource": resource, "healthy": healthy, "unhealthy": unhealthy})


def _is_news(device: Device, reasons: Problems) -> bool:
    state = device.health.state
    if state == "healthy":
        reasons.over(device.id)
        return True
    return reasons.is_news(device.id, f"{state}: {device.health.reason}")
