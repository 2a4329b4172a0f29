"""The gopher plugin: the files of a directory are devices."""

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit.hosting import Hosted
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GopherSettings(dp.Settings):
    """The settings of the gopher plugin."""

    directory: Path = Path("/etc/gophers")
    """Directory whose files are the devices. It need not exist yet."""
    resource: str = "example.com/gopher"
    """Resource name to advertise them under."""
    variable: str = "Gopher"
    """Environment variable with the names of a container's gophers, separated by commas."""


class GopherPlugin(dp.Plugin):
    """Offer the files of a directory as devices: a node with three files has three gophers."""

    def __init__(self, settings: GopherSettings | None = None) -> None:
        settings = settings or GopherSettings()
        if not settings.variable or {"=", "\0"} & set(settings.variable):
            raise dp.ConfigError(f"variable {settings.variable!r} cannot be the name of a variable")
        self._directory = settings.directory
        self._variable = settings.variable
        self._problems = Problems(log)
        self.resource = settings.resource
        self.watch_paths = (settings.directory,)

    @override
    def discover(self) -> Iterable[dp.Device]:
        names = self._names()
        odd = [f"{name}: its name has a comma" for name in sorted(names) if "," in name]
        self._problems.say_all("file skipped", odd)
        return [dp.Device(name) for name in names if "," not in name]

    @override
    def allocate(self, devices: Sequence[dp.Device]) -> dp.Allocation:
        names = ",".join(device.id for device in devices)
        return super().allocate(devices) + dp.Allocation(envs={self._variable: names})

    @override
    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> Iterable[dp.Device]:
        return available[:size]

    @override
    def pre_start(self, devices: Sequence[dp.Device]) -> None:
        present = set(self._names())
        if gone := [device.id for device in devices if device.id not in present]:
            raise dp.AllocationError(f"gone from {self._directory}: {', '.join(gone)}")

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._directory) as entries:
                return [entry.name for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise dp.DiscoveryError(f"{self._directory}: {error.strerror}") from error


def hosted() -> Hosted[GopherSettings]:
    """Return the plugin for ``device-plugins``."""
    return Hosted(GopherPlugin, GopherSettings)


def main() -> NoReturn:
    """Run ``gopher-device-plugin``."""
    dp.main(GopherPlugin, settings=GopherSettings)
