"""Values in the configuration, read from their places; what is wrong is noted there."""

import os
import re
import stat
from collections.abc import Callable, Mapping
from typing import Final

from deviceplugin_generic import globs, templates, words
from deviceplugin_generic.cursors import Cursor, texts_of
from deviceplugin_generic.entries import MAX_COUNT

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST: Final = 86400.0


def items(keys: dict[str, Cursor], key: str) -> list[Cursor]:
    """Return the items of the list at ``key``; none where it is not given."""
    return keys[key].items() if key in keys else []


def text(keys: dict[str, Cursor], key: str) -> str:
    """Return the text at ``key``, or an empty one."""
    return keys[key].text() or "" if key in keys else ""


def choice(keys: dict[str, Cursor], key: str, *choices: str) -> str:
    """Return which of ``choices`` is at ``key``, or an empty text."""
    return keys[key].choice(*choices) if key in keys else ""


def number(keys: dict[str, Cursor], key: str, least: int = 0, most: int = MAX_COUNT) -> int:
    """Return the whole number at ``key``, from ``least`` to ``most``, or 0."""
    return keys[key].number(least=least, most=most) or 0 if key in keys else 0


def matching(keys: dict[str, Cursor], key: str, pattern: str, wanted: str) -> str:
    """Return the text at ``key`` if ``pattern`` matches it, or an empty one.

    ``wanted`` says for people what the pattern matches.
    """
    value = keys[key].text() if key in keys else None
    if value is not None and not words.has_form(value, pattern):
        keys[key].fault(f"{value!r} is not {wanted}")
        return ""
    return value or ""


def permissions(keys: dict[str, Cursor]) -> str:
    """Return the permissions of a device node, or an empty text."""
    return matching(keys, "permissions", words.PERMISSIONS, "of the letters m, r and w, each once")


def hexadecimal(keys: dict[str, Cursor], key: str) -> int | None:
    """Return the number of four hexadecimal digits at ``key``, or None."""
    cursor = keys.get(key)
    if cursor is None:
        return None
    if cursor.kind in {"int", "float"}:
        cursor.fault(
            f"{cursor.raw} without quotes is a decimal number to some and hexadecimal to others: "
            f'write "{cursor.raw}"'
        )
        return None
    text = cursor.text()
    if text is not None and not words.has_form(text, words.HEXADECIMAL):
        cursor.fault(f"{text!r} is not a hexadecimal number of four digits")
        return None
    return None if text is None else int(text, 16)


def duration(keys: dict[str, Cursor], key: str) -> float:
    """Return the duration at ``key`` in seconds, or 0."""
    text = matching(keys, key, words.DURATION, "a duration, such as 500ms or 30s")
    found = re.match(r"([0-9.]+)([a-z]+)", text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if found and not 0 < seconds <= _LONGEST:
        keys[key].fault(f"{text!r} is not between 0 and a day")
    return seconds


def checked(problem: Callable[[str], str], cursor: Cursor) -> str:
    """Return a text in which ``problem`` finds none."""
    value = cursor.text()
    what = problem(value) if value is not None else ""
    if what:
        cursor.fault(f"{value!r} {what}")
    return "" if what else value or ""


def pattern(keys: dict[str, Cursor], key: str) -> str:
    """Return the pattern of paths at ``key``, or an empty text."""

    def problem(pattern: str) -> str:
        return globs.problem(pattern.strip())

    return checked(problem, keys[key]).strip() if key in keys else ""


def mount_path(keys: dict[str, Cursor]) -> str:
    """Return where in the container something is to be, or an empty text."""

    def problem(path: str) -> str:
        return "" if words.has_form(path, words.MOUNT_PATH) else "is not absolute"

    return checked(problem, keys["mountPath"]).strip() if "mountPath" in keys else ""


def absolute(
    keys: dict[str, Cursor], key: str, known: Mapping[str, str] = templates.PROPERTIES
) -> str:
    """Return the absolute path at ``key``, a template of what is ``known``, or an empty text."""
    if key not in keys:
        return ""
    if not checked(lambda path: "" if path.startswith("/") else "is not absolute", keys[key]):
        return ""
    return template(keys[key], known)


def no_node(keys: dict[str, Cursor], key: str) -> str:
    """Return an absolute path at which there is no device node, as far as can be seen from here."""
    path = absolute(keys, key)
    try:
        mode = os.stat(path).st_mode if path else 0  # noqa: PTH116 - may have a zero byte
    except (OSError, ValueError):
        return path
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        keys[key].fault(f"{path!r} {words.NODE_AS_MOUNT}")
    return path


def wild_problem(pattern: str) -> str:
    """Return what is wrong with ``pattern`` as a pattern of names, or an empty text."""
    return globs.problem("/" + pattern)


def wildcard(keys: dict[str, Cursor], key: str) -> str:
    """Return the pattern of names at ``key``, or an empty text."""
    return checked(wild_problem, keys[key]) if key in keys else ""


def wildcards(keys: dict[str, Cursor], key: str) -> dict[str, str]:
    """Return the patterns of names in the mapping at ``key``."""
    inner = keys[key].mapping() if key in keys else {}
    return {name: checked(wild_problem, cursor) for name, cursor in inner.items()}


def template(cursor: Cursor, known: Mapping[str, str] = templates.PROPERTIES) -> str:
    """Return a template of what is ``known``, or an empty text."""
    value = cursor.text()
    if value is not None and (what := templates.problem(value, known)):
        cursor.fault(what)
        return ""
    return value or ""


def named_templates(keys: dict[str, Cursor], key: str, forbidden: str = "\0") -> dict[str, str]:
    """Return the templates in the mapping at ``key``, by their names."""
    inner = keys[key].mapping() if key in keys else {}
    for name, cursor in inner.items():
        template(cursor, templates.INSIDE)
        if not name or set(forbidden) & set(name):
            cursor.fault(f"{name!r} cannot be a name")
        if what := templates.problem(name, templates.INSIDE):
            cursor.fault(what)
    return texts_of(inner)
