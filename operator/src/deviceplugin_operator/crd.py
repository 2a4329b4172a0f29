"""The CustomResourceDefinition, made of the plugins' settings.

``python -m deviceplugin_operator.crd`` prints it. With ``--write`` it writes the file below
``deployments/operator/crd``, and with ``--check`` it exits with 1 if that is not current.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from deviceplugin.kit.configuration import settings_schema
from deviceplugin_operator.catalogue import CUSTOM, PLUGINS, Hosted
from deviceplugin_operator.deployments_folder import DEPLOYMENTS, components
from deviceplugin_operator.names import (
    GROUP,
    KIND,
    MAX_NAME,
    MAX_PROFILE,
    NAME,
    PLURAL,
    PROFILE,
    VERSION,
)
from deviceplugin_operator.status_schema import COLUMNS, STATUS
from deviceplugin_operator.structural import FREE, structural

FILE: Final = DEPLOYMENTS / "operator/crd/deviceplugins.yaml"
MAX_PROFILES: Final = 16
_DURATION: Final = "^([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+$"
_LABEL: Final = {"type": "string", "maxLength": 317}

Schema = dict[str, Any]
_HEADER: Final = """\
# Written by `python -m deviceplugin_operator.crd --write`, of the plugins' settings: edit those.
"""


def settings_of(plugin: Hosted) -> Schema:
    """Return the schema of what an object says below the name of ``plugin``."""
    known = settings_schema(plugin.settings)["properties"]
    keys = {
        plugin.renamed.get(key, key): structural(one)
        for key, one in known.items()
        if key not in plugin.kept
    }
    return {
        "type": "object",
        "description": "What its configuration file has, by the same keys. What is not said here "
        "is as deployments/ has it.",
        "properties": keys,
    }


_CUSTOM: Final[Schema] = {
    "type": "object",
    "description": "A plugin that is not of this repository, and is made with its framework",
    "properties": {
        "config": {
            "type": "object",
            "description": "Its configuration file. Nothing but the plugin itself checks it.",
            **FREE,
        },
        "resources": {
            "type": "array",
            "maxItems": 64,
            "x-kubernetes-list-type": "set",
            "description": "What it offers, such as example.com/lamp or example.com/*; the devices "
            "of these are counted",
            "items": {"type": "string", "maxLength": 317, "pattern": "^[a-z0-9.-]+/[^/]+$"},
        },
    },
}
_ROLLOUT: Final[Schema] = {
    "type": "object",
    "description": "How nodes get what has changed. Nodes that are not ready do not count.",
    "properties": {
        "canary": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100,
            "default": 1,
            "description": "Nodes that get it before all others do",
        },
        "maxUnavailable": {
            "x-kubernetes-int-or-string": True,
            "pattern": "^([1-9][0-9]?|100)%$",
            "minimum": 1,
            "default": "10%",
            "description": "Nodes that may be without the plugin at the same time, at least one",
        },
        "deadline": {
            "type": "string",
            "maxLength": 32,
            "pattern": _DURATION,
            "default": "2m",
            "description": "A node that is not well after this long has failed, and ends it",
        },
        "onFailure": {
            "type": "string",
            "enum": ["RollBack", "Halt"],
            "default": "RollBack",
            "description": "Go back to what was good before, or leave it as it is",
        },
        "allowFewerDevices": {
            "type": "boolean",
            "default": False,
            "description": "Whether a node is well with fewer devices than it had before",
        },
    },
}


def _union() -> Schema:
    return {**{name: settings_of(one) for name, one in PLUGINS.items()}, CUSTOM: _CUSTOM}


def _undescribed(keys: Schema) -> Schema:
    """Return the same keys without their descriptions, which stand in another place already."""
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
        "profileLabel: belongs to profiles, and they to it",
    )
    yield _rule(
        f"!has(self.profiles) || self.profiles.all(one, one.matches('{PROFILE}'))",
        f"profiles: a name is 1 to {MAX_PROFILE} lower-case letters, digits and hyphens",
    )


def _spec() -> Schema:
    union = _union()
    own = {
        "plugin": {
            "type": "string",
            "enum": [*PLUGINS, CUSTOM],
            "description": "Which plugin; custom is one that is not of this repository",
            "x-kubernetes-validations": [
                _rule("self == oldSelf", "cannot be changed: make another object")
            ],
        },
        "image": {
            "type": "string",
            "maxLength": 512,
            "pattern": "^[^\\s]+$",
            "description": "Its image; that of the operator's own release where not given",
        },
        "paused": {"type": "boolean", "description": "Whether nothing at all is changed"},
        "nodeSelector": {
            "type": "object",
            "maxProperties": 16,
            "additionalProperties": {"type": "string", "maxLength": 63},
            "description": "Labels of the nodes that get it",
        },
        "profileLabel": {
            **_LABEL,
            "description": "The label of a node whose value says which of profiles is for it",
        },
        "profiles": {
            "type": "object",
            "maxProperties": MAX_PROFILES,
            "additionalProperties": {"type": "object", "properties": _undescribed(union)},
            "description": "Settings for some nodes, by the value of their label profileLabel. A "
            "key here takes the place of the same key above.",
        },
        "components": {
            "type": "array",
            "maxItems": 16,
            "x-kubernetes-list-type": "set",
            "items": {"type": "string", "enum": [*components()]},
            "description": "Of deployments/components",
        },
        "rollout": _ROLLOUT,
    }
    rules = [*_rules()]
    return {
        "type": "object",
        "required": ["plugin"],
        "x-kubernetes-validations": rules,
        "properties": {**own, **union},
    }


def crd() -> Schema:
    """Return the CustomResourceDefinition."""
    names = {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower()}
    root = {
        "type": "object",
        "required": ["spec"],
        "description": "A device plugin on all nodes, or some",
        "x-kubernetes-validations": [
            _rule(
                f"self.metadata.name.matches('{NAME}')",
                f"metadata.name: 1 to {MAX_NAME} lower-case letters, digits and hyphens",
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
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": {"status": {}},
        "additionalPrinterColumns": COLUMNS,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {**names, "shortNames": ["dpl"]},
            "versions": [version],
        },
    }


class _Plain(yaml.SafeDumper):
    """Writes what stands at several places at each of them."""

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


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
