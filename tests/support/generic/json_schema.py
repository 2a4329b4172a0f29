"""As much of JSON Schema as our published schema uses; any other keyword is an error."""

import re
from collections.abc import Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_TEXTS = {"$schema", "$id", "$defs", "title", "description", "default"}


def valid(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> bool:
    """Tell whether ``value`` is as ``schema`` says."""
    root = schema if root is None else root
    for keyword, expected in schema.items():
        if keyword not in _TEXTS and not _holds(keyword, expected, value, schema, root):
            return False
    return True


def _holds(keyword: str, expected: Any, value: Any, schema: Any, root: Any) -> bool:
    match keyword:
        case "$ref":
            return valid(value, root["$defs"][expected.removeprefix("#/$defs/")], root)
        case "type":
            types = [expected] if isinstance(expected, str) else expected
            return any(_is(value, one) for one in types)
        case "enum":
            return value in expected
        case "anyOf":
            return any(valid(value, one, root) for one in expected)
        case "allOf":
            return all(valid(value, one, root) for one in expected)
        case "oneOf":
            return 1 == sum(valid(value, one, root) for one in expected)
        case "not":
            return not valid(value, expected, root)
        case "if":
            return not valid(value, expected, root) or valid(value, schema["then"], root)
        case "then":
            return True
    return _holds_for_kind(keyword, expected, value, schema, root)


def _holds_for_kind(keyword: str, expected: Any, value: Any, schema: Any, root: Any) -> bool:
    match keyword:
        case "pattern":
            return not isinstance(value, str) or _matches(value, expected)
        case "minimum":
            return not _is(value, "number") or value >= expected
        case "maximum":
            return not _is(value, "number") or value <= expected
        case "items":
            return not isinstance(value, list) or all(valid(one, expected, root) for one in value)
        case "minItems" | "minProperties":
            kind = list if keyword == "minItems" else dict
            return not isinstance(value, kind) or len(value) >= expected
        case "required":
            return not isinstance(value, dict) or all(key in value for key in expected)
        case "properties":
            return not isinstance(value, dict) or all(
                valid(value[key], one, root) for key, one in expected.items() if key in value
            )
        case "additionalProperties":
            return not isinstance(value, dict) or all(
                valid(one, expected, root) if expected is not False else False
                for key, one in value.items()
                if key not in schema.get("properties", {})
            )
    raise AssertionError(f"{keyword!r} is not known here")


def _matches(text: str, pattern: str) -> bool:
    return re.search(pattern.replace("$", r"\Z"), text) is not None


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and not (
        kind in {"integer", "number"} and isinstance(value, bool)
    )
