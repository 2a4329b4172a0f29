"""Names that people choose for resources, in place of those that are made of ids."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

import deviceplugin as dp
from deviceplugin_fpga import resource_names
from deviceplugin_fpga.drivers import ALL_ONES, ID
from deviceplugin_fpga.settings import MODES

Key: TypeAlias = tuple[str, str]
"""An interface id and the id of a function, which is empty where the interface itself is meant."""

_ENTRY: Final = ("name", "interface", "function")
_LIST: Final = "aliases"
_NAME: Final = re.compile(r"(?=.{1,63}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_OWN: Final = re.compile(rf"({'|'.join(MODES)})|(af|region)-.*", re.IGNORECASE)
"""Names that the modes have, or can give to another function."""
_MOST_SHOWN: Final = 80


@dataclass(frozen=True)
class Aliases:
    """What functions and interfaces are called: each by its alias, or by the name of its mode."""

    names: Mapping[Key, str] = field(default_factory=dict)

    def af(self, interface_id: str, afu_id: str) -> str:
        """Return the resource of a port that is programmed with ``afu_id``."""
        name = self.names.get((interface_id, afu_id))
        return (
            f"{resource_names.NAMESPACE}/{name}"
            if name
            else resource_names.af(interface_id, afu_id)
        )

    def region(self, interface_id: str) -> str:
        """Return the resource of an FME whose regions can be programmed."""
        name = self.names.get((interface_id, ""))
        return f"{resource_names.NAMESPACE}/{name}" if name else resource_names.region(interface_id)


def read(path: Path | None) -> Aliases:
    """Return the aliases in the file at ``path``; none where there is no path.

    Raises:
        ConfigError: All that is wrong with it, a line each, with file, entry and key.
    """
    if path is None:
        return Aliases()
    given = dp.Settings.read_file(path)
    problems: list[str] = list(_unknown("", given, (_LIST,)))
    entries = given.get(_LIST, [])
    if not isinstance(entries, list):
        problems.append(f"{_LIST}: {_shown(entries)} is not a list")
        entries = []
    names: dict[Key, str] = {}
    places: dict[object, str] = {}
    for number, entry in enumerate(entries):
        _take(entry, f"{_LIST}[{number}]", names, places, problems)
    if problems:
        raise dp.ConfigError("\n".join(f"{path}: {problem}" for problem in problems))
    return Aliases(names)


def canonical(text: str) -> str:
    """Return an id as sysfs writes it: hyphens, blanks and upper case are for people.

    Raises:
        ValueError: It is not an id.
    """
    found = text.strip().replace("-", "").lower()
    if not ID.fullmatch(found):
        raise ValueError(f"{_shown(text)} is not an id of 32 hex digits")
    if found == ALL_ONES:
        raise ValueError(f"{_shown(text)} is what hardware gives that does not answer")
    return found


def _take(
    entry: object,
    where: str,
    names: dict[Key, str],
    places: dict[object, str],
    problems: list[str],
) -> None:
    """Add an entry to ``names``; ``places`` knows where each name and each key is from."""
    if not isinstance(entry, Mapping):
        problems.append(
            f"{where}: {_shown(entry)} is not a mapping with the keys {', '.join(_ENTRY)}"
        )
        return
    found = list(_unknown(f"{where}: ", entry, _ENTRY))
    name = _valid(entry, "name", where, found)
    interface = _valid(entry, "interface", where, found)
    function = _valid(entry, "function", where, found) if "function" in entry else ""
    problems += found
    if found:
        return
    key = (interface, function)
    last = "function" if function else "interface"
    first = places.setdefault(name, f"{where}.name"), places.setdefault(key, f"{where}.{last}")
    if first[0] != f"{where}.name":
        problems.append(f"{where}.name: {name!r} is taken by {first[0]}")
    if first[1] != f"{where}.{last}":
        problems.append(f"{where}.{last}: has a name already, by {first[1]}")
    names[key] = name


def _valid(entry: Mapping[Any, object], key: str, where: str, problems: list[str]) -> str:
    value = entry.get(key)
    if key not in entry:
        problems.append(f"{where}.{key}: is needed")
    elif not isinstance(value, str):
        problems.append(f"{where}.{key}: {_shown(value)} is not a text: put it into quotes")
    else:
        try:
            return _name(value) if key == "name" else canonical(value)
        except ValueError as error:
            problems.append(f"{where}.{key}: {error}")
    return ""


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{_shown(text)} is not 1 to 63 letters, digits, '-', '_' or '.' with a letter or "
            "digit at both ends"
        )
    if _OWN.fullmatch(text):
        raise ValueError(f"{_shown(text)} is a name of the plugin's modes: choose another")
    return text


def _unknown(where: str, given: Mapping[Any, object], known: Collection[str]) -> Iterator[str]:
    for key in given:
        if key not in known:
            near = get_close_matches(str(key), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            yield f"{where}unknown key {_shown(key)}: {hint}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
