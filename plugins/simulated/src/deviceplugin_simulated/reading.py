"""Taking a configuration file apart, and remembering everything that is wrong with it."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_LONGEST: Final = 100 * 365 * 86400.0
"""Seconds; no thread can wait for 300 years."""
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_NUMA_NODES: Final = 1024
"""As many as Linux can have."""


class Reader:
    """The keys and values at one place of a file.

    What is wrong goes into ``problems``, a line each, and a default takes its place, so that one
    look finds everything. Keys that are not ``known`` are wrong.
    """

    def __init__(
        self, given: object, where: str, problems: list[str], known: Collection[str] = ()
    ) -> None:
        self.where = where
        self.problems = problems
        self._given: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        if not isinstance(given, Mapping):
            self.wrong("", f"{given!r} has no keys and values")
        elif known:
            for key in given:
                if key not in known:
                    self.wrong("", f"unknown key {key!r}: {nearest(str(key), known)}")

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def wrong(self, key: str, problem: str) -> None:
        """Remember that something is wrong with the value of ``key``."""
        place = self.place(key) if key else self.where.removesuffix(":")
        self.problems.append(f"{place}: {problem}")

    def place(self, key: str) -> str:
        """Return where ``key`` stands; the name of a file has a colon behind it."""
        return f"{self.where} {key}" if self.where.endswith(":") else f"{self.where}.{key}"

    def take(self, key: str, convert: Callable[[Any], _T], default: _T) -> _T:
        """Return the value of ``key`` as ``convert`` makes it, which raises ValueError."""
        if key not in self._given:
            return default
        try:
            return convert(self._given[key])
        except ValueError as error:
            self.wrong(key, f"{self._given[key]!r} {error}")
            return default

    def inner(self, key: str, known: Collection[str] = ()) -> "Reader":
        """Return a reader of the mapping at ``key``, which may be missing."""
        return Reader(self._given.get(key, {}), self.place(key), self.problems, known)

    def each(self, key: str = "") -> Iterator[tuple[str, object]]:
        """Yield the keys and values of the mapping, or names and values of the list at ``key``."""
        if not key:
            yield from ((str(name), value) for name, value in self._given.items())
            return
        given = self._given.get(key, [])
        if not isinstance(given, list):
            self.wrong(key, f"{given!r} is not a list")
            return
        for number, value in enumerate(given):
            yield f"{self.place(key)}[{number}]", value


def nearest(name: str, known: Collection[str]) -> str:
    """Return what helps somebody who wrote ``name``."""
    near = get_close_matches(name, known, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    some = sorted(known)[:12]
    return f"known are {', '.join(some)}{', ...' if len(some) < len(known) else ''}"


def text(value: Any) -> str:
    """Return a text; numbers are taken for their digits, truths are not."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("is not a text")  # noqa: TRY004 - the value is wrong, not the caller
    return str(value)


def truth(value: Any) -> bool:
    """Return a truth."""
    if not isinstance(value, bool):
        raise ValueError("is not true or false")  # noqa: TRY004 - as above
    return value


def whole(lowest: int, highest: int) -> Callable[[Any], int]:
    """Return what makes a whole number between the two, both included."""

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise ValueError(f"is not a whole number between {lowest} and {highest}")
        return value

    return convert


def seconds(value: Any) -> float:
    """Return the seconds of a duration such as ``1m30s``."""
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError("is not a duration, such as 500ms, 30s or 1m30s")
    found = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    if found > _LONGEST:
        raise ValueError("is longer than 100 years")
    return found


def positive(value: Any) -> float:
    """Return the seconds of a duration above zero."""
    if not (found := seconds(value)):
        raise ValueError("is not above zero")
    return found


def texts(value: Any) -> list[str]:
    """Return a list of texts; a single text is a list of one."""
    return [text(item) for item in (value if isinstance(value, list) else [value])]


def text_mapping(value: Any) -> dict[str, str]:
    """Return a mapping of texts to texts."""
    if not isinstance(value, Mapping):
        raise ValueError("has no keys and values")  # noqa: TRY004 - as above
    return {text(name): text(item) for name, item in value.items()}


def numa_nodes(value: Any) -> list[int]:
    """Return the numbers of a list as Linux writes it, ``0-3,8``, or of a list of numbers."""
    found: list[int] = []
    for part in text(value).split(",") if not isinstance(value, list) else texts(value):
        ends = _RANGE.fullmatch(part.strip())
        last = int(ends[2] or ends[1]) if ends else _NUMA_NODES
        if ends is None or not int(ends[1]) <= last < _NUMA_NODES:
            raise ValueError("are no NUMA nodes, such as 0-3,8")
        found += range(int(ends[1]), last + 1)
    return found
