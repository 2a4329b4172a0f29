"""Names of resources by model: a setting ``resources: {gpus: [{pattern, name}]}``.

A pattern is that of a shell, matches a whole name, and ignores case. The first that matches names
the resource, so that several may overlap, and several may lead to one name.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from deviceplugin.kit.configuration import (
    Kind,
    as_argument,
    list_of,
    needed,
    record,
    resource_name_problem,
    text,
)
from deviceplugin.kit.log import Problems

__all__ = ["Named", "Naming", "UnusedNames", "matches", "naming", "resource", "resource_name"]

_log = logging.getLogger(__name__)
Names = Iterable[str]
"""All names of one device, such as its model and its PCI address."""


class Named(NamedTuple):
    """The name of a resource, for what matches the pattern."""

    pattern: str
    name: str


def matches(pattern: str, name: str) -> bool:
    """Return whether ``pattern`` matches a whole name, whatever its case."""
    return fnmatchcase(name.lower(), pattern.lower())


def _first(patterns: Sequence[Named], names: Names, default: Named) -> Named:
    known = [*names]
    found = (one for one in patterns if any(matches(one.pattern, name) for name in known))
    return next(found, default)


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of resources by patterns: of whole devices, and of parts of them."""

    gpus: tuple[Named, ...] = ()
    parts: tuple[Named, ...] = ()

    def gpu(self, names: Names, default: str = "") -> str:
        """Return the resource of a whole GPU that has all of these names."""
        return _first(self.gpus, names, Named("", default)).name

    def part(self, names: Names, default: str = "") -> str:
        """Return the resource of a part of a GPU that has all of these names."""
        return _first(self.parts, names, Named("", default)).name

    @property
    def resources(self) -> list[str]:
        """All resources that it can lead to."""
        return list(dict.fromkeys(one.name for one in (*self.gpus, *self.parts)))


class UnusedNames:
    """Logs patterns that name nothing, once each. For one thread at a time."""

    def __init__(self) -> None:
        self._problems = Problems(_log, logging.INFO)

    def observe(self, naming: Naming, gpus: Iterable[Names], parts: Iterable[Names] = ()) -> None:
        """Compare patterns with the names of all whole GPUs and parts here, if there are any."""
        pairs = (naming.gpus, [*gpus]), (naming.parts, [*parts])
        unused = [problem for patterns, found in pairs for problem in _unused(patterns, found)]
        if any(found for _, found in pairs):  # devices that are away for a moment change nothing
            self._problems.say_all("resource name unused", unused)


def _unused(patterns: Sequence[Named], found: Sequence[Names]) -> Iterator[str]:
    used = {_first(patterns, names, Named("", "")) for names in found}
    for one in patterns if found else ():
        if one not in used:
            hidden = any(matches(one.pattern, name) for names in found for name in names)
            why = "earlier ones match what it matches" if hidden else "nothing here matches it"
            yield f"pattern {one.pattern!r} for {one.name}: {why}"


def resource_name(given: str, domain: str) -> str:
    """Return the full name of a resource, by default of ``domain``; ValueError if it is none."""
    name = given if "/" in given else f"{domain}/{given}"
    if problem := resource_name_problem(name):
        example = f"such as gpu or {domain}/gpu"
        raise ValueError(f"is not the name of a resource, {example}: {problem}")
    return name


def resource(domain: str) -> Kind[str]:
    """Return the kind of resource names, by default of ``domain``."""
    return text(strip=True).to(partial(resource_name, domain=domain))


def naming(domain: str, parts: str = "") -> Kind[Naming]:
    """Return the kind of the setting: key ``gpus``, and key ``parts`` if the vendor has these."""
    pattern = text(r"\S", "a string", strip=True)
    named = list_of(record(Named, {"pattern": needed(pattern), "name": needed(resource(domain))}))
    keys = {"gpus": as_argument(named, "gpus")}
    return record(Naming, {**keys, **({parts: as_argument(named, "parts")} if parts else {})})
