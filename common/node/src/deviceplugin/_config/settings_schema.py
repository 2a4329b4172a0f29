"""The JSON Schema of a settings class: what its file may have, for editors and operators."""

import typing
from collections.abc import Sequence
from dataclasses import Field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from deviceplugin._config import values as _values
from deviceplugin._config.help_texts import helps
from deviceplugin._config.kinds.kind import Schema
from deviceplugin._config.quantities import DURATION_PATTERN
from deviceplugin._config.setting_names import key
from deviceplugin._config.settings import Settings

_NULL: Final = type(None)
_SINGLE: Final[dict[Any, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Path: {"type": "string", "pattern": r"^/[^\x00]*$"},
    timedelta: {"type": "string", "pattern": DURATION_PATTERN},
}


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
