"""Patterns of paths in the syntax of Go's ``path.Match``, which the configuration uses.

They differ from Python's: ``[^a]`` negates, ``*`` matches dot files, ``**`` is the same as ``*``,
braces are literal, and a malformed class is an error.
"""

import os
import posixpath
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, takewhile
from typing import Final

_CHARACTER: Final = r"(?:[^\\\]\-]|\\.)"
_CLASS: Final = rf"\[(?:\^|(?!\^))(?:{_CHARACTER}(?:-{_CHARACTER})?)+\]"
PATTERN: Final = rf"^/(?:[^\\\[]|\\.|{_CLASS})*$"
"""An absolute, well-formed pattern. The syntax is also that of JSON Schema."""

_PATTERN: Final = re.compile(PATTERN, re.DOTALL)
_TOKEN: Final = re.compile(rf"\\(.)|(\*)|(\?)|({_CLASS})|(.)", re.DOTALL)
_ITEM: Final = re.compile(rf"({_CHARACTER})(?:-({_CHARACTER}))?", re.DOTALL)
_MAGIC: Final = re.compile(r"[*?\[\\]")
_bytes = os.fsencode

PASSED_OVER: Final = frozenset({"pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"})
"""Names of directories below ``/dev`` that runtimes ignore, and so do patterns and rules: what is
in them is not the kernel's, and in some everybody may make files."""
REASON: Final = "where runtimes look for no devices: what is there is not the kernel's"


def passed_over(path: str, dev: str) -> str:
    """Return the directory below ``dev`` that ``path`` is, or is in, if it is passed over."""
    start = f"{dev}/"
    path = normalized(path)
    names = path.removeprefix(start).split("/") if path.startswith(start) else []
    found = next((index for index, name in enumerate(names) if name in PASSED_OVER), None)
    return "" if found is None else start + "/".join(names[: found + 1])


def problem(pattern: str) -> str:
    """Return why ``pattern`` is invalid, or an empty string."""
    if not pattern.startswith("/"):
        return "is not absolute"
    if "\0" in pattern:
        return "has a zero byte"
    return "" if _PATTERN.search(pattern) else "is malformed: see its [ and \\"


def normalized(path: str) -> str:
    """Return an absolute path without ``..``, ``.`` and empty parts, and no slash at its end."""
    return "/" + posixpath.normpath(path).lstrip("/")


def is_magic(pattern: str) -> bool:
    """Return whether ``pattern`` can match anything but itself."""
    return bool(_MAGIC.search(pattern))


def literal(text: str) -> str:
    """Return a pattern that matches only ``text``."""
    return _MAGIC.sub(r"\\\g<0>", text)


def matches(text: str, pattern: str) -> bool:
    """Return whether all of ``text`` matches ``pattern``. Only a slash matches a slash."""
    return _regex(pattern).fullmatch(text) is not None


class Names:
    """Names in directories, each read once in a discovery, and the matches of patterns.

    In ``dev``, which is ``/dev`` but in tests, some directories are passed over.
    """

    def __init__(self, dev: str = "/dev") -> None:
        self._dev = dev
        self._known: dict[str, list[str]] = {}
        self._hits: dict[str, list[str]] = {}
        self._known_before, self._hits_before = self._known, self._hits
        self._changed: dict[str, list[str]] = {}

    def begin(self) -> None:
        """Begin a discovery: read the directories again."""
        self._known_before, self._known = self._known, {}
        self._hits_before, self._hits = self._hits, {}
        self._changed = {}

    def of(self, directory: str) -> list[str]:
        """Return all names, sorted; none if the directory cannot be read."""
        if directory not in self._known:
            try:
                names = sorted(os.listdir(directory))  # noqa: PTH208 - thousands
            except OSError:  # as the pattern says nothing of it, it is not a match
                names = []
            if f"{directory}/".startswith(f"{self._dev}/"):
                is_open = not passed_over(directory, self._dev)
                names = [name for name in names if is_open and name not in PASSED_OVER]
            before = self._known_before.get(directory, ())
            self._known[directory] = names
            self._changed[directory] = [*set(names).symmetric_difference(before)]
        return self._known[directory]

    def hits(self, directory: str, name: str) -> list[str]:
        """Return the paths in a directory whose names match a pattern.

        They are computed again if a matching name has come or gone since the last discovery.
        """
        pattern = posixpath.join(directory, name)
        if pattern not in self._hits:
            names, regex = self.of(directory), _regex(name)
            hits = self._hits_before.get(pattern)
            if hits is None or any(map(regex.fullmatch, self._changed[directory])):
                start = _MAGIC.split(name, maxsplit=1)[0]
                behind = islice(names, bisect_left(names, start), None)
                near = takewhile(lambda one: one.startswith(start), behind)
                folder = posixpath.join(directory, "")
                hits = sorted((folder + one for one in near if regex.fullmatch(one)), key=_bytes)
            self._hits[pattern] = hits
        return self._hits[pattern]


def glob(pattern: str, names: Names | None = None) -> list[str]:
    """Return the paths that match, in byte order.

    A pattern without wildcards matches if the target exists. Others also match broken links.
    """
    pattern = normalized(pattern)
    if not is_magic(pattern):
        return [pattern] if os.path.exists(pattern) else []  # noqa: PTH110 - thousands of these
    names = names or Names()
    parent, name = posixpath.split(pattern)
    if not is_magic(parent):
        return names.hits(parent, name)
    return sorted(_glob(pattern, names), key=_bytes)


def directories(pattern: str, names: Names | None = None) -> set[str]:
    """Return the directories in which a match can come or go."""
    parent = posixpath.dirname(normalized(pattern))
    if not is_magic(parent):
        return {parent}
    return {*directories(parent, names), *_glob(parent, names or Names())}


def _glob(pattern: str, names: Names) -> Iterator[str]:
    parent, name = posixpath.split(pattern)
    for directory in _glob(parent, names) if is_magic(parent) else (parent,):
        yield from names.hits(directory, name)


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
