"""Reporting devices whose health has changed, in the log and on the page."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.events import Allowance, Events
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device

log = logging.getLogger(__name__)

_MANY: Final = 10
"""Changes of health that are reported one by one; one line counts the rest."""


class HealthChanges:
    """Reports changes of health of one plugin's devices. Not thread-safe by itself.

    While a device stays unhealthy or degraded, a reason that merely varies is not reported each
    time. A device that changes all the time is reported within an `Allowance`, with the number of
    changes that were not, and its last state as soon as that is allowed.
    """

    def __init__(self, events: Events, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._reasons: dict[str, Problems] = {}
        """The reasons of unhealthy and degraded devices, by resource."""
        self._waiting: dict[str, Counter[str]] = {}
        """How often devices have changed since they were last reported, by resource."""
        self._gone = 0
        """Changes of devices that were gone before they were reported."""
        self._allowance = Allowance(clock)

    def report(self, resource: Resource, changed: Sequence[Device]) -> None:
        """Report the news among ``changed``, which ``publish`` returned, and what has waited."""
        name = resource.name
        if not (changed or self._waiting.get(name)):
            return
        reasons = self._reasons.setdefault(name, Problems(log))
        reasons.keep(resource.devices)
        waiting = self._waiting.setdefault(name, Counter())
        waiting.update(device.id for device in changed if _is_news(device, reasons))
        for gone in waiting.keys() - resource.devices.keys():
            self._gone += waiting.pop(gone)
        ready = [one for one in waiting if self._allowance.has(f"{name} {one}")]
        for one in ready[:_MANY]:
            if self._allowance.take(f"{name} {one}"):
                self._report_one(name, resource.devices[one], waiting.pop(one) - 1)
        if (more := ready[_MANY:]) and self._allowance.take():
            self._report_more(name, [resource.devices[one] for one in more])
            for one in more:
                del waiting[one]

    def forget(self, resource: str) -> None:
        """Forget ``resource``, which was withdrawn."""
        self._reasons.pop(resource, None)
        self._gone += self._waiting.pop(resource, Counter()).total()

    def _report_one(self, resource: str, device: Device, skipped: int) -> None:
        reason = device.health.reason
        well = "device is degraded" if reason else "device is healthy"
        event = well if device.health else "device is unhealthy"
        self._events.add(event, resource=resource, device=device.id, detail=reason)
        gone, self._gone = self._gone, 0
        fields = {"resource": resource, "device": device.id, "reason": reason}
        numbers = {"skipped": skipped, "gone": gone}
        log.info(event, extra={key: one for key, one in {**fields, **numbers}.items() if one})

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
