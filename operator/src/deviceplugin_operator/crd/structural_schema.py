"""Turns JSON Schema into the *structural schema* that the API server accepts in a CRD.

That has no references, no ``if`` and ``oneOf`` beside types, and only RE2 patterns. What
it cannot say is dropped, because the plugin's own settings check everything again.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from deviceplugin.kit.configuration import Kind

Schema = Mapping[str, Any]

MAX_LENGTH: Final = 4096
MAX_ITEMS: Final = 256
MAX_KEYS: Final = 64
"""Without bounds, the cost of rules would have no limit."""
FREE: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True}
"""Any value."""
INT_OR_STRING: Final[Schema] = {"x-kubernetes-int-or-string": True}
_KEPT: Final = ("description", "minimum", "maximum", "minItems", "enum")
_NOT_RE2: Final = re.compile(r"\(\?[=!<]|\\[1-9]")
_NUMBERS: Final = frozenset({"integer", "number"})


def structural(schema: Schema | Kind[Any]) -> dict[str, Any]:
    """Return ``schema``, in which kinds may stand, as a CRD has it.

    It accepts whatever ``schema`` does, but for two things: a list that may be a single value too
    must be a list, and unknown keys are not its business (the API server prunes them).
    """
    plain = _resolved(schema)
    if "anyOf" in plain:
        return _any_of(plain)
    if "allOf" in plain:
        return _all_of(plain)
    kept = {key: plain[key] for key in _KEPT if key in plain}
    return {**_of_type(plain), **kept}


def _resolved(schema: Schema | Kind[Any]) -> Schema:
    return schema.schema if isinstance(schema, Kind) else schema


def _of_type(plain: Schema) -> Schema:
    match plain.get("type", _type_of(plain.get("enum"))):
        case "object":
            return _object(plain)
        case "array":
            items = structural(plain["items"])
            return {"type": "array", "items": items, "maxItems": MAX_ITEMS}
        case "string":
            return _text(plain)
        case str(other):
            return {"type": other}
        case ["string", "number"]:
            return INT_OR_STRING
        case _:
            return FREE


def _type_of(values: Sequence[Any] | None) -> str | None:
    return "string" if values and all(isinstance(one, str) for one in values) else None


def _text(plain: Schema) -> Schema:
    pattern = plain.get("pattern", "")
    limits = {} if "enum" in plain else {"maxLength": plain.get("maxLength", MAX_LENGTH)}
    usable = pattern and not _NOT_RE2.search(pattern)
    found = {"type": "string", **limits, **({"pattern": pattern} if usable else {})}
    if "not" in plain:  # whose message would not say what is wrong
        wrong = plain["not"]["pattern"]
        rule = {"rule": f"!self.matches(r'{wrong}')", "message": f"must not match {wrong}"}
        found["x-kubernetes-validations"] = [rule]
    return found


def _object(plain: Schema) -> Schema:
    if "properties" not in plain:
        values = structural(plain.get("additionalProperties", {}))
        return {"type": "object", "additionalProperties": values, "maxProperties": MAX_KEYS}
    keys = {key: structural(one) for key, one in plain["properties"].items()}
    needed = {"required": [*plain["required"]]} if plain.get("required") else {}
    return {"type": "object", "properties": keys, **needed}


def _any_of(plain: Schema) -> dict[str, Any]:
    kinds = [_resolved(one) for one in plain["anyOf"]]
    found = [one for one in kinds if one.get("type") != "null"]
    nullable = {"nullable": True} if len(found) < len(kinds) else {}
    described = {key: plain[key] for key in ("description",) if key in plain}
    return {**_one_of(found), **nullable, **described}


def _one_of(kinds: Sequence[Schema]) -> dict[str, Any]:
    if len(kinds) == 1:
        return structural(kinds[0])
    types = {one.get("type", _type_of(one.get("enum"))) for one in kinds}
    if types <= {"string", *_NUMBERS}:
        return dict(INT_OR_STRING)
    lists = [one for one in kinds if one.get("type") == "array"]
    if len(kinds) == 2 and len(lists) == 1:  # noqa: PLR2004 - a value, or a list of such
        return structural(lists[0])
    return dict(FREE)


def _all_of(plain: Schema) -> dict[str, Any]:
    parts = [structural(one) for one in plain["allOf"]]
    patterns = [{"pattern": one.pop("pattern")} for one in parts if "pattern" in one]
    joined: dict[str, Any] = {}
    for part in parts:
        joined |= part
    return {**joined, **({"allOf": patterns} if patterns else {})}
