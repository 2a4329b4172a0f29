"""The generic plugin: device nodes, mounts and USB, PCI and other devices, by configuration."""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import deviceplugin as dp
from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.hosting import STRICT, Hosted
from deviceplugin_generic.configuration import loading
from deviceplugin_generic.configuration.cautions import cautions, doubts
from deviceplugin_generic.discovery.cache import Cache
from deviceplugin_generic.discovery.health import Checker
from deviceplugin_generic.discovery.tree import Roots
from deviceplugin_generic.plugin import GenericPlugin, GenericSettings, configured

__all__ = ["GenericPlugin", "GenericSettings", "Roots", "main"]

DEFAULT_CONFIG: Final = Path("/etc/generic-device-plugin/config.yaml")
"""The configuration file, if it exists and no other is named."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``generic-device-plugin``, or one of its commands."""
    dp.main(
        partial(GenericPlugin, checker=Checker(), cache=Cache()),
        settings=GenericSettings,
        commands={"check": check, "explain": explain},
        default_config=DEFAULT_CONFIG,
        description="Offer device nodes, mounts and USB, PCI and other devices to pods, as a "
        "configuration file or --device names them.",
        argv=list(loading.translated(sys.argv[1:] if argv is None else argv)),
    )


def hosted() -> Hosted[GenericSettings]:
    """Return the plugin for ``device-plugins``."""
    make = partial(GenericPlugin, checker=Checker(), cache=Cache())
    return Hosted(make, GenericSettings, _resources, STRICT, renamed={"device": "devices"})


def _resources(settings: GenericSettings) -> list[str]:
    names = [entry.name for entry in configured(settings).entries if not entry.problem]
    return [f"{domain}/{name}" for domain in settings.domain.names for name in names]


def check(arguments: Sequence[str]) -> int:
    """Check a configuration file: exit with status 0, or with 2 and a list of all errors."""
    if {"-h", "--help"} & {*arguments}:
        sys.stdout.write(f"{_USAGE}\n{check.__doc__}\n")
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write(_USAGE)
        return 2
    _say(cfg.fixed([Path(arguments[0])]))
    try:
        configuration = configured(GenericSettings.of_file(Path(arguments[0])))
    except dp.ConfigError as error:
        _say(str(error).splitlines())
        return 2
    _say(f"{reason}; skipped" for reason in configuration.left_out)
    more = (doubt for entry in configuration.entries for doubt in doubts(entry))
    _say(f"{arguments[0]}: {caution}" for caution in (*cautions(configuration), *more))
    sys.stdout.write(f"{arguments[0]}: valid\n")
    return 0


def explain(arguments: Sequence[str]) -> int:
    """Print configuration entries for the devices of this machine."""
    from deviceplugin_generic.explanation import command_line  # a plugin on a node never needs it

    return command_line.main(arguments)


_USAGE: Final = "usage: generic-device-plugin check CONFIG\n"


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stderr.write(f"generic-device-plugin: {line}\n")
