"""The CustomResourceDefinition, generated from the plugins' settings.

``python -m deviceplugin_operator.crd`` prints it. With ``--write`` it writes the file below
``deployments/operator/crd``, and with ``--check`` it exits with 1 if that is not current.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from deviceplugin.kit.configuration import settings_schema
from deviceplugin_operator import names
from deviceplugin_operator.crd.catalogue import CUSTOM, PLUGINS
from deviceplugin_operator.crd.status_schema import COLUMNS, STATUS
from deviceplugin_operator.crd.structural_schema import FREE, structural
from deviceplugin_operator.manifests import components

FILE: Final = Path(__file__).parents[4] / "deployments/operator/crd/deviceplugins.yaml"
"""In a checkout."""
_DURATION: Final = "^([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+$"
_LABEL: Final = {"type": "string", "maxLength": 317, "pattern": names.LABEL}
_VALUE: Final = {"type": "string", "maxLength": 63, "pattern": names.LABEL_VALUE}
_IN_DOMAIN: Final = f"indexOf('/') <= {names.MAX_DOMAIN}"

Schema = dict[str, Any]
_HEADER: Final = """\
# Generated from the plugins' settings by `python -m deviceplugin_operator.crd --write`.
"""


def settings_of(name: str) -> Schema:
    """Return the schema of what an object says below the name of a plugin."""
    plugin = PLUGINS[name]
    known = settings_schema(plugin.settings)["properties"]
    keys = {
        plugin.renamed.get(key, key): structural(one)
        for key, one in known.items()
        if key not in plugin.kept
    }
    return {
        "type": "object",
        "description": f"Settings of the plugin {name}, with the keys of its configuration file. "
        "Settings that are not given are as in deployments/.",
        "properties": keys,
    }


_CUSTOM: Final[Schema] = {
    "type": "object",
    "description": "Settings of a plugin that is not in this repository",
    "properties": {
        "config": {
            "type": "object",
            "description": "Its configuration file. Only the plugin itself checks it.",
            **FREE,
        },
        "resources": {
            "type": "array",
            "maxItems": names.MAX_RESOURCES,
            "x-kubernetes-list-type": "set",
            "description": "The resources that it offers, such as example.com/lamp or "
            "example.com/*. Their devices are counted",
            "items": {"type": "string", "maxLength": 308, "pattern": names.RESOURCES},
        },
    },
}
_ROLLOUT: Final[Schema] = {
    "type": "object",
    "description": "How a change reaches the nodes. Nodes that are not ready are skipped.",
    "properties": {
        "canary": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100,
            "default": 1,
            "description": "Number of nodes that get a change first",
        },
        "maxUnavailable": {
            "x-kubernetes-int-or-string": True,
            "pattern": "^([1-9][0-9]?|100)%$",
            "minimum": 1,
            "default": "10%",
            "description": "Number or percentage of nodes that may be without the plugin at the "
            "same time; at least one",
        },
        "deadline": {
            "type": "string",
            "maxLength": 32,
            "pattern": _DURATION,
            "default": "2m",
            "description": "How long a node may take to be ready with all its devices. If one "
            "takes longer, the roll-out fails. Below 1m, so does an outage of a kubelet, because "
            "Kubernetes takes 40 s to 50 s to report that a node is not ready",
        },
        "onFailure": {
            "type": "string",
            "enum": ["RollBack", "Halt"],
            "default": "RollBack",
            "description": "What happens after a failure: RollBack goes back to the last good "
            "state, Halt stops",
        },
        "allowFewerDevices": {
            "type": "boolean",
            "default": False,
            "description": "Whether a node may have fewer devices than before, or the plugin no "
            "longer",
        },
    },
}


def _union() -> Schema:
    return {**{name: settings_of(name) for name in PLUGINS}, CUSTOM: _CUSTOM}


def _undescribed(keys: Schema) -> Schema:
    """Return the same keys without their descriptions, which are in the file once already."""
    found = {}
    for key, one in keys.items():
        found[key] = {name: value for name, value in one.items() if name != "description"}
        for inner in {"properties"} & found[key].keys():
            found[key][inner] = _undescribed(found[key][inner])
        for inner in {"items", "additionalProperties"} & found[key].keys():
            found[key] |= _undescribed({inner: found[key][inner]})
    return found


def _rule(rule: str, message: str, **more: str) -> Schema:
    return {"rule": rule, "message": message, **more}


_SELECTOR: Final[Schema] = {
    "type": "object",
    "maxProperties": names.MAX_LABELS,
    "additionalProperties": _VALUE,
    "description": "Labels of the nodes that the plugin runs on. A change that leaves a "
    "node without the plugin needs rollout.allowFewerDevices",
    "x-kubernetes-validations": [
        _rule(
            f"self.all(key, key.matches('{names.LABEL}') && key.{_IN_DOMAIN})",
            "a key is not that of a label",
        )
    ],
}


def _rules() -> Iterator[Schema]:
    for name in (*PLUGINS, CUSTOM):
        yield _rule(
            f"self.plugin == '{name}' || !has(self.{name})", f"{name}: is for plugin {name}"
        )
        yield _rule(
            f"self.plugin == '{name}' || !has(self.profiles) || "
            f"self.profiles.all(one, !has(self.profiles[one].{name}))",
            f"profiles: {name} is for plugin {name}",
        )
    yield _rule("self.plugin != 'custom' || has(self.image)", "image: is needed for plugin custom")
    yield _rule(
        "has(self.profiles) == has(self.profileLabel)",
        "profileLabel: is needed with profiles, and only with them",
    )
    yield _rule(
        f"!has(self.profiles) || self.profiles.all(one, one.matches('{names.PROFILE}'))",
        f"profiles: a name is 1 to {names.MAX_PROFILE} lower-case letters, digits and hyphens",
    )


def _spec() -> Schema:
    union = _union()
    own = {
        "plugin": {
            "type": "string",
            "enum": [*PLUGINS, CUSTOM],
            "description": "The plugin to run; custom is one that is not in this repository",
            "x-kubernetes-validations": [
                _rule("self == oldSelf", "cannot be changed: create another object")
            ],
        },
        "image": {
            "type": "string",
            "maxLength": names.MAX_IMAGE,
            "pattern": names.IMAGE,
            "description": "The plugin's image; by default that of the operator's release",
        },
        "paused": {
            "type": "boolean",
            "description": "Stops all changes, including roll-outs that are under way",
        },
        "nodeSelector": _SELECTOR,
        "profileLabel": {
            **_LABEL,
            "x-kubernetes-validations": [_rule(f"self.{_IN_DOMAIN}", "is not the key of a label")],
            "description": "The node label whose value is the name of the node's profile",
        },
        "profiles": {
            "type": "object",
            "maxProperties": names.MAX_PROFILES,
            "additionalProperties": {"type": "object", "properties": _undescribed(union)},
            "description": "Settings for some nodes: those whose label profileLabel has this "
            "value. A key here replaces the same key of the general settings.",
        },
        "components": {
            "type": "array",
            "maxItems": names.MAX_COMPONENTS,
            "x-kubernetes-list-type": "set",
            "items": {"type": "string", "enum": [*components()]},
            "description": "Components of deployments/components to add",
        },
        "rollout": _ROLLOUT,
    }
    rules = [*_rules()]
    return {
        "type": "object",
        "required": ["plugin"],
        "description": "Which plugin runs on which nodes, and with which settings",
        "x-kubernetes-validations": rules,
        "properties": {**own, **union},
    }


def crd() -> Schema:
    """Return the CustomResourceDefinition."""
    own = {
        "kind": names.KIND,
        "listKind": f"{names.KIND}List",
        "plural": names.PLURAL,
        "singular": names.KIND.lower(),
    }
    root = {
        "type": "object",
        "required": ["spec"],
        "description": "A device plugin on all nodes or on some",
        "x-kubernetes-validations": [
            _rule(
                f"self.metadata.name.matches('{names.NAME}')",
                f"metadata.name: 1 to {names.MAX_NAME} lower-case letters, digits and hyphens",
            )
        ],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": STATUS,
        },
    }
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": {"status": {}},
        "additionalPrinterColumns": COLUMNS,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Cluster",
            "names": {**own, "shortNames": ["dpl"]},
            "versions": [version],
        },
    }


class _Plain(yaml.SafeDumper):
    """Writes shared parts in full, without YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def text() -> str:
    """Return what is in the file."""
    return _HEADER + yaml.dump(crd(), Dumper=_Plain, sort_keys=False, width=100)


def main(words: Sequence[str], file: Path = FILE) -> int:
    """Do what the command line says; 1 if the file is not current."""
    match [*words]:
        case []:
            sys.stdout.write(text())
        case ["--write"]:
            file.write_text(text(), encoding="utf-8")
        case ["--check"]:
            if not file.is_file() or file.read_text(encoding="utf-8") != text():
                sys.stderr.write(
                    f"{file}: is not current: python -m deviceplugin_operator.crd --write\n"
                )
                return 1
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0
