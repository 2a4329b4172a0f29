"""The flags of a plugin's command: one for each setting, and a few more."""

import argparse
import functools
import json
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Final, NoReturn

from typing_extensions import override

from deviceplugin._config import loading, values
from deviceplugin._config.documents import faults
from deviceplugin._config.settings import Settings, written
from deviceplugin._config.settings_class import helps
from deviceplugin.errors import ConfigError

_COMMON: Final = frozenset(field.name for field in fields(Settings))


_Narrow: Final = functools.partial(argparse.HelpFormatter, width=80)


class Parser(argparse.ArgumentParser):
    """Raises ConfigError, so that errors are reported as for any other setting."""

    @override
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")


def parse_strictly(
    parser: argparse.ArgumentParser, argv: Sequence[str], commands: Iterable[str] = ()
) -> argparse.Namespace:
    """Return the parsed ``argv``; raise ConfigError with a suggestion for unknown arguments.

    ``parser`` is a ``Parser``. ``commands`` are what the first argument could have been too.
    """
    known = parser._option_string_actions  # noqa: SLF001
    options, wrong = argparse.Namespace(), ""
    try:
        options, rest = parser.parse_known_args(argv)
    except ConfigError as error:  # such as an option that is missing because it is misspelt
        wrong = str(error)
        rest = [word for word in argv if word[:2] == "--" != word and _name(word) not in known]
    names = {one.lstrip("-"): one for one in [*known, *commands]}
    for word in filter("--".__ne__, rest):
        near = faults.nearest(_name(word).lstrip("-"), names)
        advice = f": did you mean {names[near]}?" if near else ""
        parser.error(f"unknown argument {faults.bounded(repr(word))}{advice}")
    if wrong:
        raise ConfigError(wrong)
    return options


def _name(word: str) -> str:
    return word.partition("=")[0]


def make_parser(
    name: str,
    description: str,
    settings: type[Settings],
    commands: Mapping[str, Callable[[Sequence[str]], int]],
    default_config: Path | None,
    *,
    helping: bool,
) -> Parser:
    """Return the parser of the command ``name``; its help also lists ``commands``.

    ``helping`` is whether the help will be shown. Only then it is extracted from the source code,
    which takes time.
    """
    parser = Parser(
        prog=name,
        usage=f"{name} [OPTION | SETTING ...]" + (f"\n       {name} COMMAND ..." * bool(commands)),
        description=description,
        epilog="Each setting is also an environment variable (--log-level is DP_LOG_LEVEL) and "
        "a key of the configuration file (log-level). A flag wins over the environment, and "
        "the environment over the file. Durations are written as 30s, 1m30s or 24h.",
        allow_abbrev=False,
        # Or argparse would ask for the terminal's width at each flag, by modules that need others.
        formatter_class=argparse.HelpFormatter if helping else _Narrow,
    )
    if commands and helping:
        listed = parser.add_subparsers(
            title="commands",
            metavar="COMMAND",
            description=f"{name} COMMAND --help describes a command.",
        )
        for command, run in commands.items():
            listed.add_parser(command, help=(run.__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        "--once",
        action="store_true",
        help="discover once, print what would be advertised, and exit: with status 0 if there is "
        "at least one device, or 1 if there is none or a discovery fails",
    )
    parser.add_argument(
        "--output",
        choices=["table", "json", "slices", "device-classes"],
        help="form of --once's output; slices are the default with --protocol dra, else the table; "
        "device-classes let pods that ask for a resource get its devices through DRA",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print all settings as JSON, and exit"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings as TOML, JSON or YAML; also the environment variable DP_CONFIG"
        + (f" (default: {default_config}, if it exists)" if default_config else ""),
    )
    _add_settings(parser, settings, helps(settings) if helping else {})
    return parser


def _add_settings(parser: Parser, settings: type[Settings], texts: Mapping[str, str]) -> None:
    types = typing.get_type_hints(settings)
    group = parser.add_argument_group("settings")
    own = [field for field in fields(settings) if field.name not in _COMMON]
    common = [field for field in fields(settings) if field.name in _COMMON]
    for field in (*own, *common):
        name, form = loading.key(field), values.form_of(types[field.name])
        has_kind = "kind" in field.metadata
        # A boolean flag needs no value: --verbose means --verbose=true.
        options: dict[str, Any] = {}
        if types[field.name] is bool:
            options = {"nargs": "?", "const": "true"}
        group.add_argument(
            *loading.flags(field),
            dest=name,
            default=argparse.SUPPRESS,
            action="append" if not has_kind and values.is_own(types[field.name]) else "store",
            metavar="YAML" if has_kind or form is None else form.metavar,
            help=f"{texts.get(name, field.metadata.get('help', ''))}{_notes(field)}".replace(
                "%", "%%"
            ),
            **options,
        )


def _notes(field: Field[Any]) -> str:
    """Return what the help adds after the description of a setting."""
    notes = []
    if others := loading.variables(field)[1:]:
        notes.append(f"also {', '.join(others)} in the environment")
    value = None if field.default is MISSING else written(field, field.default)
    if value not in (None, "", [], {}):
        shown = value if isinstance(value, str) else json.dumps(value)
        notes.append(f"default: {shown}")
    return f" ({'; '.join(notes)})" if notes else ""
