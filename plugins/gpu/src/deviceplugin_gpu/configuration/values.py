"""Values that have keys and values of their own, with all that is wrong told at once."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

import yaml

import deviceplugin as dp

_T = TypeVar("_T")


class Place:
    """The keys and values at one place; what is wrong with them goes into ``problems``."""

    def __init__(self, given: object, name: str, problems: list[str]) -> None:
        self._name, self.problems = name, problems
        self._given: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        if given is not None and not isinstance(given, Mapping):
            problems.append(f"{self.at()}{given!r} has no keys and values")

    def only(self, known: Collection[str]) -> None:
        """Note all keys but the ``known`` ones."""
        for key in self._given:
            if key not in known:
                near = get_close_matches(str(key), known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
                self.problems.append(f"{self.at()}unknown key {key!r}: {hint}")

    def at(self, key: str = "") -> str:
        """Return where ``key`` stands, as the beginning of a message."""
        path = ".".join(part for part in (self._name, key) if part)
        return f"{path}: " if path else ""

    def keys(self) -> Collection[str]:
        """Return all keys."""
        return self._given.keys()

    def need(self, *keys: str) -> None:
        """Note which of ``keys`` have no value."""
        missing = [key for key in keys if self._given.get(key) is None]
        self.problems += [f"{self.at()}{key} is missing" for key in missing]

    def take(self, key: str, convert: Callable[[Any], _T], default: _T) -> _T:
        """Return the value of ``key`` as ``convert`` makes it, which raises ValueError."""
        if self._given.get(key) is None:
            return default
        try:
            return convert(self._given[key])
        except ValueError as error:
            self.problems.append(f"{self.at(key)}{self._given[key]!r} {error}")
            return default

    def inner(self, key: str) -> "Place":
        """Return the place below ``key``, which may be missing."""
        return Place(self._given.get(key), self.at(key).removesuffix(": "), self.problems)

    def each(self, key: str) -> "list[Place]":
        """Return the places of the list below ``key``, which may be missing."""
        given = self._given.get(key)
        if given is not None and not isinstance(given, list):
            self.problems.append(f"{self.at(key)}{given!r} is not a list")
            given = None
        name = self.at(key).removesuffix(": ")
        return [
            Place(value, f"{name}[{number}]", self.problems)
            for number, value in enumerate(given or [])
        ]


def truth(value: Any) -> bool:
    """Return a truth."""
    if not isinstance(value, bool):
        raise ValueError("is not true or false")  # noqa: TRY004 - the value is wrong
    return value


def text(value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is not a text")
    return value.strip()


def _document(value: object) -> object:
    """Return what a flag or variable says in YAML or JSON; other values are returned as they are.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise dp.ConfigError(f"not valid YAML: {' '.join(str(error).split())}") from error


def refuse(problems: Collection[str]) -> None:
    """Raise ConfigError if there are any ``problems``, with a line for each."""
    if problems:
        raise dp.ConfigError("\n".join(problems))


@contextmanager
def checked(value: object) -> Iterator[Place]:
    """Give what YAML, or a file, has; in the end all problems with it are refused at once.

    Raises:
        ConfigError: There are any.
    """
    place = Place(_document(value), "", [])
    yield place
    refuse(place.problems)
