"""The command ``device-plugins``, and making its plugins so that a fault concerns no other."""

import argparse
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import takewhile
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Final, NoReturn

from typing_extensions import override

from deviceplugin._app import command
from deviceplugin._app.exit_status import INTERRUPTED, USAGE, complain
from deviceplugin._config import loading
from deviceplugin._config.documents.places import Place
from deviceplugin._config.settings import Settings
from deviceplugin._discovery.plugin_check import check_plugins
from deviceplugin._platform import hooks
from deviceplugin._platform.backoff import Backoff
from deviceplugin._platform.hooks import Hooks
from deviceplugin.errors import ConfigError, DevicePluginError, DiscoveryError
from deviceplugin.model import Device
from deviceplugin.plugin import Plugin
from deviceplugin.tools.agent import _sections
from deviceplugin.tools.agent._sections import (
    Refused,
    attribute,
    named_in,
    settings_of,
    with_common,
)

log = logging.getLogger(__name__)

_LONGEST_MAKE: Final = 5.0
"""Most seconds for a plugin's constructor. Meanwhile the process notices no signal."""
_AGAIN: Final = (30.0, 300.0)
"""Least seconds until a constructor that has failed is called again: at first, and in the end."""
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


class Unusable(Plugin):
    """Stands for a plugin that could not be made. It has no devices, and says why."""

    def __init__(self, reason: str, retry: Callable[[], object]) -> None:
        self.reason = reason
        self._retry = retry

    @override
    def discover(self) -> Iterable[Device]:
        self._retry()
        raise DiscoveryError(self.reason)


@dataclass(eq=False, repr=False)
class Maker:
    """Makes the plugin ``name``: at the start, and after each change of its settings.

    ``make`` is the plugin's own. If that fails at the start, the plugin has no devices until it
    succeeds: after a change of the settings, or once what it lacked is there. Later, the plugin
    continues as it was.
    """

    name: str
    make: Callable[[Any], Any]
    _: KW_ONLY
    clock: Callable[[], float] = monotonic
    patience: float = _LONGEST_MAKE

    def __post_init__(self) -> None:
        self._hooks = hooks.Hooks()
        self._plugin: Plugin | None = None
        self._made_of: Settings | None = None
        self._reported = ""
        self._backoff = Backoff(*_AGAIN)
        self._retry_at = inf
        self.ask_for_reload: Callable[[], object] = lambda: None
        """Has all plugins made again; the command sets it."""

    def __call__(self, settings: Settings) -> Plugin:
        """Return the plugin for ``settings``; the same object if nothing has changed for it."""
        section = getattr(settings, attribute(self.name))
        self._retry_at = inf
        try:
            if isinstance(section, Refused):
                raise ConfigError(section.reason)
            wanted = with_common(section, settings)
            if self._plugin is None or wanted != self._made_of:
                self._plugin, self._made_of = self._made(wanted), wanted
            self._reported = ""
        except DevicePluginError as error:
            return self._instead(str(error))
        return self._plugin

    def _made(self, settings: Settings) -> Plugin:
        try:
            made = self._hooks.call("make", self.make, settings, timeout=self.patience)
            check_plugins([made])
        except DevicePluginError:
            self._retry_at = self.clock() + self._backoff.next_wait()
            raise
        self._backoff.reset()
        plugin: Plugin = made
        return plugin

    def _instead(self, reason: str) -> Plugin:
        if self._plugin is None:
            # Its class has the plugin's name, for logs and metrics.
            stand_in: type[Unusable] = type(self.name, (Unusable,), {})
            return stand_in(reason, self._retry)
        if reason != self._reported:
            log.error("invalid section ignored", extra={"plugin": self.name, "error": reason})
        self._reported = reason
        return self._plugin

    def _retry(self) -> None:
        """Have the plugin made again, if the last attempt is long enough ago."""
        if self.clock() >= self._retry_at:
            self._retry_at = inf
            self.ask_for_reload()


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run several plugins in this process, and exit as a plugin does."""
    words = sys.argv[1:] if argv is None else argv
    named = list(takewhile(lambda word: not word.startswith("-"), words))
    rest = words[len(named) :]
    try:
        names = named or _named_by_file(rest)
        if not names:
            raise SystemExit(_explain(words))
        _sections.check(names)
        parts = {name: _part(name) for name in names}
    except ConfigError as error:
        complain(_NAME, error)
        raise SystemExit(USAGE) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    settings = settings_of(
        {name: settings for name, (_, settings) in parts.items()},
        {*_sections.names()} - {*names},
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
    """Return the plugins that have a section in the file; none if help is wanted, or no file is."""
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
    return named_in(file or _FILE, _sections.names())


def _explain(words: Sequence[str]) -> int:
    """Print the usage, and return the exit status."""
    text = _USAGE.format(installed=", ".join(_sections.names()) or "none")
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


def _refuse(reason: str, _settings: object) -> NoReturn:
    raise ConfigError(reason)


def _part(name: str) -> tuple[Maker, type[Settings]]:
    """Return what makes a plugin, and the class of its settings."""
    try:
        found = Hooks().call("import", _sections.hosted, name, timeout=_PATIENCE)
    except DevicePluginError as error:
        return Maker(name, partial(_refuse, str(error))), _Unread
    return Maker(name, found.make), found.settings
