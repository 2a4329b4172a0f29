"""What is held now among the devices that were discovered, and what is missing of it."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import NamedTuple

from deviceplugin._attribution.holds import PREFIX, Found, HeldDevice, Hold, Index, identity
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin.model import Device, Health


class _Match(NamedTuple):
    device: Device
    holds: Sequence[Hold]
    is_there: bool = True
    """Whether the last discovery has found it."""

    @property
    def why(self) -> str:
        return PREFIX + "; ".join(dict.fromkeys(one.reason for one in self.holds))


class Holds:
    """What is held now. Thread-safe.

    ``changed`` gets why each present or recorded device is held, by its key.
    """

    def __init__(self, changed: Callable[[Mapping[Key, str]], None]) -> None:
        self._changed = changed
        self._lock = Lock()
        """Held during all changes, so that none is of holds that are not in force any more."""
        self.all: Sequence[Hold] = ()
        self._adds = True
        self._matched: dict[str, Mapping[Key, _Match]] = {}
        self.discovered: Counter[str] = Counter()
        """How often each plugin has discovered its devices while something was held."""

    def set(self, holds: Sequence[Hold], there: Found, *, adds: bool = True) -> None:
        """Hold exactly ``holds``. ``there`` are all devices that are known now.

        Without ``adds``, another process lists what is not discovered.
        """
        with self._lock:
            self.all, self._adds = holds, adds
            matched: dict[str, dict[Key, _Match]] = {plugin: {} for plugin, _ in there.values()}
            index = Index(holds)
            for key, (plugin, device) in there.items() if holds else ():
                if found := index.holds(key[0], device):
                    matched[plugin][key] = _Match(device, found)
            self._matched = {**matched}
            self._publish()

    def apply(self, plugin: str, groups: dict[str, dict[str, Device]]) -> None:
        """Find what is held among the devices that ``plugin`` discovered, and add what is missing.

        A plugin does not look at a device that it has let go of, which is no reason to lose it.
        """
        if not (self.all or self._matched.get(plugin)):
            return
        with self._lock:
            index, before = Index(self.all), self._matched.get(plugin, {})
            found = {
                (resource, one.id): _Match(one, holds)
                for resource, devices in groups.items()
                for one in devices.values()
                if (holds := index.holds(resource, one))
            }
            if self._adds:
                found |= self._missing(plugin, groups, found)
            self._matched = {**self._matched, plugin: found}
            self.discovered[plugin] += 1
            if found != before:
                self._publish()

    def _missing(
        self, plugin: str, groups: dict[str, dict[str, Device]], found: Mapping[Key, _Match]
    ) -> Mapping[Key, _Match]:
        """Add to ``groups`` what is held of ``plugin`` and was not found, as it was seen last."""
        there = {identity(name, one.device) for (name, _), one in found.items()}
        before, added = self._matched.get(plugin, {}), {}
        for hold in self.all:
            for owner, resource, device in hold.devices:
                thing, key = identity(resource, device), (resource, device.id)
                if owner != plugin or thing in there or device.id in groups.get(resource, ()):
                    continue
                last = before[key].device if key in before else device
                one = last if identity(resource, last) == thing else device
                added[key] = match = _Match(replace(one, resource=resource), [hold], is_there=False)
                health = Health.unhealthy(match.why)
                groups.setdefault(resource, {})[one.id] = replace(match.device, health=health)
        return added

    def members(self, hold: Hold) -> Sequence[HeldDevice]:
        """Return the devices of a hold: those at that time, and its parts, as they were seen last.

        So a plugin lets go of a device where it is now, and of nothing else that took its place.
        """
        found = {one.key: one for one in hold.devices}
        for plugin, matched in self._matched.items():
            for key, one in matched.items():
                if any(each.name == hold.name for each in one.holds):
                    found[key] = HeldDevice(plugin, key[0], one.device)
        return list(found.values())

    def problem(self, hold: Hold) -> str:
        """Return why a device of ``hold`` is not as it should be before its release, if one is.

        It must have been found under its id, as the same hardware, and be healthy.
        """
        for plugin, resource, device in hold.devices:
            found = self._matched.get(plugin, {}).get((resource, device.id))
            if found is None or not found.is_there:
                return f"{device.id} was not found by the hardware that it had"
            if identity(resource, found.device) != identity(resource, device):
                return f"{device.id} came back as other hardware"
            if not found.device.health:
                return f"{device.id} is unhealthy: {found.device.health.reason}"
        return ""

    def others(self, hold: Hold, names: Collection[str] = ()) -> Sequence[Hold]:
        """Return what else is held of the hardware of ``hold``, or of that with ``names``."""
        own, things = {part for one in hold.things for part in one}, set(names)
        return [
            one
            for one in self.all
            if one.name != hold.name and any(part & (own | things) for part in one.things)
        ]

    def _publish(self) -> None:
        # What a plugin has not discovered yet is known by its id alone.
        held = {
            one.key: f"{PREFIX}{hold.reason}"
            for hold in self.all
            for one in hold.devices
            if one.plugin not in self._matched
        }
        for found in self._matched.values():
            held.update((key, one.why) for key, one in found.items())
        self._changed(held)
