"""Templates with properties of a device in braces, such as ``/srv/sticks/{serial}``.

Of the properties only those in ``OWN`` are the device's own words, which may be anything. In a path
each of them is one name, and in a command a word of its own, or a variable.
"""

import os
import re
from collections.abc import Mapping
from typing import Final

from deviceplugin.kit import cdi, files
from deviceplugin.kit.configuration import suggestion
from deviceplugin.kit.environment import Joined
from deviceplugin.kit.sysfs import shown
from deviceplugin_generic.configuration import globs

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
    "others": "addresses of the other functions of its IOMMU group that VFIO has, with commas",
    "uuid": "UUID of the mediated device",
    "usb": "bus and number of the nearest USB device, such as 1:5",
}
"""The properties. One that a device does not have is empty."""
OWN: Final = frozenset({"serial"})
"""What a device says of itself. The kernel or the configuration chooses all others."""
_SEVERAL_NAMES: Final = frozenset({"id", "path"})
"""Those that are several names, with slashes between them. In an id the device's own are escaped.
"""
COMMAND: Final = {name: PROPERTIES[name] for name in PROPERTIES if name not in {"id", "share"}}
"""The properties in commands, which check a device and not a share of it."""

POSITION: Final = "{position}"
"""Filled in by the framework: it is unknown until a container gets the device."""
INSIDE: Final = {
    **PROPERTIES,
    "position": "number of the device among those of the container, from 0",
}
"""The properties in templates that only the container sees."""

IN_NAMES: Final = {**INSIDE, "resource": "the resource, as in variables, such as DEVIC_ES_GPU"}
"""The properties in names of environment variables."""
RESOURCE: Final = "\0"
"""Filled in last: a device can be one of several resources. No name of a variable has it."""

_FIELD: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_CODE: Final = re.compile("-[A-Za-z]*[ce]")
"""Options before a word that shells and interpreters take for a program."""


def problem(template: str, known: Mapping[str, str] = PROPERTIES) -> str:
    """Return why ``template`` is invalid, or an empty string."""
    for found in _FIELD.finditer(template):
        name = found[1]
        if name is None and found[0] in {"{", "}"}:
            return f"{template!r} has a brace without its other: write {found[0] * 2} for itself"
        if name is not None and name not in known:
            if name in PROPERTIES:
                return f"{{{name}}} is unknown here: all shares of a device have one check"
            if name in IN_NAMES and name not in INSIDE:
                return f"{{{name}}} is for the names of environment variables only"
            if name in INSIDE:
                return f"{{{name}}} is unknown until a container gets the device: use {{index}}"
            return f"{{{name}}} is not a property of a device: {suggestion(name, known)}"
    return ""


def path_problem(template: str) -> str:
    """Return why ``template`` is not one of a path: what follows it in a message, or nothing."""
    if not template.startswith("/"):
        return "is not absolute"
    if "\0" in template:
        return "has a zero byte"
    # What {path} stands for begins with a slash.
    names = template.replace("{path}", "/{path}").split("/")
    if ".." in names:
        return "has '..': write the path without it"
    first = next((name for name in names if name not in {"", "."}), "")
    for name in OWN.intersection(_fields(first)):
        return (
            f"needs a directory before {{{name}}}, such as /srv/{{{name}}}: a device could name "
            "any directory in /"
        )
    return ""


def command_problem(words: tuple[str, ...], index: int) -> str:
    """Return why the word at ``index`` must not be in a command, or an empty string."""
    word, fields = words[index], _fields(words[index])
    if not fields:
        return ""
    field = f"{{{fields[0]}}}"
    advice = f"read the variable {variable(fields[0])}, which the command has"
    if word != field:
        return f"{word!r} has {field} as a part of a word: make it a word of its own, or {advice}"
    if index == 0:
        return f"{field} cannot be the program of a check"
    if fields[0] in OWN and _CODE.fullmatch(words[index - 1]):
        return f"{field} after {words[index - 1]} could be run as a program: {advice}"
    return ""


def variable(name: str) -> str:
    """Return the name of the variable that a command has a property in."""
    return f"DEVICE_{name.upper()}"


def is_numbered(template: str) -> bool:
    """Return whether ``template`` contains the position of the device."""
    return "position" in _fields(template)


def fill(template: str, properties: Mapping[str, str]) -> str:
    """Return ``template`` with names replaced by properties."""

    def property_of(found: re.Match[str]) -> str:
        return found[0][0] if found[1] is None else properties.get(found[1], "")

    return _FIELD.sub(property_of, template) if "{" in template or "}" in template else template


def part(template: str, properties: Mapping[str, str]) -> str:
    """Return what a device adds to a list. In its own words a comma is ``%2C``."""
    own = {name: properties.get(name, "").replace(",", "%2C") for name in OWN}
    return Joined(fill(template, {**properties, **own}))


def path(template: str, properties: Mapping[str, str]) -> str:
    """Return ``template`` with names replaced by properties, normalized.

    It stays below the directory of ``template`` before the first of them. A ValueError names the
    property that cannot be in a path.
    """
    for name in _fields(template):
        value = properties.get(name, "")
        names = value.removeprefix("/").split("/") if name in _SEVERAL_NAMES else [value]
        if what := next(filter(None, map(files.name_problem, names)), ""):
            raise ValueError(f"{template}: {name}{value and f' {shown(value)}'} {what}")
    names = fill(template, properties).split("/")
    if ".." in names or max(len(os.fsencode(name)) for name in names) > files.LONGEST_NAME:
        raise ValueError(f"{template}: {shown('/'.join(names))} is not a path of a file")
    return globs.normalized("/".join(names))


def is_one_name(template: str, properties: Mapping[str, str]) -> bool:
    """Return whether the device's own words add no name to a list of CDI devices."""
    own = (properties.get(name, "") for name in OWN.intersection(_fields(template)))
    return all(map(cdi.is_device_name, own))


def command(words: tuple[str, ...], properties: Mapping[str, str]) -> list[str]:
    """Return ``words`` with names replaced; ValueError if one would become an option."""
    for index, word in enumerate(words):
        for name in OWN.intersection(_fields(word)):
            value = properties.get(name, "")
            if value.startswith("-") and "--" not in words[:index]:
                raise ValueError(
                    f"{word}: {name} {shown(value)} could be an option: have the command read "
                    f"{variable(name)}, or write -- before it"
                )
    return [fill(word, properties) for word in words]


def _fields(template: str) -> list[str]:
    return [found[1] for found in _FIELD.finditer(template) if found[1] is not None]
