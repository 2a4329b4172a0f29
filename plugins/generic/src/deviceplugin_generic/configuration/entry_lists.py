"""Lists of entries. One that is wrong reserves what it may match, as far as it can be read.

So no other entry gets its hardware while wrong entries are skipped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deviceplugin.kit import configuration as cfg
from deviceplugin.kit.configuration import Key, Place
from deviceplugin_generic.configuration import string_kinds
from deviceplugin_generic.configuration.entries import (
    ABILITIES,
    Entry,
    Group,
    PathSpec,
    Rule,
    Selector,
)
from deviceplugin_generic.configuration.grammar import CRITERIA, ENTRY, PATH, RULE, SELECT, USB


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
    """Yield a group for each path and each kind of device, also if they stand beside groups.

    What nodes are wanted may be what cannot be read. Then all that VFIO has is reserved too.
    """
    for given in map(_keys, (entry, *_items(_keys(entry).get("groups")))):
        nodes = tuple(one for place in _items(given.get("nodes")) for one in _node(place))
        for spec in filter(None, map(_path, _items(given.get("paths")))):
            yield Group(paths=(spec,))
        for place in _items(given.get("usb")):
            if usb := cfg.readable(place, USB):
                yield Group(usb=(usb,), nodes=nodes)
            elif (found := _partly("usb", place)) != [Selector("usb")]:
                yield from (Group(select=one, nodes=nodes) for one in found)
        for one in (one for place in _items(given.get("select")) for one in _selectors(place)):
            yield Group(select=one, nodes=nodes)
            if not nodes:
                yield Group(select=one, nodes=("vfio",))


def _path(place: Place) -> PathSpec | None:
    path = cfg.readable(_keys(place).get("path", place), string_kinds.PATTERN)
    return cfg.readable(place, PATH) or (PathSpec(path) if path else None)


def _node(place: Place) -> Sequence[str | Selector]:
    kind = cfg.readable(place, string_kinds.SUBSYSTEM)
    return [kind] if kind else _selectors(place)


def _selectors(place: Place) -> list[Selector]:
    whole = cfg.readable(place, SELECT)
    kind = cfg.readable(_keys(place).get("subsystem"), string_kinds.SUBSYSTEM)
    return [whole] if whole else _partly(kind, place) if kind else []


def _partly(subsystem: str, place: Place) -> list[Selector]:
    """Return what can be read. Without the rest it matches more, and bare numbers mean two."""
    hexadecimal, decimal = (
        Selector(subsystem, **_criteria(subsystem, place, is_decimal=one)) for one in (False, True)
    )
    return [hexadecimal] if hexadecimal == decimal else [hexadecimal, decimal]


def _criteria(subsystem: str, place: Place, *, is_decimal: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, one in _keys(place).items():
        wanted = CRITERIA.get(key)
        kind = wanted.kind if isinstance(wanted, Key) else wanted
        argument = wanted.argument if isinstance(wanted, Key) else key
        is_bare = kind is string_kinds.HEXADECIMAL and one.kind == "integer"  # without quotes
        text = f"{one.node.value:x}" if is_bare and is_decimal else one.raw
        given = cfg.of_text(f'"{text}"') if is_bare else one
        value = cfg.readable(given, kind) if kind else None
        if value is not None and (key != "can" or {*value} <= {*ABILITIES.get(subsystem, ())}):
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
