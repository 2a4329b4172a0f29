"""Lists of entries. One that is wrong reserves what it may match, as far as it can be read.

So no other entry gets its hardware while wrong entries are skipped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import Key, Place
from deviceplugin_generic.configuration import string_kinds
from deviceplugin_generic.configuration.entries import Entry, Group, PathSpec, Rule, Selector
from deviceplugin_generic.configuration.grammar import (
    CRITERIA,
    ENTRY,
    NODES,
    PATH,
    RULE,
    SELECT,
    USB,
)


def entries(places: Iterable[Place]) -> tuple[Entry, ...]:
    """Return the entries, with a reserving one for each that is wrong. Faults are collected."""
    return cfg.read_each([*places], ENTRY, _are_different, _reserving)


def rules(places: Iterable[Place]) -> tuple[Rule, ...]:
    """Return the same for rules of smarter-device-manager."""
    return cfg.read_each([*places], RULE, len, _reserving_rule)


def _are_different(found: Sequence[tuple[Place, Entry]]) -> None:
    seen: set[str] = set()
    for place, entry in found:
        if entry.name in seen:
            place.fault(f"the name {entry.name!r} is given twice")
        seen.add(entry.name)


def _reserving_rule(place: Place, problem: str) -> Rule:
    """Return a rule without devices. Its pattern is empty, and matches nothing, if it is wrong."""
    return Rule(
        cfg.readable(_keys(place).get("devicematch"), string_kinds.DEVICE_MATCH) or "", 0, problem
    )


def _reserving(place: Place, problem: str) -> Entry:
    name = _keys(place).get("name")
    shown = f"{cfg.bounded(name.shown)}: " if name else ""
    return Entry(f"{shown}invalid entry {place}", tuple(_groups(place)), problem=shown + problem)


def _groups(entry: Place) -> Iterator[Group]:
    """Yield a group for each path and each kind of device, also if they stand beside groups."""
    for given in map(_keys, (entry, *_items(_keys(entry).get("groups")))):
        nodes = cfg.readable(given.get("nodes"), NODES) or ()
        for spec in filter(None, map(_path, _items(given.get("paths")))):
            yield Group(paths=(spec,))
        for place in _items(given.get("usb")):
            if usb := cfg.readable(place, USB):
                yield Group(usb=(usb,), nodes=nodes)
            elif found := _criteria(place):
                yield Group(select=Selector("usb", **found), nodes=nodes)
        for selector in filter(None, map(_selector, _items(given.get("select")))):
            yield Group(select=selector, nodes=nodes)


def _path(place: Place) -> PathSpec | None:
    path = cfg.readable(_keys(place).get("path", place), string_kinds.PATTERN)
    return cfg.readable(place, PATH) or (PathSpec(path) if path else None)


def _selector(place: Place) -> Selector | None:
    kind = cfg.readable(_keys(place).get("subsystem"), string_kinds.SUBSYSTEM)
    return cfg.readable(place, SELECT) or (Selector(kind, **_criteria(place)) if kind else None)


def _criteria(place: Place) -> dict[str, Any]:
    """Return the criteria that can be read. Without the others it matches more."""
    found: dict[str, Any] = {}
    for key, one in _keys(place).items():
        wanted = CRITERIA.get(key)
        kind = wanted.kind if isinstance(wanted, Key) else wanted
        argument = wanted.argument if isinstance(wanted, Key) else key
        is_bare = kind is string_kinds.HEXADECIMAL and one.kind == "integer"  # without quotes
        given = cfg.of_text(f'"{one.raw}"') if is_bare else one
        if kind and (value := cfg.readable(given, kind)) is not None:
            found[argument] = value
    return found


def _keys(place: Place) -> Mapping[str, Place]:
    """Return the places in a mapping by key, in whichever case that is."""
    found = place.keys() if place.kind == "mapping" else {}
    return {key.lower(): one for key, one in found.items()}


def _items(place: Place | None) -> list[Place]:
    """Return the places in a list; what is not a list is the only one."""
    if place is None:
        return []
    return place.items() if place.kind == "list" else [place]
