"""Devices that an operator holds: which they are, by hardware, and the file that remembers them."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._inventory.validation import device_problem, natural_key
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit import pieces
from deviceplugin.kit.state import State
from deviceplugin.model import Attribute, Device, Health, Version

log = logging.getLogger(__name__)

PREFIX: Final = "held: "
"""What the reason of a device begins with that is unhealthy for nothing but a hold."""
MOST: Final = 256
"""Holds at a time."""
LONGEST: Final = 256
"""Characters of a reason, and of a name."""
_FORM: Final = 1
_SHOWN: Final = 8

DevicesByResource = Mapping[str, Mapping[str, Device]]
Found = Mapping[Key, tuple[str, Device]]
"""Devices, each with the name of its plugin."""


class HoldError(DevicePluginError):
    """A hold cannot be made or ended as it was asked for."""


class HeldDevice(NamedTuple):
    """A device as it was when it was held."""

    plugin: str
    resource: str
    device: Device

    @property
    def key(self) -> Key:
        return self.resource, self.device.id


@dataclass(frozen=True)
class Hold:
    """One hold, of all devices that are parts of the same hardware."""

    name: str
    """The device as the operator named it."""
    reason: str
    since: float
    """Unix seconds."""
    devices: Sequence[HeldDevice]
    by_attribute: bool = False
    """Whether every device that has ``name`` as the value of an attribute is held."""

    @cached_property
    def keys(self) -> frozenset[Key]:
        return frozenset(one.key for one in self.devices)

    @cached_property
    def things(self) -> Sequence[HeldDevice]:
        """One device for each piece of hardware: there can be very many shares of one."""
        found = {(one.resource, identity(one.device)): one for one in self.devices}
        return list(found.values())

    @property
    def is_one_thing(self) -> bool:
        return len({identity(one.device) for one in self.things}) == 1

    @property
    def health(self) -> Health:
        return Health.unhealthy(f"{PREFIX}{self.reason}")

    def covers(self, resource: str, device: Device) -> bool:
        """Return whether ``device`` is held: whether its hardware is, whatever its id is now."""
        if self.by_attribute and has_fact(device, self.name):
            return True
        return any(_is_part(resource, device, one) for one in self.things)

    def concerns(self, name: str) -> bool:
        if name == self.name:
            return True
        return any(
            is_called(one.device, name) or has_piece(one.device, name) for one in self.devices
        )


def _is_part(resource: str, device: Device, held: HeldDevice) -> bool:
    """Return whether a device is the same hardware as one that is held, or a part of it.

    By names, such as a PCI address, if both have any. Device nodes may be common to several
    devices, so one without names is a part only if it has no other nodes.
    """
    if device is held.device:
        return True
    ours, theirs = _names(device), _names(held.device)
    if ours and theirs:
        return not ours.isdisjoint(theirs)
    known = resource == held.resource and device.id == held.device.id
    shared = device.share_of != "" and (resource, device.share_of) == (
        held.resource,
        held.device.share_of,
    )
    own = pieces.of(device)
    return known or shared or bool(own and own <= pieces.of(held.device))


def _names(device: Device) -> frozenset[str]:
    return frozenset(one for one in device.hardware if not one.startswith("/"))


def is_called(device: Device, name: str) -> bool:
    return name in {device.id, device.share_of}


def has_piece(device: Device, name: str) -> bool:
    return (
        name in device.hardware
        or pieces.pci(name) in device.hardware
        or any(name == node.host_path for node in device.nodes)
    )


def has_fact(device: Device, name: str) -> bool:
    return any(str(value) == name for value in device.attributes.values())


def find(name: str, there: Found, *, every: bool = False) -> tuple[Found, bool]:
    """Return the devices that ``name`` means, and whether it is the value of an attribute.

    It is an id, the name of a piece of hardware, or the value of an attribute, in this order.
    HoldError if there is none, or if they are several things and not ``every`` one is meant.
    """
    for rule in (is_called, has_piece, has_fact):
        found = {key: one for key, one in there.items() if rule(one[1], name)}
        if not found:
            continue
        things = {identity(one) for _, one in found.values()}
        if len(things) > 1 and rule is not has_piece and not every:
            known = _listed(found)
            raise HoldError(f"{name!r} matches {len(things)} devices: {known}: name one, or --all")
        return found, rule is has_fact
    known = _listed(there) or "none"
    raise HoldError(f"no device here is called {name!r}: there are {known}")


def identity(device: Device) -> frozenset[str]:
    """Return what tells a piece of hardware from others; the same for all shares of it."""
    return _names(device) or pieces.of(device) or frozenset({device.share_of or device.id})


def _listed(keys: Iterable[Key]) -> str:
    known = sorted(dict.fromkeys(f"{one} of {name}" for name, one in keys), key=natural_key)
    more = [f"{len(known) - _SHOWN} more"] if len(known) > _SHOWN else []
    return ", ".join([*known[:_SHOWN], *more])


def make(name: str, reason: str, there: Found, now: float, *, every: bool = False) -> Hold:
    """Return a hold of what ``name`` means, and of all parts of it among the devices ``there``.

    HoldError if the name or the reason cannot be used.
    """
    for what, text in (("device", name), ("reason", reason)):
        if not 0 < len(text) <= LONGEST or not text.isprintable():
            raise HoldError(f"the {what} must have 1 to {LONGEST} printable characters, in a line")
    found, by_attribute = find(name, there, every=every)
    chosen = [HeldDevice(plugin, key[0], one) for key, (plugin, one) in found.items()]
    hold = Hold(name, reason, now, chosen, by_attribute)
    parts = [
        HeldDevice(plugin, key[0], one)
        for key, (plugin, one) in there.items()
        if key in found or hold.covers(key[0], one)
    ]
    return replace(hold, devices=parts)


class HoldFile:
    """The file of one plugin's holds, and a copy of it that is as new. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._states = [State(one, _FORM) for one in (path, path.with_name(f"{path.name}.bak"))]

    def load(self) -> tuple[Sequence[Hold], str]:
        """Return the holds, and what is wrong with that, if anything is.

        A file that is damaged is set aside, and what the copy names is held.
        """
        was_there = self.path.exists()
        for number, state in enumerate(self._states):
            found = state.load(_read, None)
            if found is not None:
                return found, f"{self.path} was damaged: its copy is used" if number else ""
        lost = "is damaged, and so is its copy: what was held is not known, and not held"
        return (), f"{self.path} {lost}" if was_there else ""

    def save(self, holds: Collection[Hold]) -> None:
        """Write all holds to the disk; HoldError if that fails, and then the file is as it was."""
        document = {"holds": [_written(one) for one in holds]}
        first, copy = self._states
        if not first.save(document):
            raise HoldError(f"{self.path} cannot be written, so nothing was changed: see the log")
        copy.save(document)


def _written(hold: Hold) -> Mapping[str, Any]:
    """Return a hold for JSON, in which shares, which are alike but for their ids, are one."""
    groups: dict[tuple[Any, ...], tuple[dict[str, Any], list[str]]] = {}
    for plugin, resource, one in hold.devices:
        facts = {key: _plain(value) for key, value in one.attributes.items()}
        entry = {
            "plugin": plugin,
            "resource": resource,
            "share_of": one.share_of,
            "hardware": list(one.hardware or [node.host_path for node in one.nodes]),
            "attributes": facts,
            "capacity": dict(one.capacity),
        }
        group = plugin, resource, one.share_of or one.id, tuple(one.hardware)
        groups.setdefault(group, (entry, []))[1].append(one.id)
    devices = [{**entry, "ids": ids} for entry, ids in groups.values()]
    own = {"name": hold.name, "reason": hold.reason, "since": hold.since}
    return {**own, "by_attribute": hold.by_attribute, "devices": devices}


def _plain(value: Attribute) -> object:
    return {"version": str(value)} if isinstance(value, Version) else value


def _read(document: Mapping[str, Any]) -> Sequence[Hold]:
    holds = [
        Hold(
            str(one["name"]),
            str(one["reason"]),
            float(one["since"]),
            [HeldDevice(*each) for entry in one["devices"] for each in _devices(entry)],
            bool(one["by_attribute"]),
        )
        for one in document["holds"]
    ]
    for one in (each.device for hold in holds for each in hold.devices):
        if problem := device_problem(one):
            raise ValueError(problem)
    return holds


def _devices(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, Device]]:
    facts = {
        key: Version(value["version"]) if isinstance(value, dict) else value
        for key, value in entry["attributes"].items()
    }
    common = Device(
        "",
        resource=str(entry["resource"]),
        share_of=entry["share_of"],
        hardware=tuple(map(str, entry["hardware"])),
        attributes=facts,
        capacity=entry["capacity"],
    )
    for one in entry["ids"]:
        yield str(entry["plugin"]), common.resource, replace(common, id=str(one))


class Holds:
    """What is held now. Thread-safe: it is replaced as a whole, by one thread at a time.

    ``changed`` gets why each present or recorded device is held, by its key.
    """

    def __init__(self, changed: Callable[[Mapping[Key, str]], None]) -> None:
        self._changed = changed
        self.all: Sequence[Hold] = ()
        self._matched: dict[str, Mapping[Key, str]] = {}

    def set(self, holds: Sequence[Hold], there: Found) -> None:
        """Hold exactly ``holds``. ``there`` are all devices that are known now."""
        self.all = holds
        matched: dict[str, dict[Key, str]] = {plugin: {} for plugin, _ in there.values()}
        for key, (plugin, device) in there.items() if holds else ():
            if why := self._why(key[0], device):
                matched[plugin][key] = why
        self._matched = matched
        self._publish()

    def _why(self, resource: str, device: Device) -> str:
        reasons = [one.reason for one in self.all if one.covers(resource, device)]
        return "; ".join(dict.fromkeys(reasons))

    def apply(self, plugin: str, groups: dict[str, dict[str, Device]]) -> None:
        """Find what is held among the devices that ``plugin`` discovered, and add what is missing.

        A plugin does not look at a device that it has let go of, which is no reason to lose it.
        """
        holds = self.all
        if not (holds or self._matched.get(plugin)):
            return
        found = {
            (resource, one.id): why
            for resource, devices in groups.items()
            for one in devices.values()
            if (why := self._why(resource, one))
        }
        there = {identity(groups[name][one]) for name, one in found}
        for hold in holds:
            for owner, resource, device in hold.devices:
                gone = owner == plugin and identity(device) not in there
                if gone and device.id not in (group := groups.setdefault(resource, {})):
                    group[device.id] = replace(device, resource=resource, health=hold.health)
                    found[resource, device.id] = hold.reason
        if found != self._matched.get(plugin):
            self._matched = {**self._matched, plugin: found}
            self._publish()

    def _publish(self) -> None:
        # What a plugin has not discovered yet is known by its id alone.
        held = {
            one.key: hold.reason
            for hold in self.all
            for one in hold.devices
            if one.plugin not in self._matched
        }
        for found in self._matched.values():
            held.update(found)
        self._changed({key: f"{PREFIX}{why}" for key, why in held.items()})
