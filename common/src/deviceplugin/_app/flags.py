"""The flags of a plugin's command: one for each setting, and a few of its own."""

import argparse
import json
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn

from typing_extensions import override

from deviceplugin._config import names, values
from deviceplugin._config.help_texts import helps
from deviceplugin._config.settings import Settings
from deviceplugin.errors import ConfigError
from deviceplugin.plugin import Plugin

_COMMON: Final = frozenset(field.name for field in fields(Settings))


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as for any other configuration error."""

    @override
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return what ``argv`` says; ``ConfigError`` for an unknown word, with one that is near."""
        options, rest = self.parse_known_args(argv)
        for word in rest:
            near = get_close_matches(word.partition("=")[0], self._option_string_actions, 1)
            hint = f": did you mean {near[0]}?" if near else ""
            self.error(f"unknown argument {word!r}{hint}")
        return options


def make_parser(
    name: str, maker: Callable[..., Plugin], settings: type[Settings], *, helping: bool
) -> Parser:
    """Return the parser of the command ``name``, which runs what ``maker`` makes.

    ``helping`` is whether the help will be shown: its texts come from the source, which takes time.
    """
    module = sys.modules.get(getattr(maker, "__module__", None) or "")
    parser = Parser(
        prog=name,
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
    _add_settings(parser, settings, helps(settings) if helping else {})
    return parser


def _add_settings(parser: Parser, settings: type[Settings], texts: Mapping[str, str]) -> None:
    types = typing.get_type_hints(settings)
    group = parser.add_argument_group("settings")
    own = [field for field in fields(settings) if field.name not in _COMMON]
    common = [field for field in fields(settings) if field.name in _COMMON]
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
