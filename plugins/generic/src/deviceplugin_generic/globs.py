"""Patterns of paths, as Go's ``path.Match`` has them, which is what the configuration means.

They differ from Python's: ``[^a]`` is the negation, ``*`` takes dot files too, ``**`` is no more
than ``*``, braces stand for themselves, and a malformed class is an error.
"""

import os
import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

_CHARACTER: Final = r"(?:[^\\\]\-]|\\.)"
_CLASS: Final = rf"\[(?:\^|(?!\^))(?:{_CHARACTER}(?:-{_CHARACTER})?)+\]"
PATTERN: Final = rf"^/(?:[^\\\[]|\\.|{_CLASS})*$"
"""Absolute and well formed. In a dialect that JSON Schema has too."""

_PATTERN: Final = re.compile(PATTERN, re.DOTALL)
_TOKEN: Final = re.compile(rf"\\(.)|(\*)|(\?)|({_CLASS})|(.)", re.DOTALL)
_ITEM: Final = re.compile(rf"({_CHARACTER})(?:-({_CHARACTER}))?", re.DOTALL)
_MAGIC: Final = re.compile(r"[*?\[\\]")


def problem(pattern: str) -> str:
    """Return what is wrong with ``pattern``, or an empty string."""
    if not pattern.startswith("/"):
        return "is not absolute"
    if "\0" in pattern:
        return "has a zero byte"
    return "" if _PATTERN.search(pattern) else "is malformed: see its [ and \\"


def is_magic(pattern: str) -> bool:
    """Tell whether ``pattern`` can match anything but itself."""
    return bool(_MAGIC.search(pattern))


def matches(text: str, pattern: str) -> bool:
    """Tell whether all of ``text`` matches ``pattern``; slashes are matched by slashes only."""
    return _regex(pattern).fullmatch(text) is not None


def glob(pattern: str) -> list[str]:
    """Return the paths that match, in the order of their bytes.

    A pattern without magic matches what exists, links followed; others also match broken links.
    """
    pattern = posixpath.normpath(pattern)
    if not is_magic(pattern):
        return [pattern] if os.path.exists(pattern) else []  # noqa: PTH110 - thousands of these
    return sorted(_glob(pattern), key=os.fsencode)


def directories(pattern: str) -> set[str]:
    """Return the directories in which something that matches can come or go."""
    parent = posixpath.dirname(posixpath.normpath(pattern))
    if not is_magic(parent):
        return {parent}
    return {*directories(parent), *_glob(parent)}


def _glob(pattern: str) -> Iterator[str]:
    parent, name = posixpath.split(pattern)
    if not name:
        yield pattern
        return
    regex = _regex(name)
    for directory in _glob(parent) if is_magic(parent) else (parent,):
        for entry in _names(directory):
            if regex.fullmatch(entry):
                yield posixpath.join(directory, entry)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names, and thousands of them
    except OSError:  # as the pattern says nothing of it, it is no match
        return []


@lru_cache(maxsize=4096)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(_translate(found) for found in _TOKEN.finditer(pattern)), re.DOTALL)


def _translate(found: re.Match[str]) -> str:
    escaped, star, question, characters, plain = found.groups()
    if star:
        return "[^/]*"
    if question:
        return "[^/]"
    return _class(characters) if characters else re.escape(escaped or plain)


def _class(text: str) -> str:
    negated = text[1] == "^"
    parts = []
    for low, high in _ITEM.findall(text[2 if negated else 1 : -1]):
        first, last = low[-1], (high or low)[-1]
        if first <= last:
            parts.append(f"{re.escape(first)}-{re.escape(last)}")
    if not parts:
        return r"[^/]" if negated else r"(?!)"
    return f"(?!/)[{'^' if negated else ''}{''.join(parts)}]"
