"""Strings of the configuration: patterns, templates, hexadecimal numbers, paths."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from deviceplugin.kit.configuration import Kind, Place, either, mapping_of, nothing, text
from deviceplugin_generic.configuration import entries, globs, go_expressions, templates

_LONE: Final = {"integer", "number"}
_BRACES: Final = r"\{\{|\}\}"
_LITERAL: Final = rf"[^{{}}]|{_BRACES}"


def _checked(
    problem: Callable[[str], str], pattern: str, description: str, *, strip: bool = False
) -> Kind[str]:
    """Return a form for strings that ``problem`` accepts. Editors check them by ``pattern``."""
    kind = text(problem=lambda raw: problem(raw.strip() if strip else raw), strip=strip)
    return replace(kind, schema={"type": "string", "pattern": pattern, "description": description})


def _hexadecimal() -> Kind[int]:
    kind = text(entries.HEXADECIMAL, "a hexadecimal number of four digits")

    def read(place: Place) -> int:
        if place.kind in _LONE:
            raise place.fault(
                f"{place.raw} without quotes is a decimal number to some and hexadecimal to "
                f'others: write "{place.raw}"'
            )
        return int(kind.read(place), 16)

    described = {**kind.schema, "description": "Four hexadecimal digits, in quotes"}
    return Kind(read, described, kind.takes, kind.wanted, "hexadecimal")


def _template(
    name: str, known: Mapping[str, str], description: str, pattern: str = ""
) -> Kind[str]:
    def check(place: Place, value: str) -> str:
        if what := templates.problem(value, known):
            raise place.fault(what)
        return value

    pattern = pattern or f"^(?:{_LITERAL}|{_field(known)})*$"
    return text().then(check, {"pattern": pattern, "description": description}).called(name)


def _path_template(name: str, known: Mapping[str, str], description: str) -> Kind[str]:
    def check(place: Place, value: str) -> str:
        if what := templates.path_problem(value):
            raise place.fault(f"{value!r} {what}")
        return value

    return _template(name, known, description, _of_path(known)).then(check)


def _field(known: Iterable[str]) -> str:
    return rf"\{{(?:{'|'.join(known)})\}}"


def _of_path(known: Iterable[str]) -> str:
    """Return the pattern of an absolute path without ``..``, whose first name is no device's."""
    others = [name for name in known if name not in templates.OWN]
    start, part = (_name(f"|{_BRACES}|{_field(names)}", "{}") for names in (others, known))
    return rf"^/(?:\.?/)*(?:\.?|{start}(?:/(?:\.?|{part}))*)$"


def _name(more: str = "", less: str = "") -> str:
    """Return the pattern of a name in a path that is neither empty nor ``.`` nor ``..``.

    It has no lookahead, which RE2 does not know.
    """
    any_, no_dot = f"(?:[^/{less}]{more})", f"(?:[^/.{less}]{more})"
    return rf"(?:\.?{no_dot}{any_}*|\.\.{any_}+)"


def _shared_node(path: str) -> str:
    if what := templates.path_problem(path):
        raise ValueError(what)
    if folder := globs.passed_over(path, "/dev"):
        raise ValueError(f"is in {folder}, {globs.REASON}")
    return globs.normalized(path)


PATTERN: Final = _checked(
    globs.problem,
    rf"^\s*{globs.PATTERN[1:]}",
    "Absolute path; a pattern as of Go's path.Match",
    strip=True,
)
WILDCARD: Final = _checked(
    lambda pattern: globs.problem("/" + pattern),
    f"^{globs.PATTERN[2:]}",
    "A pattern as of Go's path.Match",
).called("pattern")
PRESENCES: Final = mapping_of(
    either(WILDCARD, nothing(None)), lambda name: "has a zero byte" if "\0" in name else ""
).described("Patterns; null means must be absent")
MOUNT_PATH: Final = _checked(
    lambda path: templates.path_problem(path) if path else "",
    rf"^\s*(?:(?:/(?:\.?|{_name()}))+\s*)?$",
    "Path in the container, which may have {position}; one that ends in / is a directory, to which "
    "the file name is added",
    strip=True,
).to(lambda path: path and f"{globs.normalized(path)}{'/' * path.endswith('/')}")
PERMISSIONS: Final = text(entries.PERMISSIONS, "of the letters m, r and w, each once").described(
    "Of m, r and w; mrw for paths and rw for others"
)
SUBSYSTEM: Final = text(entries.SUBSYSTEM, "the name of a subsystem").described(
    "Subsystem in sysfs, such as tty"
)
NODE: Final = (
    text(entries.NODE, "the path of one device node below /dev")
    .to(_shared_node)
    .described("A device node that all devices need, such as /dev/kfd")
)
HEXADECIMAL: Final = _hexadecimal()
PCI_CLASS: Final = (
    text(entries.PCI_CLASS, "a hexadecimal number")
    .to(lambda digits: digits.lower().removeprefix("0x"))
    .described("Leading digits of the PCI class, such as 0300")
)
TEMPLATE: Final = _template(
    "template", templates.PROPERTIES, "May have properties in braces, such as {serial}"
)
WORD: Final = _template(
    "word",
    templates.COMMAND,
    "A word, or a property in braces that is one, such as {serial}",
    f"^(?:(?:{_LITERAL})*|{_field(templates.COMMAND)})$",
)
PATH_TEMPLATE: Final = _path_template(
    "absoluteTemplate", templates.PROPERTIES, "The same, of an absolute path"
)
INSIDE_TEMPLATE: Final = _template(
    "insideTemplate", templates.INSIDE, "The same, and {position}: the number in the container"
)
INSIDE_PATH_TEMPLATE: Final = _path_template(
    "absoluteInsideTemplate", templates.INSIDE, "The same, of an absolute path in the container"
)


def _name_problem(name: str, known: Mapping[str, str], forbidden: str) -> str:
    if not name or set(forbidden) & set(name):
        return f"{name!r} cannot be a name"
    return templates.problem(name, known)


ANNOTATIONS: Final = mapping_of(
    INSIDE_TEMPLATE, lambda name: _name_problem(name, templates.INSIDE, "\0")
)
"""Templates, whose keys are templates too."""
VARIABLES: Final = mapping_of(
    INSIDE_TEMPLATE, lambda name: _name_problem(name, templates.IN_NAMES, "=\0")
)
"""The same, of environment variables."""


def _no_node(place: Place, path: str) -> str:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - may have a zero byte
    except (OSError, ValueError):
        return path
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise place.fault(f"{path!r} {entries.NODE_AS_MOUNT}")
    return path


MOUNTED: Final = PATH_TEMPLATE.then(_no_node)
"""A path that is not a device node, as far as this process can see."""


def _cdi(place: Place, name: str) -> str:
    return text(entries.CDI, "of the form vendor.com/class=name").read(place) and name


CDI: Final = replace(
    TEMPLATE.then(_cdi), schema={"allOf": [TEMPLATE, {"type": "string", "pattern": entries.CDI}]},
    name="",
)  # fmt: skip


def _is_expression(pattern: str) -> str:
    try:
        go_expressions.compiled(pattern)
    except ValueError as error:
        return f"is not a regular expression of Go: {error}"
    return ""


DEVICE_MATCH: Final = text(problem=_is_expression)
