"""The gopher plugin: the files of a directory are devices."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from typing_extensions import override

import deviceplugin as dp
from deviceplugin.kit.configuration import RESOURCE_NAME
from deviceplugin.kit.hosting import MOUNTED, Hosted
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GopherSettings(dp.Settings):
    """The settings of the gopher plugin."""

    directory: Path = Path("/etc/gophers")
    """Directory whose files are the devices. It need not exist yet."""
    resource: str = field(default="example.com/gopher", metadata=RESOURCE_NAME)
    """Resource name to advertise them under."""
    variable: str = field(default="Gopher", metadata={"schema": {"pattern": r"^[^=\x00]+$"}})
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
        reasons = self._files()
        odd = [f"{name}: {why}" for name, why in sorted(reasons.items()) if why]
        self._problems.say_all("file skipped", odd)
        return [dp.Device(name) for name, why in reasons.items() if not why]

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
        files = self._files()
        if gone := [device.id for device in devices if files.get(device.id, "gone")]:
            raise dp.AllocationError(f"gone from {self._directory}: {', '.join(gone)}")

    def _files(self) -> Mapping[str, str]:
        """Return why each file of the directory is skipped; an empty string if it is not."""
        try:
            with os.scandir(self._directory) as entries:
                found = [(entry.name, _why_skipped(entry)) for entry in entries]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise dp.DiscoveryError(f"{self._directory}: {error.strerror}") from error
        return {name: why for name, why in found if why is not None}


def _why_skipped(entry: "os.DirEntry[str]") -> str | None:
    """Return why a file is skipped; None if it is not a file, or a link to nothing."""
    try:
        is_file = entry.is_file()
    except OSError as error:  # such as a loop of links: that is the matter of this entry alone
        return error.strerror or str(error)
    if not is_file:
        return None
    return "its name has a comma" if "," in entry.name else ""


def hosted() -> Hosted[GopherSettings]:
    """Return the plugin for ``device-plugins``."""
    return Hosted(
        GopherPlugin,
        GopherSettings,
        lambda settings: [str(GopherPlugin(settings).resource)],
        {"directory": MOUNTED},
    )


def main() -> NoReturn:
    """Run ``gopher-device-plugin``."""
    dp.main(GopherPlugin, settings=GopherSettings)
