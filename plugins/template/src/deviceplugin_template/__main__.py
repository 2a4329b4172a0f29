"""Advertise USB serial adapters as example.com/serial."""

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import deviceplugin as dp

from . import SerialPlugin


@dataclass(frozen=True, kw_only=True)
class Settings(dp.Settings):
    """Flags, environment variables and keys of a file besides those of every plugin."""

    directory: Path = Path("/dev")
    """Directory with the device nodes."""


def main() -> NoReturn:
    """Run the plugin."""
    dp.main(lambda settings: SerialPlugin(settings.directory), settings=Settings)


if __name__ == "__main__":
    main()
