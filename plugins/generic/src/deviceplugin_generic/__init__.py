"""Advertise device nodes, mounts and USB, PCI and other devices, by configuration."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import deviceplugin as dp
from deviceplugin_generic import peers
from deviceplugin_generic.plugin import GenericPlugin, GenericSettings, configured
from deviceplugin_generic.sysfs import Roots

__all__ = ["GenericPlugin", "GenericSettings", "Roots", "main"]

DEFAULT_CONFIG: Final = Path("/etc/generic-device-plugin/config.yaml")
"""Read if it exists and no other file is named."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``generic-device-plugin``, or its ``check``."""
    arguments = list(peers.translated(sys.argv[1:] if argv is None else argv))
    if arguments[:1] == ["check"]:
        _check(arguments[1:])
    named = any(word.partition("=")[0] == "--config" for word in arguments)
    if not (named or "DP_CONFIG" in os.environ) and DEFAULT_CONFIG.exists():
        arguments.append(f"--config={DEFAULT_CONFIG}")
    dp.main(GenericPlugin, settings=GenericSettings, argv=arguments)


def _check(arguments: Sequence[str]) -> NoReturn:
    """Judge a configuration file by itself: exit status 0, or 2 with all that is wrong."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: generic-device-plugin check CONFIG\n")
        raise SystemExit(2)
    try:
        configuration = configured(GenericSettings.of_file(Path(arguments[0])))
    except dp.ConfigError as error:
        _say(str(error).splitlines())
        raise SystemExit(2) from error
    _say(f"{reason}; left out" for reason in configuration.left_out)
    sys.stdout.write(f"{arguments[0]}: valid\n")
    raise SystemExit(0)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stderr.write(f"generic-device-plugin: {line}\n")
