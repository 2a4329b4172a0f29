"""A resource for HTTP clients: its registration, its devices and their holders."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deviceplugin._attribution.podresources import Hold, Holdings
from deviceplugin._discovery.found import describe
from deviceplugin._inventory.published import Resource
from deviceplugin._telemetry.metrics import MAX_NOT_HEALTHY, Attribution, NotHealthy, Offered
from deviceplugin.model import Device
from deviceplugin.plugin import Usage

if TYPE_CHECKING:
    from deviceplugin._inventory.divided import Divided

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
    made: Mapping[str, str] = MappingProxyType({})
    """The identity of each part that a claim has, by its id; empty while it is being made."""
    divided: "Mapping[str, Divided]" = MappingProxyType({})
    """The hardware that can be given out in parts, by the name of its counters."""

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
            offered={"device-plugin": offered.by_plugin, "dra": offered.count_by_dra},
            by_dra=offered.by_dra,
            made=resource.plugin.made,
            divided=divided_of(resource, holdings),
        )

    def without_spare_parts(self) -> "Report":
        """Return this without parts that nobody has, of which there can be very many."""
        held = {*self.made, *(self.holders or ())}
        there = {
            name: one
            for name, one in self.devices.items()
            if not (one.part and one.part.on_demand) or name in held
        }
        is_same = len(there) == len(self.devices)
        return self if is_same else self._replace(devices=there, by_dra=there.keys() & self.by_dra)

    def as_json(self) -> Mapping[str, Any]:
        """Return everything but the devices, for JSON."""
        parts = {
            name: {
                "left": dict(one.left),
                "profiles": {profile: asdict(count) for profile, count in one.profiles.items()},
            }
            for name, one in self.divided.items()
        }
        return {
            "name": self.name,
            "plugin": self.plugin,
            "registered": self.registered,
            "problem": self.problem,
            "offered": dict(self.offered),
            **({"parts": parts} if parts else {}),
        }

    def devices_as_json(self) -> Iterator[Mapping[str, Any]]:
        blocked = {device_id for one in self.divided.values() for device_id in one.blocked}
        for device in self.devices.values():
            holds = None if self.holders is None else self.holders.get(device.id, ())
            people = None if holds is None else [*map(self._person, holds)]
            more: dict[str, Any] = {"by_dra": True} if device.id in self.by_dra else {}
            more |= {"stale": self.stale[device.id]} if device.id in self.stale else {}
            more |= {"made": self.made[device.id]} if device.id in self.made else {}
            more |= {"blocked": True} if device.id in blocked else {}
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
    devices, taken = resource.devices, {*(holders or ())}
    if divided := divided_of(resource, holdings):  # parts count if somebody has them
        devices = {i: one for i, one in devices.items() if i in resource.listed or i in taken}
        taken.update(name for one in divided.values() for name in one.blocked)
    healthy = [device.id for device in devices.values() if device.health]
    free = len(healthy) - sum(device_id in taken for device_id in healthy)
    degraded = sum(one.health.state == "degraded" for one in devices.values())
    first = tuple(islice(_not_healthy(resource, devices.values()), MAX_NOT_HEALTHY))
    found = Attribution(resource.name, len(healthy), free, holders, degraded, first, stale)
    if not divided:
        return found
    from deviceplugin._inventory.divided import total  # a plugin without parts never needs it

    counts = {profile: asdict(one) for profile, one in total(divided.values()).items()}
    return found._replace(parts=counts)


def divided_of(resource: Resource, holdings: Holdings | None) -> "Mapping[str, Divided]":
    """Return the hardware that can be given out in parts, by the name of its counters."""
    if resource.listed is resource.devices:
        return {}
    from deviceplugin._inventory.divided import of_devices  # a plugin without parts never needs it

    held = {} if holdings is None else holdings.holders(resource.name)
    return of_devices(resource.devices.values(), held, resource.plugin.made)


def _not_healthy(resource: Resource, devices: Collection[Device]) -> Iterator[NotHealthy]:
    for state in ("unhealthy", "degraded"):
        for one in devices:
            if one.health.state == state:
                since = resource.since(one.id)
                yield NotHealthy(one.id, state, one.health.reason, since)
