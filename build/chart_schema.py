"""What the values of the charts may be: ``values.schema.yaml``, and what plugins say of settings.

Helm refuses what it does not allow, so that a typo in a plugin's configuration reaches no pod.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import yaml

import deviceplugin as dp
from deviceplugin.kit.configuration import settings_schema
from deviceplugin_operator.crd.catalogue import PLUGINS
from deviceplugin_operator.crd.definition import NOT_RE2
from deviceplugin_operator.manifests import Manifest
from kustomize import DEPLOYMENTS

AGENT: Final = "node"
"""The plugin whose configuration has a section for each of the others."""
WITHOUT_EFFECT: Final = frozenset({"node-choice", "node-label", "node-labels-file"})
"""Settings that a file cannot set."""
TEXTS: Final = {
    "array": "",  # with commas
    "boolean": "(?i)^(true|false|yes|no|on|off|t|f|1|0)$",
    "integer": r"^\s*[-+]?[0-9]+\s*$",
    "number": "^[-+.0-9eE]+$",
}
"""How values of settings may be written as strings, by their types."""
OF_PEERS: Final[Mapping[str, Sequence[str]]] = {
    "generic": ("device",),
    "gpu": ("flags", "imex", "version"),
    "rdma": ("configList", "periodicUpdateInterval"),
}
"""Keys in the files of other plugins, which ours read too. What is below them only ours checks."""


def of_plugins(plugins: Mapping[str, Manifest], general: Iterable[str]) -> Manifest:
    """Return the schema for plugins, by their files in the chart, and components for all."""
    schema = _written("chart")
    shared = {key: {"$ref": f"#/definitions/{key}"} for key in schema["definitions"]}
    config = schema["definitions"]["config"]
    for_all = {
        **{key: value for key, value in shared.items() if key not in {"enabled", "configMaps"}},
        "components": _switches(general),
        "config": config | _closed(_settings(dp.Settings)),
    }
    properties = {"defaults": _closed(for_all)}
    for name, content in plugins.items():
        own = content["components"]
        properties[name] = _closed(
            shared
            | {"components": _switches(own)}
            | {"config": config | _configuration(name, content["objects"])}
            | {"configMaps": _closed(dict.fromkeys(_config_maps(own), shared["configMaps"]))}
        )
    return schema | {"properties": schema["properties"] | properties}


def of_operator() -> Manifest:
    """Return the schema of the operator's chart. Most of its values are those of plugins, too."""
    return _written("operator/chart") | {"definitions": _written("chart")["definitions"]}


def _written(folder: str) -> Manifest:
    text = (DEPLOYMENTS / folder / "values.schema.yaml").read_text(encoding="utf-8")
    found: Manifest = yaml.safe_load(text)
    return found


def _configuration(plugin: str, objects: Iterable[Manifest]) -> Manifest:
    """Return the schema of a plugin's file, without settings that a variable overrides."""
    if plugin == AGENT:
        top = _settings(dp.Settings)
        own = {
            name: {key: one for key, one in _own(name).items() if key not in top}
            for name in PLUGINS
        }
        known = top | {name: _nullable(_closed(one)) for name, one in own.items()}
        # A plugin that is not in this repository may have a section, too.
        others: object = {"type": ["object", "null"]}
    elif plugin in PLUGINS:
        known, others = _own(plugin), False
    else:
        return {}
    (pod,) = (one["spec"]["template"]["spec"] for one in objects if one["kind"] == "DaemonSet")
    variables = {entry["name"] for one in pod["containers"] for entry in one.get("env", ())}
    kept = {
        key: one
        for key, one in known.items()
        if f"DP_{key.upper().replace('-', '_')}" not in variables
    }
    return _closed(kept) | {"additionalProperties": others}


def _own(plugin: str) -> Manifest:
    """Return what may stand in the file of a plugin, by its keys there."""
    renamed = PLUGINS[plugin].renamed
    found = _settings(PLUGINS[plugin].settings)
    own = {renamed.get(key, key): one for key, one in found.items()}
    return {**own, **{key: {} for key in OF_PEERS.get(plugin, ())}}


def _settings(settings: type[dp.Settings]) -> Manifest:
    text = json.dumps(settings_schema(settings)["properties"], default=lambda kind: kind.schema)
    found = json.loads(text, object_hook=_for_go)
    return {key: _nullable(one) for key, one in found.items() if key not in WITHOUT_EFFECT}


def _for_go(schema: Manifest) -> Manifest:
    """Return a part of a schema without a pattern that Helm cannot read."""
    pattern = schema.get("pattern")
    is_known = not isinstance(pattern, str) or not NOT_RE2.search(pattern)
    return schema if is_known else {key: one for key, one in schema.items() if key != "pattern"}


def _nullable(schema: Manifest) -> Manifest:
    """Return a schema that takes null too, which removes what the manifest has."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if not isinstance(schema.get("type"), str):  # anything, or null is one of several
        return schema
    enum = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    loose = _as_text(schema)
    return {**loose, "type": [*loose["type"], "null"], **enum}


def _as_text(schema: Manifest) -> Manifest:
    """Return the schema of a value, or of a list of such, which may also be as a flag has it."""
    kind = schema.get("type")
    if kind not in TEXTS:
        return {**schema, "type": [kind]} if kind else schema
    more = {"items": _as_text(schema["items"])} if kind == "array" else {"pattern": TEXTS[kind]}
    return {**schema, **more, "type": [kind, "string"]}


def _config_maps(components: Manifest) -> list[str]:
    """Return the names of the ConfigMaps that components bring."""
    objects = [one for component in components.values() for one in component["objects"]]
    return [one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"]


def _switches(names: Iterable[str]) -> Manifest:
    """Return the schema of an object with these booleans."""
    return _closed({name: {"type": "boolean"} for name in names})


def _closed(properties: Manifest) -> Manifest:
    """Return the schema of an object that has these properties only."""
    return {"type": "object", "additionalProperties": False, "properties": properties}
