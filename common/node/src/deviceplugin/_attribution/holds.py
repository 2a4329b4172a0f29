"""Devices that an operator holds: which they are, by their hardware."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, NamedTuple

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._inventory.validation import natural_key
from deviceplugin.errors import DevicePluginError
from deviceplugin.kit import pieces
from deviceplugin.model import Device

PREFIX: Final = "held: "
"""What the reason of a device begins with that is unhealthy for nothing but a hold."""
MOST: Final = 64
"""Holds at a time."""
LONGEST: Final = 256
"""Characters of a reason, and of a name."""
_SHOWN: Final = 8

Then = Literal["", "reset", "release"]
Found = Mapping[Key, tuple[str, Device]]
"""Devices, each with the name of its plugin."""


class HoldError(DevicePluginError, ValueError):
    """A hold cannot be made or ended as it was asked for."""


class HeldDevice(NamedTuple):
    """A device as it was when it was held."""

    plugin: str
    resource: str
    device: Device

    @property
    def key(self) -> Key:
        return self.resource, self.device.id


@dataclass(frozen=True, eq=False)
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
    then: Then = ""
    """What the plugin does once it has let go: nothing, a reset, or also a check and a release."""
    tries: int = 0
    """Resets that were begun, counted before each, so that a crash in one counts too."""
    was_reset: bool = False
    """Whether the last reset has succeeded."""

    @cached_property
    def keys(self) -> frozenset[Key]:
        return frozenset(one.key for one in self.devices)

    @cached_property
    def things(self) -> frozenset[frozenset[str]]:
        """The pieces of hardware: there can be very many shares of one."""
        return frozenset(identity(one.resource, one.device) for one in self.devices)

    def concerns(self, name: str) -> bool:
        return any(rule(one.device, name) for one in self.devices for rule in (_is_called, _has))


def check(hold: Hold) -> None:
    """Raise HoldError unless a name and a reason can be shown."""
    for what, text in (("device", hold.name), ("reason", hold.reason)):
        if not 0 < len(text) <= LONGEST or not text.isprintable():
            raise HoldError(f"the {what} must have 1 to {LONGEST} printable characters, in a line")


def _names(device: Device) -> frozenset[str]:
    return frozenset(one for one in device.hardware if not one.startswith("/"))


def _is_called(device: Device, name: str) -> bool:
    return name in {device.id, device.share_of}


def _has(device: Device, name: str) -> bool:
    nodes = (node.host_path for node in device.nodes)
    return not {name, pieces.pci(name)}.isdisjoint(device.hardware) or name in nodes


def _has_fact(device: Device, name: str) -> bool:
    return any(str(value) == name for value in device.attributes.values())


def _find(name: str, there: Found, *, every: bool) -> tuple[Found, bool]:
    """Return the devices that ``name`` means, and whether all that ever have such an attribute.

    It is an id, the name of a piece of hardware, or the value of an attribute, in this order.
    HoldError if there is none, or if they are several things and not ``every`` one is meant.
    """
    for rule in (_is_called, _has, _has_fact):
        found = {key: one for key, one in there.items() if rule(one[1], name)}
        if not found:
            continue
        things = {identity(key[0], one) for key, (_, one) in found.items()}
        if len(things) > 1 and rule is not _has and not every:
            known = _listed(found)
            raise HoldError(f"{name!r} matches {len(things)} devices: {known}: name one, or --all")
        return found, rule is _has_fact and every
    known = _listed(there) or "none"
    raise HoldError(f"no device here is called {name!r}: there are {known}")


def identity(resource: str, device: Device) -> frozenset[str]:
    """Return what tells a piece of hardware from others; the same for all shares of it."""
    own = f"{resource} {device.share_of or device.id}"
    return _names(device) or pieces.of(device) or frozenset({own})


def _listed(keys: Iterable[Key]) -> str:
    known = sorted(dict.fromkeys(f"{one} of {name}" for name, one in keys), key=natural_key)
    more = [f"{len(known) - _SHOWN} more"] if len(known) > _SHOWN else []
    return ", ".join([*known[:_SHOWN], *more])


def make(name: str, reason: str, there: Found, now: float, *, every: bool = False) -> Hold:
    """Return a hold of what ``name`` means, and of all parts of it among the devices ``there``.

    HoldError if the name or the reason cannot be used.
    """
    check(Hold(name, reason, now, ()))
    found, by_attribute = _find(name, there, every=every)
    chosen = [HeldDevice(plugin, key[0], one) for key, (plugin, one) in found.items()]
    hold = Hold(name, reason, now, chosen, by_attribute)
    index = Index([hold])
    parts = [
        HeldDevice(plugin, key[0], one)
        for key, (plugin, one) in there.items()
        if key in found or index.holds(key[0], one)
    ]
    return replace(hold, devices=parts)


class Index:
    """Finds the holds of a device: those of the hardware that it is, or is a part of.

    By names, such as a PCI address, if both have any. Device nodes may be common to several
    devices, so one without names is a part only if it has no other nodes. However many holds and
    devices there are, a device is looked up by the few things that it is known by.
    """

    def __init__(self, holds: Sequence[Hold]) -> None:
        self._holds = holds
        self._marked: dict[object, set[int]] = defaultdict(set)
        self._nodes: dict[str, set[tuple[int, frozenset[str]]]] = defaultdict(set)
        for number, hold in enumerate(holds):
            if hold.by_attribute:
                self._marked["value", hold.name].add(number)
            for one in hold.devices:
                names = _names(one.device)
                for mark in (*names, *_marks(one.resource, one.device, named=bool(names))):
                    self._marked[mark].add(number)
                for piece in (own := pieces.of(one.device) - names):
                    self._nodes[piece].add((number, own))

    def holds(self, resource: str, device: Device) -> Sequence[Hold]:
        found = {one for mark in self._known_by(resource, device) for one in self._marked[mark]}
        if self._nodes and not _names(device) and (own := pieces.of(device)):
            theirs = self._nodes.get(min(own), ())
            found |= {number for number, nodes in theirs if own <= nodes}
        return [self._holds[number] for number in sorted(found)]

    def _known_by(self, resource: str, device: Device) -> Iterator[object]:
        names = _names(device)
        marks: set[object] = {*names, *_marks(resource, device, named=False)}
        marks |= {("value", str(one)) for one in device.attributes.values()}
        if not names:
            marks.update(_marks(resource, device, named=True))
        return (mark for mark in marks if mark in self._marked)


def _marks(resource: str, device: Device, *, named: bool) -> Iterator[object]:
    """Yield what a device is known by apart from names, if one of two has no ``named`` hardware."""
    yield "id", named, resource, device.id
    if device.share_of:
        yield "share", named, resource, device.share_of
