"""Parameters of a plugin: a frozen dataclass, read from an object of JSON as users write it."""

import json
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from deviceplugin._config import settings, values
from deviceplugin._config.documents import places
from deviceplugin._config.documents.faults import InvalidError
from deviceplugin._config.documents.places import Place
from deviceplugin._config.loading import is_null, read_field
from deviceplugin.errors import ConfigError

T = TypeVar("T")


def key(field: "Field[Any]") -> str:
    """Return the name of ``field`` in an object of Kubernetes, such as ``idleTimeout``."""
    first, *others = field.name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _fields(kind: Any) -> "list[Field[Any]]":
    return [field for field in fields(kind) if field.init]


def check(kind: Any) -> None:
    """Raise ConfigError, a line for each problem, unless ``kind`` can be a class of parameters."""
    name = getattr(kind, "__name__", repr(kind))
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise ConfigError(f"{name} is not a dataclass: put @dataclass(frozen=True) over the class")
    if not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise ConfigError(f"{name} can be changed: put @dataclass(frozen=True) over the class")
    try:
        types = typing.get_type_hints(kind)
    except Exception as error:
        raise ConfigError(f"{name}: the type of a field is unknown: {error}") from error
    if problems := [f"{name}: {text}" for text in _problems(kind, types)]:
        raise ConfigError("\n".join(problems))
    try:
        json.dumps(write(kind()))
    except Exception as error:  # it is an author's code
        raise ConfigError(f"{name}: its defaults cannot be used: {error}") from error


def _problems(kind: Any, types: Mapping[str, Any]) -> Iterator[str]:
    known: dict[str, str] = {}
    for field in _fields(kind):
        if "kind" not in field.metadata and (problem := values.type_problem(types[field.name])):
            yield f"{field.name} cannot be a parameter, {problem}"
        if field.default is MISSING and field.default_factory is MISSING:
            yield f"{field.name} needs a default, for pods that give no parameters"
        if (name := key(field)) in {"apiVersion", "kind"}:
            yield f"{field.name} cannot be a parameter: {name} says which parameters they are"
        if (other := known.setdefault(name, field.name)) != field.name:
            yield f"{other} and {field.name} are both written {name}"


def read(
    kind: type[T], found: object, name: str = "", head: Mapping[str, str] = MappingProxyType({})
) -> T:
    """Return ``found``, an object of JSON, as a ``kind``; what is absent or null has its default.

    The keys in messages begin with ``name``. ``head`` has further keys, with the only value that
    is valid for each. ConfigError has all faults, a line each, with the key.
    """
    root = places.of_plain(found, name)
    types, given = typing.get_type_hints(kind), {}
    known = {key(field): field for field in _fields(kind)}
    with suppress(InvalidError):
        keys = root.keys({**known, **head})
        for word, wanted in head.items():
            _check_head(root, word, keys.pop(word, None), wanted)
        for word, place in keys.items():
            field = known[word]
            if is_null(field, types[field.name], place):
                continue
            with suppress(InvalidError):
                given[field.name] = read_field(field, types[field.name], word, place)
    root.faults.refuse()
    try:
        return kind(**given)
    except ValueError as error:  # from a __post_init__ that checks several together
        raise ConfigError(f"{name}: {error}" if name else str(error)) from error


def _check_head(root: Place, word: str, place: Place | None, wanted: str) -> None:
    if place is None:
        root.fault(f"{word} is missing: it must be {wanted}")
    elif place.kind != "text" or place.raw != wanted:
        place.wrong(wanted)


def write(found: Any) -> dict[str, Any]:
    """Return all parameters in ``found``, the reverse of ``read``."""
    return {
        key(field): settings.written(field, getattr(found, field.name)) for field in _fields(found)
    }
