"""The command line of a plugin: flags, signals and exit status."""

import argparse
import json
import logging
import select
import signal
import socket
import sys
import threading
import time
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, overload

from typing_extensions import override

from deviceplugin._app import exit_status
from deviceplugin._config import class_check, environment, loading, names, values
from deviceplugin._config.help_texts import helps
from deviceplugin._config.settings import Settings, dump
from deviceplugin._discovery.found import check_plugins
from deviceplugin._platform import hooks
from deviceplugin._telemetry import log as _log
from deviceplugin.errors import ConfigError, DevicePluginError
from deviceplugin.plugin import Plugin

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A stop before all else."""
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
        class_check.check(self._settings)
        options = self._parser(helping=bool({"-h", "--help"} & set(argv))).parse_strictly(argv)
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
        events = _Events()  # first of all: a signal that nobody takes kills, or is lost to pid 1
        plugins = self._make(settings)
        return self._serve(plugins, settings, options, events)

    def _warn_of_variables(self, options: argparse.Namespace) -> None:
        for name, near in environment.suspicious_variables(self._settings).items():
            log.warning("variable is no setting", extra={"variable": name, "did_you_mean": near})
        for name, winner in environment.hidden_variables(self._settings, vars(options)).items():
            log.warning("variable has no effect", extra={"variable": name, "hidden_by": winner})

    def _parser(self, *, helping: bool) -> "_Parser":
        maker = self._makers[0]
        module = sys.modules.get(getattr(maker, "__module__", None) or "")
        parser = _Parser(
            prog=self.name,
            description=_first_paragraph(getattr(module, "__doc__", None) or maker.__doc__),
            epilog="Each setting is also an environment variable (--log-level is DP_LOG_LEVEL) and "
            "a key of the configuration file (log-level); a flag wins over the environment, and "
            "that over the file. Durations are written as in 30s, 1m30s or 24h.",
            allow_abbrev=False,
        )
        parser.add_argument("--version", action="store_true", help="print the version and exit")
        parser.add_argument(
            "--once",
            action="store_true",
            help="discover, print what would be advertised, and exit: with status 0 if that is at "
            "least one device, 1 if there is none or a discovery fails",
        )
        parser.add_argument(
            "--output", choices=["table", "json"], default="table", help="form of --once's output"
        )
        parser.add_argument(
            "--print-config", action="store_true", help="print all settings as JSON, and exit"
        )
        parser.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            help="settings as TOML, JSON or YAML; also the environment variable DP_CONFIG",
        )
        self._add_settings(parser, helps(self._settings) if helping else {})
        return parser

    def _add_settings(self, parser: argparse.ArgumentParser, texts: Mapping[str, str]) -> None:
        types = typing.get_type_hints(self._settings)
        group = parser.add_argument_group("settings")
        own = [field for field in fields(self._settings) if field.name not in _COMMON]
        common = [field for field in fields(self._settings) if field.name in _COMMON]
        for field in (*own, *common):
            name = names.key(field)
            # A truth may stand without its value: --verbose is --verbose=true.
            options: dict[str, Any] = {}
            if types[field.name] is bool:
                options = {"nargs": "?", "const": "true"}
            group.add_argument(
                *names.flags(field),
                dest=name,
                default=argparse.SUPPRESS,
                action="append" if values.is_own(types[field.name]) else "store",
                metavar=values.metavar(types[field.name]),
                help=f"{texts.get(name, '')}{_notes(field)}".replace("%", "%%"),
                **options,
            )

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
        flags = {name: value for name, value in vars(options).items() if name in keys}
        file = options.config or environment.config_file()
        return loading.load(self._settings, flags=flags, file=file)

    def _make(self, settings: Settings) -> list[Plugin]:
        return [make(settings) if self._takes_settings else make() for make in self._makers]

    def _serve(
        self,
        plugins: list[Plugin],
        settings: Settings,
        options: argparse.Namespace,
        events: "_Events",
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
                events.end()

        thread = threading.Thread(target=run, name="host")
        thread.start()
        log.info("started", extra={"version": self._version(), "plugin_dir": settings.plugin_dir})
        try:
            while (number := events.next()) == signal.SIGHUP:
                self._reload(host, settings, options)
                time.sleep(_RELOAD_REST)
            if number:
                log.info("stopping", extra={"signal": signal.Signals(number).name})
        finally:
            host.stop()
            thread.join()
        return exit_status.FAILED if failed.is_set() else 0

    def _reload(self, host: Any, before: Settings, options: argparse.Namespace) -> None:
        try:
            settings = hooks.call(self._load, options)  # an author's settings class, too
            host.replace(hooks.call(self._make, settings))
        except DevicePluginError as error:
            log.error(  # noqa: TRY400 - the text says it all
                "configuration not taken, going on with the old one", extra={"error": str(error)}
            )
            return
        changed = [
            names.key(field)
            for field in fields(Settings)
            if getattr(settings, field.name) != getattr(before, field.name)
        ]
        if changed:
            log.warning("settings need a restart", extra={"settings": ", ".join(changed)})
        log.info("configuration read again")


class _Events:
    """Signals that have come, and the end of the host. Several of one kind are one.

    A wake-up descriptor ends the wait: of handlers in Python alone, one can come just before the
    wait that it should end, and is then not run before the next signal.
    """

    def __init__(self) -> None:
        self._came: set[int] = set()
        self._ended = False
        self._inbox, self._outbox = socket.socketpair()
        for end in (self._inbox, self._outbox):
            end.settimeout(0)  # as a wake-up descriptor has to be
        signal.set_wakeup_fd(self._outbox.fileno(), warn_on_full_buffer=False)
        for kind in _SIGNALS:
            signal.signal(kind, lambda number, _frame: self._came.add(number))

    def end(self) -> None:
        """Tell of the end."""
        self._ended = True
        with suppress(BlockingIOError):  # then it is readable anyway
            self._outbox.send(b"\0")

    def next(self) -> int:
        """Wait for a signal and return its number, a stop first; 0 at the end."""
        while not (self._came or self._ended):
            select.select([self._inbox], [], [])
            with suppress(BlockingIOError):
                self._inbox.recv(4096)
        for kind in _SIGNALS:
            if kind in self._came:
                self._came.discard(kind)
                return kind
        return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as for any other configuration error."""

    @override
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        options, rest = self.parse_known_args(argv)
        for word in rest:
            near = get_close_matches(word.partition("=")[0], self._option_string_actions, 1)
            hint = f": did you mean {near[0]}?" if near else ""
            self.error(f"unknown argument {word!r}{hint}")
        return options


_COMMON: Final = frozenset(field.name for field in fields(Settings))


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


def _notes(field: Field[Any]) -> str:
    """Return what the help says behind the text of a setting."""
    notes = []
    if others := names.variables(field)[1:]:
        notes.append(f"also {', '.join(others)} in the environment")
    value = None if field.default is MISSING else values.write(field.default)
    if value not in (None, "", [], {}):
        shown = value if isinstance(value, str) else json.dumps(value)
        notes.append(f"default: {shown}")
    return f" ({'; '.join(notes)})" if notes else ""


def _first_paragraph(text: str | None) -> str:
    return (text or "").strip().partition("\n\n")[0]


def preview(plugins: Sequence[Plugin], output: str) -> int:
    from deviceplugin._app import preview

    return preview.show(plugins, output)
