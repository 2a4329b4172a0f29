"""The command ``device-plugins``."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NoReturn

from typing_extensions import override

from deviceplugin._app import command
from deviceplugin._app.exit_status import INTERRUPTED, USAGE, complain
from deviceplugin._config import loading
from deviceplugin._config.documents.places import Place
from deviceplugin._config.settings import Settings
from deviceplugin._platform.hooks import Hooks
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.plugin import Plugin
from deviceplugin.tools.agent import _installed
from deviceplugin.tools.agent._maker import Maker
from deviceplugin.tools.agent._sections import named_in, settings_of

_NAME: Final = "device-plugins"
_PATIENCE: Final = 20.0
"""Most seconds for the import of a plugin."""
_FILE: Final = Path("/etc/device-plugins/config.yaml")
_USAGE: Final = f"""\
usage: {_NAME} [PLUGIN...] [OPTION | SETTING ...]

Run several plugins in one process, which costs less memory than a process for each. If a library
that one of them uses crashes, all of them are gone until the process has restarted.

A section of the configuration file has the settings of a plugin by its name. A section that is
wrong keeps only its own plugin from running. Without PLUGIN, the plugins are those that have a
section.

installed plugins: {{installed}}

examples:
  {_NAME} generic gpu --config config.yaml         run two plugins
  {_NAME} generic gpu --config config.yaml --once  show their devices, and exit
  {_NAME} generic gpu --help                       list all settings
  {_NAME} --config config.yaml                     run the plugins that have a section

config.yaml:
  log-level: info        # of all plugins
  generic:
    devices:
      - name: serial
        groups: [{{{{paths: [{{{{path: /dev/ttyUSB*}}}}]}}}}]
  gpu:
    mig-strategy: mixed
"""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run several plugins in this process, and exit as a plugin does."""
    words = sys.argv[1:] if argv is None else argv
    named = list(takewhile(lambda word: not word.startswith("-"), words))
    rest = words[len(named) :]
    try:
        names = named or _named_by_file(rest)
        if not names:
            raise SystemExit(_explain(words))
        _installed.check(names)
        parts = {name: _part(name) for name in names}
    except ConfigError as error:
        complain(_NAME, error)
        raise SystemExit(USAGE) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    settings = settings_of(
        {name: settings for name, (_, settings) in parts.items()},
        {*_installed.names()} - {*names},
        by_file=not named,
    )
    command.main(
        *(maker for maker, _ in parts.values()),
        settings=settings,
        default_config=_FILE,
        description=f"Run {', '.join(names)} in one process.",
        argv=rest,
    )


def _named_by_file(words: Sequence[str]) -> list[str]:
    """Return the plugins that have a section in the file; none if help is wanted, or no file is.

    Raises:
        ConfigError: The file does not say so.
    """
    if {"-h", "--help"} & {*words}:
        return []
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", type=Path)
    try:
        file = parser.parse_known_args(words)[0].config or loading.config_file()
    except argparse.ArgumentError:  # such as a --config without a file
        return []
    if file is None and not _FILE.exists():
        return []
    return named_in(file or _FILE, _installed.names())


def _explain(words: Sequence[str]) -> int:
    """Print the usage, and return the exit status."""
    text = _USAGE.format(installed=", ".join(_installed.names()) or "none")
    if {"-h", "--help"} & {*words}:
        sys.stdout.write(text)
        return 0
    sys.stderr.write(text)
    return USAGE


class _Unread(Settings):
    """The section of a plugin that cannot be imported: nobody knows what is valid there."""

    @classmethod
    @override
    def from_file(cls, root: Place) -> Mapping[str, object]:
        return {}


def _part(name: str) -> tuple[Maker, type[Settings]]:
    """Return what makes a plugin, and the class of its settings."""
    try:
        found = Hooks().call("import", _installed.hosted, name, timeout=_PATIENCE)
    except DevicePluginError as error:
        reason = str(error)

        def unusable(_settings: Any) -> Plugin:
            raise ConfigError(reason)

        return Maker(name, unusable), _Unread
    return Maker(name, found.make), found.settings
