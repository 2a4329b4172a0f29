"""The command of a plugin: what it does for which flags, and its exit status."""

import argparse
import functools
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NoReturn, TypeVar, overload

from deviceplugin._app import exit_status, flags
from deviceplugin._app.reload import reload
from deviceplugin._app.signals import Signals
from deviceplugin._config import environment, loading, names, settings_check
from deviceplugin._config.settings import Settings, dump
from deviceplugin._discovery.plugin_check import check_plugins
from deviceplugin._telemetry import log as _log
from deviceplugin.errors import ConfigError
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)

_RELOAD_REST: Final = 0.1
"""Seconds of rest between reloads."""


@overload
def main(*plugins: Callable[[], Plugin], argv: Sequence[str] | None = ...) -> NoReturn: ...
@overload
def main(
    *plugins: Callable[[S], Plugin], settings: type[S], argv: Sequence[str] | None = ...
) -> NoReturn: ...


def main(
    *plugins: Callable[..., Plugin],
    settings: type[Settings] | None = None,
    argv: Sequence[str] | None = None,
) -> NoReturn:
    """Run ``plugins`` as the command of this process, and exit.

    ``plugins`` are classes, or anything else that makes a plugin when it is called: without
    arguments, or with the settings where a ``settings`` class of your own is given. Its fields
    become flags, environment variables and keys of the configuration file. SIGTERM and SIGINT
    stop; SIGHUP reads the settings again and makes the plugins anew.

    Exit status: 0 after a stop, 2 for a configuration error, 1 for anything else.
    """
    command = _Command(plugins, settings)
    try:
        status = command.run(sys.argv[1:] if argv is None else argv)
    except ConfigError as error:
        exit_status.complain(command.name, error)
        status = exit_status.USAGE
    raise SystemExit(status)


class _Command:
    def __init__(
        self, makers: Sequence[Callable[..., Plugin]], settings: type[Settings] | None
    ) -> None:
        self._makers = makers
        self._settings = settings or Settings
        self._takes_settings = settings is not None
        stem = Path(sys.argv[0]).stem
        self.name = Path(sys.argv[0]).parent.name if stem == "__main__" else stem

    def run(self, argv: Sequence[str]) -> int:
        _check_makers(self._makers)
        settings_check.check(self._settings)
        options = self._options(argv)
        if options.version:
            sys.stdout.write(f"{self.name} {self._version()}\n")
            return 0
        settings = self._load(options)
        if options.print_config:
            sys.stdout.write(json.dumps(dump(settings), indent=2) + "\n")
            return 0
        _log.configure(settings.log_level, settings.log_format)
        self._warn_of_variables(options)
        if options.once:
            plugins = self._make(settings)
            check_plugins(plugins)
            return preview(plugins, options.output)
        signals = Signals()  # first of all: a signal that nobody takes kills, or is lost to pid 1
        plugins = self._make(settings)
        return self._serve(plugins, settings, options, signals)

    def _warn_of_variables(self, options: argparse.Namespace) -> None:
        for name, near in environment.suspicious_variables(self._settings).items():
            log.warning("variable is no setting", extra={"variable": name, "did_you_mean": near})
        for name, winner in environment.hidden_variables(self._settings, vars(options)).items():
            log.warning("variable has no effect", extra={"variable": name, "hidden_by": winner})

    def _options(self, argv: Sequence[str]) -> argparse.Namespace:
        helping = bool({"-h", "--help"} & set(argv))
        parser = flags.make_parser(self.name, self._makers[0], self._settings, helping=helping)
        return parser.parse_strictly(argv)

    def _version(self) -> str:
        package = (getattr(self._makers[0], "__module__", None) or "deviceplugin").partition(".")[0]
        for name in (package.replace("_", "-"), "deviceplugin"):
            try:
                return version(name)
            except PackageNotFoundError:
                continue
        return "unknown"

    def _load(self, options: argparse.Namespace) -> Settings:
        keys = {names.key(field) for field in fields(self._settings)}
        given = {name: value for name, value in vars(options).items() if name in keys}
        file = options.config or environment.config_file()
        return loading.load(self._settings, flags=given, file=file)

    def _make(self, settings: Settings) -> list[Plugin]:
        return [make(settings) if self._takes_settings else make() for make in self._makers]

    def _serve(
        self,
        plugins: list[Plugin],
        settings: Settings,
        options: argparse.Namespace,
        signals: Signals,
    ) -> int:
        from deviceplugin._app.host import Host  # not needed for --help and --once

        host = Host(plugins, settings)
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
        log.info("started", extra={"version": self._version(), "plugin_dir": settings.plugin_dir})
        try:
            while (number := signals.next()) == signal.SIGHUP:
                reload(host, settings, functools.partial(self._load, options), self._make)
                time.sleep(_RELOAD_REST)
            if number:
                log.info("stopping", extra={"signal": signal.Signals(number).name})
        finally:
            host.stop()
            thread.join()
        return exit_status.FAILED if failed.is_set() else 0


def _check_makers(makers: Sequence[object]) -> None:
    """Raise ConfigError unless ``makers`` are what ``main`` takes."""
    if not makers:
        raise ConfigError("main() needs at least one plugin")
    for maker in makers:
        if isinstance(maker, Plugin):
            name = type(maker).__name__
            raise ConfigError(f"main() takes the class {name}, which it calls, not {name}()")
        if not callable(maker):
            raise ConfigError(f"main() takes classes of plugins, not {maker!r}")


def preview(plugins: Sequence[Plugin], output: str) -> int:
    from deviceplugin._app import preview

    return preview.show(plugins, output)
