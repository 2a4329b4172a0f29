"""Which devices of one resource to list: the present ones, and vanished ones that pods may hold.

A 1.36 kubelet can crash when a device that a pod holds disappears from the list. So a vanished
device is kept as unhealthy until no pod can hold it any more.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from deviceplugin._attribution.podresources import Holdings
from deviceplugin._config.settings import Settings
from deviceplugin.errors import KubeletUnavailableError
from deviceplugin.kit.log import Problems
from deviceplugin.model import Device, Health

log = logging.getLogger(__name__)

NOTHING_CLOSED: Final[Mapping[str, str]] = MappingProxyType({})
VANISHED = "it is gone"
GONE, CLOSED, NOT_CHECKED = "gone", "closed", "not-checked"
"""Causes: it has vanished, it must not be given out, or discovery is in trouble."""
RECORDED_BUT_ABSENT = (
    "the kubelet has recorded it for a pod, but it has not been found since the plugin started"
)
HELD_BUT_ABSENT = "a pod holds it, but it has not been found since the plugin started"


class Retention(NamedTuple):
    """How long vanished devices are kept, in seconds."""

    grace: float
    """The least time if it is known what pods hold. It covers an allocation that is under way."""
    unknown: float
    """The time if it is unknown what pods hold."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeptDevices:
    """The present and vanished devices of one resource. Immutable; times are monotonic seconds."""

    fresh_at: float
    """The time of the last successful discovery of this resource."""
    present: Mapping[str, Device] = field(default_factory=dict)
    vanished: Mapping[str, tuple[Device, float]] = field(default_factory=dict)
    """The vanished devices, each with the time when it vanished."""

    def __len__(self) -> int:
        return len(self.present) + len(self.vanished)

    def updated(self, present: Mapping[str, Device], now: float) -> "KeptDevices":
        """Return what is kept if ``present`` has all devices that are present at ``now``.

        The result refers to ``present`` itself, which must not be changed afterwards.
        """
        vanished = {i: entry for i, entry in self.vanished.items() if i not in present}
        for device_id in self.present.keys() - present.keys():
            vanished[device_id] = reported(self.present[device_id], VANISHED), now
        return KeptDevices(now, present, vanished)

    def expecting(
        self, held: AbstractSet[str], now: float, reason: str = HELD_BUT_ABSENT
    ) -> "KeptDevices":
        """Return this with the devices added that pods hold but that were never discovered."""
        absent = held - self.present.keys() - self.vanished.keys()
        lost = {device_id: (reported(Device(device_id), reason), now) for device_id in absent}
        return replace(self, vanished={**self.vanished, **lost})

    def retired(
        self,
        held: AbstractSet[str] | None,
        now: float,
        retention: Retention,
        recorded: AbstractSet[str] = frozenset(),
    ) -> "KeptDevices":
        """Return this without the vanished devices that no pod can hold any more.

        ``held`` is None if it is unknown what pods hold. Of those that are ``recorded`` it is.
        """

        def is_kept(device_id: str, since: float) -> bool:
            unknown = held is None or device_id in recorded
            wait = retention.unknown if unknown else retention.grace
            return now - since < wait or device_id in (held or ())

        kept = {one: entry for one, entry in self.vanished.items() if is_kept(one, entry[1])}
        return replace(self, vanished=kept)

    def devices(
        self,
        became: Callable[[Device], str] = lambda _device: "",
        closed: Mapping[str, str] = NOTHING_CLOSED,
    ) -> list[Device]:
        """Return all devices, in no particular order.

        ``became`` returns what became of one that has vanished, empty if it is gone. ``closed`` has
        those that must not be given out, each with the reason.
        """
        vanished = [reported(one, became(one)) for one, _ in self.vanished.values()]
        there = [_closed(one, closed.get(one.id, "")) for one in self.present.values()]
        return [*there, *vanished]


def unhealthy(devices: Iterable[Device], reason: str) -> list[Device]:
    """Return ``devices``, with the healthy ones made unhealthy for ``reason``."""
    return [
        reported(device, reason, NOT_CHECKED) if device.health else device for device in devices
    ]


def reported(device: Device, reason: str, cause: str = GONE) -> Device:
    """Return ``device``, unhealthy for ``reason`` unless that is empty."""
    return replace(device, health=Health.unhealthy(reason, cause)) if reason else device


def _closed(device: Device, reason: str) -> Device:
    """Return ``device`` as one that must not be given out, with what else is wrong before that."""
    own = device.health.reason if reason and not device.health else ""
    text = "; ".join(filter(None, [own, reason])) if own != reason else reason
    return reported(device, text, device.health.cause if own else CLOSED)


_DISCOVERIES: Final = 3
"""Least number of discoveries within the deadline, so that a single failure has no effect."""


class DiscoveryTiming(NamedTuple):
    """The intervals and time limits of a plugin's discovery, in seconds."""

    interval: float
    deadline: float
    """Devices that could not be discovered for this long are unhealthy."""
    retention: Retention

    @classmethod
    def of(cls, settings: Settings) -> "DiscoveryTiming":
        deadline = settings.discovery_deadline.total_seconds()
        grace, unknown = settings.vanished_grace, settings.vanished_retention
        return cls(
            interval=min(settings.discovery_interval.total_seconds(), deadline / _DISCOVERIES),
            deadline=deadline,
            retention=Retention(grace.total_seconds(), unknown.total_seconds()),
        )


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
        """Resources for which no kubelet has said yet what pods hold."""
        self._recorded: set[str] = set()
        """Those of them for which its checkpoint did."""
        self._give_up_at = time.monotonic() + _PATIENCE
        self._until = (datetime.now(UTC) + timedelta(seconds=_PATIENCE)).isoformat(
            timespec="seconds"
        )
        self._problems = Problems(log)

    @property
    def waiting(self) -> bool:
        """Whether nothing should be advertised yet because it is unknown what pods hold."""
        return self._is_ignorant and time.monotonic() < self._give_up_at

    @property
    def _is_ignorant(self) -> bool:
        return not self._unknown <= self._recorded

    def expect(self, resource: str) -> None:
        """Ask what pods hold of ``resource``, which is new, at the next discovery."""
        self._unknown.add(resource)

    def forget(self, resource: str) -> None:
        """Stop asking for ``resource``."""
        self._unknown.discard(resource)
        self._recorded.discard(resource)

    def learn(self, resource: str, holdings: Holdings) -> bool:
        """Return whether no kubelet had said who holds ``resource`` before ``holdings``."""
        unknown = resource in self._unknown
        if holdings.answered:
            self.forget(resource)
        return unknown

    def ask(self, *, vanished: bool) -> Holdings | None:
        """Return what pods hold; None if unknown, or irrelevant, as without ``vanished``."""
        now = time.monotonic()
        due = (vanished or self._unknown) and now - self._asked_at >= self._interval
        if not (self._is_ignorant or due):
            return None
        try:
            holdings = self._ask()
        except KubeletUnavailableError as error:
            fields: dict[str, Any] = {"plugin": self._plugin, "error": str(error)}
            if self.waiting:
                event = "waiting for pod resources before registering"
                self._problems.say("held", event, **fields, until=self._until)
            elif self._is_ignorant:
                self._problems.say("held", "registering without pod resources", **fields)
            else:
                self._problems.say("held", "pod resources unavailable", **fields)
            return None
        self._asked_at = now
        if not holdings.answered:
            self._recorded |= self._unknown
        elif self._problems.over("held"):
            log.info("pod resources available", extra={"plugin": self._plugin})
        return holdings
