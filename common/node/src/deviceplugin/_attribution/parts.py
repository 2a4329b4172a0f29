"""What held devices take of the counters of their hardware, and what therefore has no room."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._inventory.published import Resource
from deviceplugin.kit.log import few
from deviceplugin.model import Part
from deviceplugin.model._part import agree

_MANY: Final = 5
"""Most devices that a message names."""
_Parts = dict[Key, Part]


class Room:
    """What is left of hardware beside the devices in ``held``; ``part_of`` says what one takes."""

    def __init__(self, part_of: Callable[[Key], Part | None], held: Iterable[Key] = ()) -> None:
        self._part_of = part_of
        self._taken = self._by_hardware(held)

    def refusals(self, keys: Iterable[Key]) -> Mapping[Key, str]:
        """Return why ``keys`` do not fit together, by one of the devices on each hardware."""
        return {
            min(wanted): why
            for hardware, wanted in self._by_hardware(keys).items()
            if (why := _why_not(wanted, self._taken.get(hardware, {})))
        }

    def why(self, key: Key) -> str:
        """Return why the device alone does not fit; empty if it does, or is held itself."""
        return self.refusals((key,)).get(key, "")

    def _by_hardware(self, keys: Iterable[Key]) -> dict[tuple[str, str], _Parts]:
        found: dict[tuple[str, str], _Parts] = {}
        for key in keys:
            if part := self._part_of(key):
                found.setdefault((key[0], part.of.name), {})[key] = part
        return found


def _why_not(wanted: Mapping[Key, Part], held: Mapping[Key, Part]) -> str:
    others = {key: part for key, part in held.items() if key not in wanted}
    of = next(iter(wanted.values())).of
    amounts = [part.of.amounts for part in wanted.values()]  # equal, if the plugin lists all
    beside = f" beside {few(sorted(key[1] for key in others), _MANY)}" if others else ""
    for name in dict.fromkeys(name for one in amounts for name in one):
        most = min(one[name] for one in amounts if name in one)
        needed = sum(part.consumes.get(name, 0) for part in wanted.values())
        free = most - sum(part.consumes.get(name, 0) for part in others.values())
        if needed > max(free, 0):
            left = f"{max(free, 0)} of {most} are free{beside}"
            return f"without room: {needed} {name} of {of.name} are needed, and {left}"
    groups = [frozenset(part.groups) for part in (*wanted.values(), *others.values())]
    if not agree(groups):
        return f"without room: it has no group in common with the other parts of {of.name}{beside}"
    return ""


class Parts:
    """The parts that devices are. ``resources`` returns those of this process, without a lock.

    What a claim got counts even if the plugin does not list it any more.
    """

    def __init__(self, resources: Callable[[], Mapping[str, Resource]]) -> None:
        self._resources = resources
        self._claimed: Mapping[Key, Part] = {}

    def has_claimed(self, resource: str) -> bool:
        """Return whether claims got parts of ``resource``, which may have none any more."""
        return any(name == resource for name, _ in self._claimed)

    def keys(self, resource: str) -> Sequence[Key]:
        """Return the devices of ``resource``."""
        found = self._resources().get(resource)
        return [(resource, one) for one in found.devices] if found is not None else []

    def of(self, key: Key) -> Part | None:
        found = self._resources().get(key[0])
        device = found.devices.get(key[1]) if found is not None else None
        return (device.part if device is not None else None) or self._claimed.get(key)

    def room(self, held: Iterable[Key]) -> Room:
        """Return what is left beside ``held``."""
        return Room(self.of, held)

    def claimed(self, parts: Mapping[Key, Part]) -> None:
        """Record what claims got, by their records."""
        self._claimed = {**self._claimed, **parts}

    def keep(self, keys: Collection[Key]) -> None:
        """Forget what claims got, but for ``keys``."""
        if self._claimed:
            self._claimed = {key: part for key, part in self._claimed.items() if key in keys}
