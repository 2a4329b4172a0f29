"""What a class of settings says of itself: whether it can be one, its help and its JSON Schema."""

import ast
import inspect
import typing
from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any, ClassVar, Final

from deviceplugin._config import values as _values
from deviceplugin._config.kinds.kind import Schema
from deviceplugin._config.loading import key
from deviceplugin._config.node_choice import NODES
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
        f"{name}: {field} cannot be a setting, {problem}"
        for field in sorted(known)
        if "kind" not in known[field] and (problem := _values.type_problem(types[field]))
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
        key(field): _of_field(field, types[field.name], texts.get(key(field), ""))
        for field in fields(settings)
    }
    if NODES not in properties:
        properties[NODES] = _NODES_SCHEMA
    return {"type": "object", "properties": properties, "additionalProperties": False}


_NODES_SCHEMA: Final[Schema] = {
    "type": ["array", "null"],
    "items": {"type": "object"},
    "description": "What differs from node to node: entries with a name, a match of node and "
    "label, or both, and other keys of the file.",
}


def _of_field(field: "Field[Any]", kind: Any, text: str) -> Schema:
    own: Any = field.metadata.get("kind") or _values.form_of(kind)
    description = {"description": text} if text else {}
    return {**own.schema, **field.metadata.get("schema", {}), **description}
