"""Documents, and what a CRD's schema says of them, as the API server reads it."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jsonschema import Draft202012Validator

from deviceplugin_operator.crd import definition

FOLDER = Path(__file__).parents[3] / "deployments/operator"
SAMPLES = sorted((FOLDER / "samples").glob("*.yaml"))
SCHEMA = definition.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC = SCHEMA["properties"]["spec"]
"""What of the CRD is about the specs of objects."""
Schema = Mapping[str, Any]
_LETTERS = st.characters(max_codepoint=0x24F)
_SAME = (
    *("type", "enum", "minimum", "maximum", "maxLength", "pattern"),
    *("minItems", "maxItems", "maxProperties"),
)


def validator(schema: Schema) -> Draft202012Validator:
    """Return what judges as the API server does that is asked to be strict; nothing of CEL."""
    return Draft202012Validator(_plain(schema))


def refused(schema: Schema | Draft202012Validator, value: Any) -> list[str]:
    """Return what a schema, or its validator, refuses."""
    judge = schema if isinstance(schema, Draft202012Validator) else validator(schema)
    found = judge.iter_errors(value)
    return [f"{'.'.join(map(str, one.path))}: {one.message}" for one in found]


def _plain(schema: Schema) -> dict[str, Any]:
    """Return the JSON Schema that means the same."""
    made: dict[str, Any] = {key: schema[key] for key in _SAME if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if "allOf" in schema:
        made["allOf"] = list(schema["allOf"])
    if "properties" in schema:
        made["properties"] = {key: _plain(one) for key, one in schema["properties"].items()}
        made["required"] = schema.get("required", [])
        made["additionalProperties"] = schema.get("x-kubernetes-preserve-unknown-fields", False)
    if "additionalProperties" in schema:
        made["additionalProperties"] = _plain(schema["additionalProperties"])
    if "items" in schema:
        made["items"] = _plain(schema["items"])
    return {"anyOf": [made, {"type": "null"}]} if schema.get("nullable") else made


def documents(schema: Schema) -> SearchStrategy[Any]:
    """Return what ``schema`` takes: objects with few keys, short lists, short texts."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(0, 9) | st.sampled_from(["unlimited", "all", "0"])
    return _OF_TYPE.get(schema.get("type", ""), _anything)(schema)


def _anything(_schema: Schema) -> SearchStrategy[Any]:
    return st.sampled_from(["all", 1, ["0"], {}])


def _lists(schema: Schema) -> SearchStrategy[Any]:
    return st.lists(documents(schema["items"]), min_size=schema.get("minItems", 0), max_size=2)


def _numbers(schema: Schema) -> SearchStrategy[Any]:
    return st.integers(schema.get("minimum", -9), schema.get("maximum", 99))


def _objects(schema: Schema) -> SearchStrategy[Any]:
    if "properties" not in schema:
        names = st.sampled_from(["A", "serial", "example.com/a"])
        return st.dictionaries(names, documents(schema["additionalProperties"]), max_size=2)
    keys = {key: documents(one) for key, one in schema["properties"].items()}
    needed = {key: keys.pop(key) for key in schema.get("required", ())}
    some = st.lists(st.sampled_from(sorted(keys)), max_size=3, unique=True) if keys else st.just([])

    @st.composite
    def made(draw: st.DrawFn) -> dict[str, Any]:
        """Draw from strategies that there are: to make others for each document takes long."""
        chosen = needed | {name: keys[name] for name in draw(some)}
        return {name: draw(one) for name, one in chosen.items()}

    return made()


def _texts(schema: Schema) -> SearchStrategy[str]:
    patterns = [schema["pattern"]] if "pattern" in schema else []
    patterns += [one["pattern"] for one in schema.get("allOf", ())]
    if patterns:
        first, *others = (one.replace("$", r"\Z") for one in patterns)
        found = st.from_regex(first, alphabet=_LETTERS)
        return found.filter(lambda text: len(text) < 64 and all(_has(one, text) for one in others))
    return st.sampled_from(["a", "example.com/a", "0", ""])


def _has(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


_OF_TYPE: Mapping[str, Callable[[Schema], SearchStrategy[Any]]] = {
    "object": _objects,
    "array": _lists,
    "string": _texts,
    "integer": _numbers,
    "number": _numbers,
    "boolean": lambda _schema: st.booleans(),
}
