"""The JSON Schema of the configuration, for editors: ``python -m deviceplugin_generic.schema``.

Made of the same tables by which the configuration is read.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, get_args

from deviceplugin_generic import globs, templates, words
from deviceplugin_generic.entries import MAX_COUNT
from deviceplugin_generic.plugin import GenericSettings
from deviceplugin_generic.sharing import Overlap

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TRUTH: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": MAX_COUNT}
_LOOKS: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": words.MOST_LOOKS}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _text(pattern: str, description: str) -> Schema:
    return {"type": "string", "pattern": pattern, "description": description}


def _template(start: str, known: Iterable[str], description: str) -> Schema:
    braces = rf"(?:[^{{}}]|\{{\{{|\}}\}}|\{{(?:{'|'.join(known)})\}})*$"
    return _text(f"{start}{braces}", description)


def _list(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items, **({"minItems": least} if least else {})}


def _texts(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _choice(choices: Sequence[str]) -> Schema:
    return {"enum": [*choices]}


def _object(
    known: Sequence[str], values: Mapping[str, Schema], needed: Sequence[str] = ()
) -> Schema:
    """Return the schema of a mapping with the ``known`` keys and no others."""
    properties = {key: values[key] for key in known}
    more = {"required": [*needed]} if needed else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def _with(key: str, value: object) -> Schema:
    return {"properties": {key: {"enum": [value]}}}


_PATTERN: Final = _text(
    rf"^\s*{globs.PATTERN[1:]}", "Absolute path; a pattern as of Go's path.Match"
)
_MOUNT_PATH: Final = _text(
    words.MOUNT_PATH,
    "Path in the container, which may have {position}; one that ends in / is a directory, to which "
    "the file name is added",
)
_PERMISSIONS: Final = _text(words.PERMISSIONS, "Of m, r and w; mrw for paths and rw for others")
_SUBSYSTEM: Final = _text(words.SUBSYSTEM, "Subsystem in sysfs, such as tty")
_DURATION: Final = _text(words.DURATION, "Such as 500ms or 30s")


def _path() -> Schema:
    mount = {**_with("type", "Mount"), "required": ["type"]}
    values = {
        "path": _PATTERN,
        "mountPath": _MOUNT_PATH,
        "permissions": _PERMISSIONS,
        "readOnly": _TRUTH,
        "type": _choice(words.TYPES),
        "limit": {**_COUNT, "description": "How often one hit may be used; 1 where not given"},
        "optional": _TRUTH,
    }
    return {
        **_object(words.PATH, values, ["path"]),
        "if": mount,
        "then": {"not": {"required": ["permissions"]}},
        "anyOf": [mount, _with("readOnly", value=False)],
    }


def _usb() -> Schema:
    values = {"vendor": _ref("hexadecimal"), "product": _ref("hexadecimal"), "serial": _TEXT}
    return _object(words.USB, values, ["vendor", "product"])


def _presences() -> Schema:
    return {
        **_texts({"anyOf": [_ref("pattern"), {"type": "null"}]}),
        "description": "Patterns; null for what must not be there",
    }


def _criteria() -> dict[str, Schema]:
    return {
        **dict.fromkeys(("name", "serial", "driver"), _ref("pattern")),
        **dict.fromkeys(("vendor", "product"), _ref("hexadecimal")),
        **dict.fromkeys(("properties", "attributes"), _presences()),
        "class": _text(words.PCI_CLASS, "Leading digits of the PCI class, such as 0300"),
        "link": _PATTERN,
    }


def _select() -> Schema:
    excluded = {"anyOf": [_ref("excluded"), _list(_ref("excluded"), 1)]}
    values = {**_criteria(), "subsystem": _SUBSYSTEM, "not": excluded}
    return _object(words.SELECT, values, ["subsystem"])


def _excluded() -> Schema:
    return {**_object(words.EXCLUDED, _criteria()), "minProperties": 1}


def _group() -> Schema:
    values = {
        "count": {
            "anyOf": [_COUNT, _choice([words.UNLIMITED])],
            "description": "Shares; 1 where not given",
        },
        "paths": _list(_ref("path"), 1),
        "usb": _list(_ref("usb"), 1),
        "select": _ref("select"),
        "nodes": _list({"anyOf": [_SUBSYSTEM, _ref("select")]}),
        "perMatch": _TRUTH,
        "mountPath": _MOUNT_PATH,
        "permissions": _PERMISSIONS,
        "with": _list(_text(words.NODE, "A device node that all devices need, such as /dev/kfd")),
    }
    others = {"not": {"anyOf": [{"required": [key]} for key in words.BEHIND]}}
    return {
        **_object(words.GROUP, values),
        "oneOf": [
            {"required": [kind], **(others if kind == "paths" else {})} for kind in words.KINDS
        ],
    }


def _health() -> Schema:
    values = {
        "open": _TRUTH,
        "command": _list(_ref("template"), 1),
        "properties": _texts(_ref("pattern")),
        **dict.fromkeys(("timeout", "interval"), _DURATION),
        **dict.fromkeys(("failures", "successes"), _LOOKS),
    }
    return _object(words.HEALTH, values)


def _mount() -> Schema:
    paths = {"path": _ref("absoluteTemplate"), "mountPath": _ref("absoluteInsideTemplate")}
    return _object(words.MOUNT, {**paths, "readOnly": _TRUTH}, ["path"])


def _device() -> Schema:
    values = {
        "name": _text(words.NAME, "Name of the resource, without its domain"),
        "groups": _list(_ref("group"), 1),
        "id": _choice(words.IDENTITIES),
        **dict.fromkeys(("env", "annotations"), _texts(_ref("insideTemplate"))),
        "mounts": _list(_ref("mount")),
        "cdi": _list({**_text(words.CDI, "Such as vendor.com/class=name"), **_ref("template")}),
        "health": _ref("health"),
        "policy": _choice(words.POLICIES),
    }
    return _object(words.ENTRY, values, ["name", "groups"])


def _settings() -> Schema:
    names = [field.name.replace("_", "-") for field in fields(GenericSettings)]
    known = [*dict.fromkeys([*words.SETTINGS, *names])]
    domain = _text(words.DOMAIN, "Domain of all resource names; several are a list")
    values = {
        **dict.fromkeys(known, _TEXT),
        **dict.fromkeys(("device", "devices"), _list(_ref("device"))),
        "domain": {"anyOf": [domain, _list(domain, 1)]},
        "overlap": _choice(get_args(Overlap)),
    }
    return {**_object(known, values), "not": {"required": ["device", "devices"]}}


def schema() -> Schema:
    """Return the schema of the whole file."""
    rule = {"devicematch": _TEXT, "nummaxdevices": _COUNT}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of generic-device-plugin",
        "anyOf": [_settings(), _list(_ref("rule")), {"type": "null"}],
        "$defs": {
            "pattern": _text(f"^{globs.PATTERN[2:]}", "A pattern as of Go's path.Match"),
            "template": _template(
                "^", templates.PROPERTIES, "May have properties in braces, such as {serial}"
            ),
            "absoluteTemplate": _template(
                "^/", templates.PROPERTIES, "The same, of an absolute path"
            ),
            "insideTemplate": _template(
                "^", templates.INSIDE, "The same, and {position}: the number in the container"
            ),
            "absoluteInsideTemplate": _template(
                "^/", templates.INSIDE, "The same, of an absolute path in the container"
            ),
            "hexadecimal": _text(words.HEXADECIMAL, "Four hexadecimal digits, in quotes"),
            "path": _path(),
            "usb": _usb(),
            "select": _select(),
            "excluded": _excluded(),
            "group": _group(),
            "health": _health(),
            "mount": _mount(),
            "device": _device(),
            "rule": _object(words.RULE, rule, words.RULE),
        },
    }


def text() -> str:
    """Return what is in ``schema.json``."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
