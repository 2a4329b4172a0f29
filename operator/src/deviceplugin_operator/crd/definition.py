"""The CustomResourceDefinition: ``kind.yaml``, with the settings of the plugins.

``make generate`` writes it to ``deployments/operator/crd``.

What the plugins say of their settings is JSON Schema. A CRD has a *structural schema*: no
references, no ``if`` and ``oneOf`` beside types, and only RE2 patterns. What it cannot say is
dropped, because the plugin's own settings check everything again.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

import yaml

from deviceplugin.kit.configuration import Kind, settings_schema
from deviceplugin_operator import names
from deviceplugin_operator.crd.catalogue import CUSTOM, PLUGINS, kept
from deviceplugin_operator.manifests import components

_KIND: Final = Path(__file__).with_name("kind.yaml")
_HEADER: Final = """\
# Generated from the plugins' settings by `make generate`.
"""

Schema = Mapping[str, Any]

MAX_LENGTH: Final = 4096
MAX_ITEMS: Final = 256
MAX_KEYS: Final = 64
"""Without bounds, the cost of rules would have no limit."""
FREE: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True}
"""Any value."""
INT_OR_STRING: Final[Schema] = {"x-kubernetes-int-or-string": True}
_KEPT: Final = ("description", "minimum", "maximum", "minItems", "enum")
NOT_RE2: Final = re.compile(r"\(\?[=!<]|\\[1-9]")
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
    usable = pattern and not NOT_RE2.search(pattern)
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


def settings_of(name: str) -> dict[str, Any]:
    """Return the schema of what an object says below the name of a plugin."""
    plugin = PLUGINS[name]
    known = settings_schema(plugin.settings)["properties"]
    keys = {
        plugin.renamed.get(key, key): structural(one)
        for key, one in known.items()
        if key not in kept(name) and key != "nodes"  # the object has profiles for that
    }
    return {
        "type": "object",
        "description": f"Settings of the plugin {name}, with the keys of its configuration file. "
        "Settings that are not given are as in deployments/.",
        "properties": keys,
    }


def _undescribed(keys: Schema) -> dict[str, Any]:
    """Return the same keys without their descriptions, which are in the file once already."""
    found: dict[str, Any] = {}
    for key, one in keys.items():
        found[key] = {name: value for name, value in one.items() if name != "description"}
        for inner in {"properties"} & found[key].keys():
            found[key][inner] = _undescribed(found[key][inner])
        for inner in {"items", "additionalProperties"} & found[key].keys():
            found[key] |= _undescribed({inner: found[key][inner]})
    return found


def _rules() -> Iterator[Schema]:
    for name in (*PLUGINS, CUSTOM):
        yield {
            "rule": f"self.plugin == '{name}' || !has(self.{name})",
            "message": f"{name}: is for plugin {name}",
        }
        yield {
            "rule": f"self.plugin == '{name}' || !has(self.profiles) || "
            f"self.profiles.all(one, !has(self.profiles[one].{name}))",
            "message": f"profiles: {name} is for plugin {name}",
        }


def crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition."""
    text = Template(_KIND.read_text(encoding="utf-8")).substitute(vars(names))
    made: dict[str, Any] = yaml.safe_load(text)
    root = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = root["properties"]["spec"]
    spec["x-kubernetes-validations"][:0] = _rules()
    keys = spec["properties"]
    union = {**{name: settings_of(name) for name in PLUGINS}, CUSTOM: keys.pop(CUSTOM)}
    keys["plugin"]["enum"] = [*PLUGINS, CUSTOM]
    keys["components"]["items"]["enum"] = [*components()]
    keys["profiles"]["additionalProperties"]["properties"] = _undescribed(union)
    keys |= union
    return made


class _Plain(yaml.SafeDumper):
    """Writes shared parts in full, without YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def text() -> str:
    """Return what is in the file."""
    return _HEADER + yaml.dump(
        crd(), Dumper=_Plain, default_flow_style=None, sort_keys=False, width=100
    )
