"""The command line of a plugin: what it does for which flags, and its exit status."""

import argparse
import functools
import gc
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NoReturn,
    Protocol,
    TypeVar,
    overload,
    runtime_checkable,
)

from deviceplugin._app import exit_status, flags, makers, node_labels
from deviceplugin._app.reload import FileChanges, reload
from deviceplugin._app.signals import Signals, end_by
from deviceplugin._config import loading, settings_class, variables
from deviceplugin._config.node_choice import NodeLabels
from deviceplugin._config.settings import Settings, dump, paths
from deviceplugin._config.settings import files as settings_files
from deviceplugin._discovery.plugin_check import check_plugins
from deviceplugin._platform import late_modules, open_files
from deviceplugin._platform import log_lines as _log
from deviceplugin.errors import ConfigError
from deviceplugin.kit.log import Problems
from deviceplugin.plugin import Plugin

if TYPE_CHECKING:
    from deviceplugin._app.host import Host

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)

_RELOAD_REST: Final = 0.1
"""Least seconds between reloads."""

Command = Callable[[Sequence[str]], int]
"""A further command: it gets the arguments after its name, and returns its exit status."""


@runtime_checkable
class Retrying(Protocol):
    """A maker that is to be called again if it has failed. A plugin that stands in may say when."""

    ask_for_reload: Callable[[], object]
    """Has the settings loaded and all makers called again. It is set before the first call."""


@overload
def main(
    *plugins: Callable[[], Plugin],
    commands: Mapping[str, Command] = ...,
    default_config: Path | None = ...,
    description: str = ...,
    argv: Sequence[str] | None = ...,
) -> NoReturn: ...
@overload
def main(
    *plugins: Callable[[S], Plugin],
    settings: type[S],
    commands: Mapping[str, Command] = ...,
    default_config: Path | None = ...,
    description: str = ...,
    argv: Sequence[str] | None = ...,
) -> NoReturn: ...
def main(
    *plugins: Callable[..., Plugin],
    settings: type[Settings] | None = None,
    commands: Mapping[str, Command] | None = None,
    default_config: Path | None = None,
    description: str = "",
    argv: Sequence[str] | None = None,
) -> NoReturn:
    """Run ``plugins`` as the command of this process, and exit.

    ``plugins`` are classes, or other callables that return a plugin. They are called without
    arguments, or with the settings if you give your own ``settings`` class. Its fields become
    flags, environment variables and keys of the configuration file. SIGTERM and SIGINT stop the
    process. SIGHUP makes it read the settings again and create new plugins; so does a change of the
    configuration file (see the setting ``reload``).

    ``commands`` are further commands, such as ``ctl``: functions that get the arguments after the
    name and return an exit status. The first line of a function's docstring is its help.
    ``default_config`` is read if it exists and no other file is named. ``--help`` begins with
    ``description``, which is by default the first paragraph of the plugin's docstring.

    Exit status: 0 after a stop, 2 for a configuration error, 1 for anything else.
    """
    late_modules.install()
    command = _Command(plugins, settings, commands or {}, default_config, description)
    try:
        status = command.run(sys.argv[1:] if argv is None else argv)
    except ConfigError as error:
        exit_status.complain(command.name, error)
        status = exit_status.USAGE
    except KeyboardInterrupt:  # before it serves, or in another command
        end_by(signal.SIGINT)
    raise SystemExit(status)


class _Command:
    def __init__(
        self,
        given: Sequence[Callable[..., Plugin]],
        settings: type[Settings] | None,
        commands: Mapping[str, Command],
        default_config: Path | None,
        description: str,
    ) -> None:
        self._makers = given
        self._commands = commands
        self._default_config = default_config
        self._description = description
        self._changes = FileChanges()
        self._labels = NodeLabels()
        self._settings = settings or Settings
        self._takes_settings = settings is not None
        stem = Path(sys.argv[0]).stem
        self.name = Path(sys.argv[0]).parent.name if stem == "__main__" else stem

    def run(self, argv: Sequence[str]) -> int:
        makers.check(self._makers, takes_settings=self._takes_settings)
        settings_class.check(self._settings)
        if argv and argv[0] in self._commands:
            self.name = f"{self.name} {argv[0]}"
            return self._commands[argv[0]](argv[1:])
        options = self._options(argv)
        if options.version:
            sys.stdout.write(f"{self.name} {makers.version_of(self._makers[0])}\n")
            return 0
        serves = not (options.print_config or options.once)
        missing = node_labels.missing(self._settings, self._given(options)) if serves else None
        settings = self._load(options)
        if options.print_config:
            exit_status.complain(self.name, "\n".join(self._changes.fixed(paths(settings))))
            sys.stdout.write(json.dumps(dump(settings), indent=2) + "\n")
            return 0
        _log.configure(settings.log_level, settings.log_format)
        self._warn_of_variables(options)
        if missing:
            log.warning("node labels missing", extra={"file": str(missing)})
        if options.once:
            from deviceplugin._app.preview import show  # a plugin that serves does not need it

            plugins = self._make(settings)
            check_plugins(plugins)
            return show(plugins, options.output, settings)
        open_files.raise_limit()
        signals = Signals()  # first, because an unhandled signal kills, or is lost for pid 1
        for maker in self._makers:
            if isinstance(maker, Retrying):
                maker.ask_for_reload = signals.ask_for_reload
        plugins = self._make(settings)
        return self._serve(plugins, settings, options, signals)

    def _warn_of_variables(self, options: argparse.Namespace) -> None:
        for name, near in variables.suspicious_variables(self._settings).items():
            log.warning(
                "unknown environment variable ignored",
                extra={"variable": name, "did_you_mean": near},
            )
        for name, winner in variables.hidden_variables(self._settings, vars(options)).items():
            log.warning(
                "environment variable overridden",
                extra={"variable": name, "overridden_by": winner},
            )

    def _options(self, argv: Sequence[str]) -> argparse.Namespace:
        helping = bool({"-h", "--help"} & set(argv))
        parser = flags.make_parser(
            self.name,
            self._description or makers.paragraph(self._makers[0]),
            self._settings,
            self._commands,
            self._default_config,
            helping=helping,
        )
        return flags.parse_strictly(parser, argv, self._commands)

    def _given(self, options: argparse.Namespace) -> Mapping[str, Any]:
        keys = {loading.key(field) for field in fields(self._settings)}
        return {name: value for name, value in vars(options).items() if name in keys}

    def _load(self, options: argparse.Namespace) -> Settings:
        """Return the current settings; record the content of files before they are read."""
        given = self._given(options)
        file = options.config or loading.config_file()
        other = None if file else self._default_config
        labels = loading.before_file(self._settings, "node_labels_file", flags=given)
        self._changes.note([path for path in (file, other, labels) if path])
        if other and other.exists():
            file = other
        lenient = not options.print_config
        settings = loading.load(
            self._settings, flags=given, file=file, labels=self._labels, lenient=lenient
        )
        self._changes.add(settings_files(settings))
        return settings

    def _make(self, settings: Settings) -> list[Plugin]:
        return [make(settings) if self._takes_settings else make() for make in self._makers]

    def _serve(
        self,
        plugins: list[Plugin],
        settings: Settings,
        options: argparse.Namespace,
        signals: Signals,
    ) -> int:
        host = _make_host(plugins, settings)
        failed = threading.Event()

        def run() -> None:
            try:
                host.run()
            except BaseException:  # logged by the host
                failed.set()
            finally:
                signals.end()

        thread = threading.Thread(target=run, name="host")
        thread.start()
        log.info(
            "started",
            extra={
                "version": makers.version_of(self._makers[0]),
                "plugin_dir": settings.plugin_dir,
            },
        )
        if settings.reload == "on-change":
            self._changes.start(host.watch, signals.ask_for_reload)
        problems = Problems(log)
        try:
            while True:
                host.fixed_files[:] = self._changes.fixed(paths(settings))
                problems.say_all("changes of file not seen", host.fixed_files)
                if (number := signals.next()) != signal.SIGHUP:
                    break
                reload(host, settings, functools.partial(self._load, options), self._make)
                time.sleep(_RELOAD_REST)
            if number:
                log.info("stopping", extra={"signal": signal.Signals(number).name})
        finally:
            self._changes.stop()
            host.stop()
            thread.join()
        return exit_status.FAILED if failed.is_set() else 0


def _make_host(plugins: Sequence[Plugin], settings: Settings) -> "Host":
    """Return the host. What it imports is permanent, so the garbage collector skips it for good."""
    collects = gc.isenabled()
    gc.disable()
    try:
        from deviceplugin._app.host import Host  # not needed for --help and --once

        host = Host(plugins, settings)
        gc.freeze()
    finally:
        if collects:
            gc.enable()
    return host
