"""Settings that are more than a word: strategies, names of resources, sharing."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal, Self, TypeVar

import yaml

import deviceplugin as dp

DOMAIN: Final = "nvidia.com"
MAX_REPLICAS: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_STRATEGIES: Final = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")

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


def resource_name(value: Any) -> str:
    """Return the full name of a resource; the domain is NVIDIA's where there is none."""
    domain, slash, name = text(value).rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not domain):
        raise ValueError("is not the name of a resource, such as gpu or nvidia.com/gpu")
    return f"{domain or DOMAIN}/{name}"


def replicas(value: Any) -> int:
    """Return a number of replicas; 1 is one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_REPLICAS:
        raise ValueError(f"is not a whole number from 1 to {MAX_REPLICAS}")
    return value


def devices(value: Any) -> "Literal['all'] | int | tuple[str, ...]":
    """Return which devices are shared: all, the first so many, or those that are named."""
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, list) and value:
        texts = [str(item) for item in value if isinstance(item, int | str) and item != ""]
        if len(texts) == len(value) and not any(isinstance(item, bool) for item in value):
            return tuple(texts)
    raise ValueError("is not all, a number above 0, or a list of indices, UUIDs and models")


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


@dataclass(frozen=True)
class Strategies:
    """The ways in which containers are told of their devices."""

    names: tuple[str, ...] = ("envvar",)

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the strategies in texts with commas, or in a list.

        Raises:
            ConfigError: One of them is not known, or there is none.
        """
        if isinstance(value, cls):
            return value
        parts = value if isinstance(value, list) else [value]
        refuse(["is empty: name one of " + ", ".join(_STRATEGIES)] if not parts else [])
        names = [name.strip() for part in parts for name in str(part).split(",")]
        refuse([_unknown(name, _STRATEGIES) for name in names if name not in _STRATEGIES])
        return cls(tuple(sorted(set(names), key=_STRATEGIES.index)))

    def write(self) -> list[str]:
        """Return their names."""
        return list(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    @property
    def cdi(self) -> bool:
        """Whether CDI is used."""
        return any(name.startswith("cdi-") for name in self.names)

    @property
    def plain(self) -> bool:
        """Whether anything but CDI is used."""
        return any(not name.startswith("cdi-") for name in self.names)


def _unknown(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    return f"{name!r} is none of {', '.join(known)}{hint}"


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of resources by patterns of models and of MIG profiles; the first that fits is it."""

    gpus: tuple[tuple[str, str], ...] = ()
    migs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the names in YAML, or in what a file has.

        Raises:
            ConfigError: All that is wrong, a line each.
        """
        if isinstance(value, cls):
            return value
        with checked(value) as place:
            place.only(("gpus", "mig"))
            found = [_patterns(place.each(key)) for key in ("gpus", "mig")]
        return cls(*found)

    def write(self) -> dict[str, list[dict[str, str]]]:
        """Return them as a file has them."""
        return {
            key: [{"pattern": pattern, "name": name} for pattern, name in pairs]
            for key, pairs in (("gpus", self.gpus), ("mig", self.migs))
            if pairs
        }


def _patterns(places: list[Place]) -> tuple[tuple[str, str], ...]:
    found = []
    for place in places:
        place.only(("pattern", "name"))
        pattern = place.take("pattern", text, "")
        name = place.take("name", resource_name, "")
        place.need("pattern", "name")
        found.append((pattern, name))
    return tuple(found)
