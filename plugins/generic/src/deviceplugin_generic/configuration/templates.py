"""Templates with properties of a device in braces, such as ``/dev/by-serial/{serial}``."""

import re
from collections.abc import Mapping
from typing import Final

from deviceplugin.kit.configuration import suggestion

PROPERTIES: Final = {
    "id": "the device's id",
    "name": "the entry's name",
    "index": "number of the device in its entry, from 0, in the order of discovery",
    "share": "number of the share, from 0",
    "path": "the first device node, or the first mount, on the host",
    "basename": "the last part of that path",
    "serial": "serial number of the USB or other parent device",
    "port": "where it is plugged in: the USB port, such as 1-2.3, or the PCI address",
    "vendor": "four hexadecimal digits",
    "product": "four hexadecimal digits",
    "address": "address of the nearest PCI device",
    "group": "IOMMU group of the device, or of the nearest one above it that has one",
    "driver": "the nearest kernel driver",
}
"""The properties. One that a device does not have is empty."""

POSITION: Final = "{position}"
"""Filled in by the framework: it is unknown until a container gets the device."""
INSIDE: Final = {
    **PROPERTIES,
    "position": "number of the device among those of the container, from 0",
}
"""The properties in templates that only the container sees."""

_FIELD: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def problem(template: str, known: Mapping[str, str] = PROPERTIES) -> str:
    """Return why ``template`` is invalid, or an empty string."""
    for found in _FIELD.finditer(template):
        name = found[1]
        if name is None and found[0] in {"{", "}"}:
            return f"{template!r} has a brace without its other: write {found[0] * 2} for itself"
        if name is not None and name not in known:
            if name in INSIDE:
                return f"{{{name}}} is unknown until a container gets the device: use {{index}}"
            return f"{{{name}}} is not a property of a device: {suggestion(name, known)}"
    return ""


def is_numbered(template: str) -> bool:
    """Return whether ``template`` contains the position of the device."""
    return any(found[1] == "position" for found in _FIELD.finditer(template))


def fill(template: str, properties: Mapping[str, str]) -> str:
    """Return ``template`` with names replaced by properties."""

    def value(found: re.Match[str]) -> str:
        return found[0][0] if found[1] is None else properties.get(found[1], "")

    return _FIELD.sub(value, template) if "{" in template or "}" in template else template
