"""A resource for HTTP clients: its registration, its devices and their holders."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from deviceplugin._attribution.podresources import Hold, Holdings
from deviceplugin._discovery.found import describe
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.metrics import MAX_NOT_HEALTHY, Attribution, NotHealthy, Offered
from deviceplugin.model import Device
from deviceplugin.plugin import Usage

NOT_ADVERTISED: Final = "not advertised"


class Report(NamedTuple):
    """One resource at one moment."""

    name: str
    plugin: str
    registered: bool
    problem: str
    """Why it is not registered; empty if it is, or need not be."""
    devices: Mapping[str, Device]
    since: Mapping[str, float]
    """The time when the health of each device last changed, in seconds since the epoch."""
    holders: Mapping[str, Sequence[Hold]] | None
    """The holders of each held device, by its id; None if they are unknown."""
    usage: Usage = MappingProxyType({})
    """What holders use of all devices of this process, as far as it is known."""
    stale: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    """The devices whose holder has a node that is gone, by id; with that, for JSON."""
    offered: Mapping[str, int] = MappingProxyType({})
    """How many devices each protocol would give out now."""
    by_dra: Collection[str] = ()
    """The ids of those that DRA would."""

    @classmethod
    def of(
        cls,
        resource: Resource,
        problem: str,
        holdings: Holdings | None,
        *,
        registered: bool,
        offered: Offered,
        usage: Usage,
        stale: Mapping[str, Mapping[str, Any]],
    ) -> "Report":
        devices = resource.devices
        return cls(
            name=resource.name,
            plugin=type(resource.plugin).__name__,
            registered=registered,
            problem=problem,
            devices=devices,
            since={device_id: resource.since(device_id) for device_id in devices},
            holders=None if holdings is None else holdings.holders(resource.name),
            usage=usage,
            stale=stale,
            offered={"device-plugin": offered.by_plugin, "dra": len(offered.by_dra)},
            by_dra=offered.by_dra,
        )

    def as_json(self) -> Mapping[str, Any]:
        """Return everything but the devices, for JSON."""
        return {
            "name": self.name,
            "plugin": self.plugin,
            "registered": self.registered,
            "problem": self.problem,
            "offered": dict(self.offered),
        }

    def devices_as_json(self) -> Iterator[Mapping[str, Any]]:
        for device in self.devices.values():
            holds = None if self.holders is None else self.holders.get(device.id, ())
            people = None if holds is None else [*map(self._person, holds)]
            more: dict[str, Any] = {"by_dra": True} if device.id in self.by_dra else {}
            more |= {"stale": self.stale[device.id]} if device.id in self.stale else {}
            yield {**describe(device, self.since[device.id]), "holders": people, **more}

    def used(self, hold: Hold) -> Mapping[str, float]:
        """Return what ``hold`` uses of its device; nothing if that is unknown."""
        return self.usage.get(hold[:5], {})

    def _person(self, hold: Hold) -> Mapping[str, Any]:
        named = {"namespace": hold.namespace, "pod": hold.pod, "container": hold.container}
        more = {"claim": hold.claim, "usage": self.used(hold)}
        return named | {name: value for name, value in more.items() if value}


def attribution(resource: Resource, holdings: Holdings | None, stale: int = 0) -> Attribution:
    """Return what the metrics need to know about the devices of ``resource``."""
    holders = None if holdings is None else holdings.holders(resource.name)
    devices, taken = resource.devices.values(), holders or {}
    if resource.listed is not resource.devices:  # parts count if somebody has them
        devices, taken = _without_free_parts(resource, taken)
    healthy = [device.id for device in devices if device.health]
    free = len(healthy) - sum(device_id in taken for device_id in healthy)
    degraded = sum(one.health.state == "degraded" for one in devices)
    first = tuple(islice(_not_healthy(resource), MAX_NOT_HEALTHY))
    return Attribution(resource.name, len(healthy), free, holders, degraded, first, stale)


def _without_free_parts(
    resource: Resource, holders: Collection[str]
) -> tuple[Collection[Device], Collection[str]]:
    """Return wholes and the parts that are held, and which of these are not free."""
    parts = {i: one.part for i, one in resource.devices.items() if one.part is not None}
    cut = {parts[one].of.name for one in holders if one in parts}
    devices = [d for i, d in resource.devices.items() if i in resource.listed or i in holders]
    return devices, {one.id for one in devices if one.part and one.part.of.name in cut} | {*holders}


def _not_healthy(resource: Resource) -> Iterator[NotHealthy]:
    devices = resource.devices.values()
    for state in ("unhealthy", "degraded"):
        for one in devices:
            if one.health.state == state:
                since = resource.since(one.id)
                yield NotHealthy(one.id, state, one.health.reason, since)
