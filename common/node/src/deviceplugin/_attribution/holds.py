"""Devices that an operator holds: which they are, by their hardware."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Final, NamedTuple

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._inventory.validation import natural_key
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit import pieces
from deviceplugin.model import Device, Health

PREFIX: Final = "held: "
"""What the reason of a device begins with that is unhealthy for nothing but a hold."""
MOST: Final = 64
"""Holds at a time."""
LONGEST: Final = 256
"""Characters of a reason, and of a name."""
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


class Holds:
    """What is held now. Thread-safe.

    ``changed`` gets why each present or recorded device is held, by its key.
    """

    def __init__(self, changed: Callable[[Mapping[Key, str]], None]) -> None:
        self._changed = changed
        self._lock = Lock()
        """Held during all changes, so that none is of holds that are not in force any more."""
        self.all: Sequence[Hold] = ()
        self._matched: dict[str, Mapping[Key, str]] = {}

    def set(self, holds: Sequence[Hold], there: Found) -> None:
        """Hold exactly ``holds``. ``there`` are all devices that are known now."""
        with self._lock:
            self._set(holds, there)

    def _set(self, holds: Sequence[Hold], there: Found) -> None:
        self.all = holds
        matched: dict[str, dict[Key, str]] = {plugin: {} for plugin, _ in there.values()}
        for key, (plugin, device) in there.items() if holds else ():
            if why := self._why(key[0], device):
                matched[plugin][key] = why
        self._matched = {**matched}
        self._publish()

    def _why(self, resource: str, device: Device) -> str:
        reasons = [one.reason for one in self.all if one.covers(resource, device)]
        return "; ".join(dict.fromkeys(reasons))

    def apply(self, plugin: str, groups: dict[str, dict[str, Device]]) -> None:
        """Find what is held among the devices that ``plugin`` discovered, and add what is missing.

        A plugin does not look at a device that it has let go of, which is no reason to lose it.
        """
        if not (self.all or self._matched.get(plugin)):
            return
        with self._lock:
            self._apply(plugin, groups, self.all)

    def _apply(
        self, plugin: str, groups: dict[str, dict[str, Device]], holds: Sequence[Hold]
    ) -> None:
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
