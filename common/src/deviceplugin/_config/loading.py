"""Loading settings from flags, environment and file."""

import os
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deviceplugin._config import values as _values
from deviceplugin._config.names import key, variable, variables
from deviceplugin.errors import ConfigError

if TYPE_CHECKING:
    from deviceplugin._config.settings import Settings

S = TypeVar("S", bound="Settings")


def load(
    settings: type[S],
    *,
    flags: Mapping[str, str | list[str]],
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> S:
    """Return ``settings`` with what flags, environment and file say, in this order.

    ``flags`` has texts by the key of their field, or lists of them.

    Raises:
        ConfigError: Everything that is wrong, a line each: where it stands and what would do.
    """
    environment = os.environ if environ is None else environ
    problems: list[str] = []
    types = typing.get_type_hints(settings)
    by_file = {} if file is None else settings.read_file(file)
    known = {key(field): field for field in fields(settings)}
    problems += [f"{file}: {text}" for text in unknown_keys(by_file, known)]
    values: dict[str, Any] = {}
    for name, field in known.items():
        found = next(_sources(name, field, flags, environment, by_file, file), None)
        if found is None:
            if field.default is MISSING and field.default_factory is MISSING:
                problems.append(f"--{name} (or {variable(field)}) is needed")
            continue
        where, value = found
        try:
            values[field.name] = value_of(field, types[field.name], value)
        except ValueError as error:
            problems.append(f"{where}: {value!r} {error}")
        except ConfigError as error:  # from a kind of the plugin's own, a line each
            problems += [f"{where}: {line}" for line in str(error).splitlines()]
    if problems:
        raise ConfigError("\n".join(problems))
    try:
        made = settings(**values)
    except ValueError as error:  # from a __post_init__ that checks what belongs together
        raise ConfigError(str(error)) from error
    vars(made)["_again"] = lambda: load(settings, flags=flags, file=file, environ=environ)
    return made


def value_of(field: "Field[Any]", kind: Any, found: Any) -> Any:
    """Return ``found`` as a ``kind``, if the field's own check lets it pass.

    Raises:
        ValueError: It is none, does not pass, or is empty where the default is not, as an unset
            variable in a template makes it; the message goes on from the value.
    """
    if found == "" and kind is str and field.default != "":
        instead = "" if field.default is MISSING else f", or leave it out for {field.default!r}"
        raise ValueError(f"is empty: give a text{instead}")
    value = _values.parse(found, kind)
    if check := field.metadata.get("check"):
        check(value)
    return value


def _sources(
    name: str,
    field: "Field[Any]",
    flags: Mapping[str, str | list[str]],
    environ: Mapping[str, str],
    by_file: Mapping[str, Any],
    file: Path | None,
) -> Iterator[tuple[str, Any]]:
    """Yield where ``field`` is set and to what, the strongest first."""
    if name in flags:
        yield f"--{name}", flags[name]
    for variable_name in variables(field):
        if variable_name in environ:
            yield f"environment variable {variable_name}", environ[variable_name]
    if name in by_file:
        yield f"{file}: {name}", by_file[name]


def unknown_keys(found: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Return a text for each key of ``found`` that is not ``known``."""
    return [
        f"unknown key {name!r}: {suggestion(name, known)}" for name in found if name not in known
    ]


def suggestion(name: str, known: Mapping[str, Any]) -> str:
    """Return what to say to whoever wrote ``name``, which is not one of ``known``."""
    near = get_close_matches(str(name), known, 1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
