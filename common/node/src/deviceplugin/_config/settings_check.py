"""Checking that a class can be a settings class."""

import inspect
import typing
from dataclasses import fields
from typing import Any, ClassVar

from deviceplugin._config import values as _values
from deviceplugin._config.settings import Settings
from deviceplugin.errors import ConfigError


def check(settings: Any) -> None:
    """Raise ConfigError, a line for each problem, unless ``settings`` is a class of settings."""
    name = getattr(settings, "__name__", repr(settings))
    if not (isinstance(settings, type) and issubclass(settings, Settings)):
        raise ConfigError(f"settings must be a class derived from Settings, not {name}")
    try:
        types = typing.get_type_hints(settings)
    except Exception as error:
        raise ConfigError(f"{name}: the type of a field is unknown: {error}") from error
    known = {field.name: field.metadata for field in fields(settings)}
    decorated = "__dataclass_fields__" in vars(settings)
    problems = [
        f"{name}: {field} is not a field: put @dataclass(frozen=True, kw_only=True) over the class"
        for field in (() if decorated else inspect.get_annotations(settings))
        if field not in known and ClassVar not in (types[field], typing.get_origin(types[field]))
    ]
    problems += [
        f"{name}: {field} cannot be a setting, because of its type {_type_name(types[field])}: "
        f"{_values.KNOWN}"
        for field in sorted(known)
        if "kind" not in known[field] and not _values.can_parse(types[field])
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def _type_name(kind: Any) -> str:
    return kind.__name__ if type(kind) is type else str(kind)
