"""What a class of settings says of itself: whether it can be one, its help and its JSON Schema."""

import ast
import inspect
import typing
from collections.abc import Iterator, Sequence
from dataclasses import Field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from deviceplugin._config import values as _values
from deviceplugin._config.kinds.kind import Schema
from deviceplugin._config.loading import key
from deviceplugin._config.quantities import DURATION_PATTERN
from deviceplugin._config.settings import Settings
from deviceplugin.errors import ConfigError

_NULL: Final = type(None)
_SINGLE: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Path: {"type": "string", "pattern": r"^/[^\x00]*$"},
    timedelta: {"type": "string", "pattern": DURATION_PATTERN},
}


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
        f"{name}: {field} cannot be a setting, because of its type "
        f"{_values.type_name(types[field])}: {_values.KNOWN}"
        for field in sorted(known)
        if "kind" not in known[field] and not _values.can_parse(types[field])
    ]
    if problems:
        raise ConfigError("\n".join(problems))


def helps(settings: type[Settings]) -> dict[str, str]:
    """Return the docstring below each field, by key; an empty dict without the source code."""
    found: dict[str, str] = {}
    for owner in reversed(settings.__mro__):
        if not issubclass(owner, Settings):
            continue
        try:
            tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(owner)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.update(_field_texts(node))
    return found


def _field_texts(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield field.target.id.replace("_", "-"), " ".join(str(text.value.value).split())


def settings_schema(settings: type[Settings]) -> Schema:
    """Return the schema of a file with ``settings``; kinds stand in it where fields have one.

    Each key is described by the text below its field. A class with a ``parse`` of its own says by
    a ``schema`` without arguments what stands in a file, or anything may.
    """
    types, texts = typing.get_type_hints(settings), helps(settings)
    properties = {
        key(field): _described(_of_field(field, types[field.name]), texts.get(key(field), ""))
        for field in fields(settings)
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text} if text else schema


def _of_field(field: "Field[Any]", kind: Any) -> Schema:
    own = field.metadata.get("kind")
    found: Schema = own.schema if own else _of_type(kind)
    return {**found, **field.metadata.get("schema", {})}


def _of_type(kind: Any) -> Schema:
    arguments = typing.get_args(kind)
    if _values.is_own(kind):
        found: Schema = kind.schema() if hasattr(kind, "schema") else {}
        return found
    if _NULL in arguments:
        (inner,) = (one for one in arguments if one is not _NULL)
        return {"anyOf": [_of_type(inner), {"type": "null"}]}
    if typing.get_origin(kind) is Literal:
        return {"type": "string", "enum": [*arguments]}
    if typing.get_origin(kind) in {tuple, list, Sequence}:
        return {"type": "array", "items": _of_type(arguments[0])}
    return _SINGLE[kind]
