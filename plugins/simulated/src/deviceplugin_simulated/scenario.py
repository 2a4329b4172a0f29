"""Everything that a configuration says: which devices there are, and what happens to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import deviceplugin as dp
from deviceplugin_simulated.classic import classic_pattern
from deviceplugin_simulated.life import Event, Life
from deviceplugin_simulated.process import Process
from deviceplugin_simulated.profiles import PROFILES
from deviceplugin_simulated.reading import Reader, nearest, text, whole
from deviceplugin_simulated.resources import read_resources
from deviceplugin_simulated.script import read_process, read_timeline
from deviceplugin_simulated.settings import SimulatedSettings

_KEYS: Final = ("profile", "resources", "timeline", "random", "seed")
_MAX_SEED: Final = 2**63


@dataclass(frozen=True)
class Scenario:
    """Devices and their fate."""

    devices: Sequence[dp.Device]
    timeline: Sequence[Event] = ()
    process: Process | None = None
    seed: int = 0

    @property
    def ids(self) -> list[str]:
        """The devices' ids, in their order."""
        return [device.id for device in self.devices]

    def life(self) -> Life:
        """Return a new life with this script. Each is like any other."""
        at_random = self.process.events(self.ids, self.seed) if self.process else ()
        return Life.of(self.timeline, at_random)


def load(settings: SimulatedSettings) -> Scenario:
    """Return what ``settings``, and the file that they name, say.

    Raises:
        ConfigError: All that is wrong, a line each, with file, key and value.
    """
    given = settings.read_file(settings.devices) if settings.devices else {}
    problems: list[str] = []
    scenario = _read(settings, given, problems)
    if problems:
        raise dp.ConfigError("\n".join(problems))
    return scenario


def _read(settings: SimulatedSettings, given: Mapping[str, Any], problems: list[str]) -> Scenario:
    reader = Reader(given, f"{settings.devices}:", problems, _KEYS)
    seed = reader.take("seed", whole(0, _MAX_SEED), 0)
    devices = _devices(settings, reader)
    ids = [device.id for device in devices]
    return Scenario(
        devices,
        read_timeline(reader, ids),
        read_process(reader),
        seed if settings.seed is None else settings.seed,
    )


def _devices(settings: SimulatedSettings, reader: Reader) -> list[dp.Device]:
    """Return the devices of profile and file; where neither has any, the classic ones."""
    name = settings.profile or reader.take("profile", text, "")
    if name and name not in PROFILES:
        reader.problems.append(f"profile {name!r} is not known: {nearest(name, PROFILES)}")
    if not name and "resources" not in reader:
        return list(classic_pattern(settings).devices())
    resources = reader.inner("resources")
    both = {**PROFILES.get(name, {}), **dict(resources.each())}
    return read_resources(Reader(both, resources.where, reader.problems), settings.node)
