"""Rules of udev, as akri reads them, as selectors of ours."""

import re
from collections.abc import Iterator
from typing import Any, Final

import deviceplugin as dp

_TERM: Final = re.compile(r'\s*([A-Z_]+)(?:\{([^}"]*)\})?\s*([=!:+-]?=)\s*"([^"]*)"\s*(,|$)')
_KEYS: Final = {
    "SUBSYSTEM": "subsystem",
    "KERNEL": "name",
    "DRIVER": "driver",
    "DRIVERS": "driver",
    "ENV": "properties",
    "ATTR": "attributes",
    "ATTRS": "attributes",
}
"""What a rule compares, and the keys of a selector that do the same."""
_IDS: Final = {"idVendor": "vendor", "idProduct": "product"}
_EXPRESSIONS: Final = ("DRIVER", "DRIVERS", "ATTRS")
"""Compared with regular expressions by akri; so is whatever must be unequal."""
_SUBSYSTEMS: Final = {
    "video": "video4linux",
    **dict.fromkeys(("tty", "hidraw", "spidev", "drm"), ""),
    "renderD": "drm",
    "gpiochip": "gpio",
    "i2c-": "i2c-dev",
    "sd": "block",
    "nvme": "block",
}
"""The subsystem of devices whose names begin so; empty if it has that name."""
_PLAIN: Final = re.compile(r"(?:[-\w /:,@#%=]|\\[.+*?]|\.\*?|\[[^\]!^\\]+\])*")
_TOKEN: Final = re.compile(r"\\[.+]|\.\*|\.")
"""What is written in another way in a pattern."""


def selector(rule: str, place: str) -> dict[str, Any]:
    """Return the selector that finds what a rule finds; raise ``ConfigError`` if none does."""
    found: dict[str, Any] = {}
    excluded: list[dict[str, Any]] = []
    for field, key, sign, value in _terms(rule, place):
        if field not in _KEYS or sign not in ("==", "!="):
            what = field if field not in _KEYS else f"{field}{sign}"
            raise _wrong(rule, place, f"{what} has no counterpart: {', '.join(_KEYS)} have")
        is_expression = field in _EXPRESSIONS or (sign == "!=" and field != "ATTR")
        pattern = _pattern(value, rule, place) if is_expression else value.replace("[!", "[^")
        if "|" in pattern:
            raise _wrong(rule, place, "| has no counterpart: write a rule for each")
        term = _term(field, key, pattern)
        if sign == "!=" and "subsystem" in term:
            raise _wrong(rule, place, 'SUBSYSTEM!= has no counterpart: write SUBSYSTEM=="..."')
        if sign == "!=":
            excluded.append(term)
        else:
            _merge(found, term, rule, place)
    if "subsystem" not in found:
        found["subsystem"] = _subsystem(str(found.get("name", "")), rule, place)
    return {**found, **({"not": excluded} if excluded else {})}


def _terms(rule: str, place: str) -> Iterator[tuple[str, str, str, str]]:
    position = 0
    while position < len(rule.rstrip()):
        match = _TERM.match(rule, position)
        if match is None:
            raise _wrong(rule, place, f"cannot be read from character {position + 1} on")
        yield match[1], match[2] or "", match[3], match[4]
        position = match.end()


def _term(field: str, key: str, pattern: str) -> dict[str, Any]:
    if field in ("ATTR", "ATTRS") and key in _IDS and re.fullmatch("[0-9a-fA-F]{4}", pattern):
        return {_IDS[key]: pattern}
    if field in ("ATTR", "ATTRS") and key == "serial":
        return {"serial": pattern}
    name = _KEYS[field]
    return {name: {key: pattern}} if name in ("properties", "attributes") else {name: pattern}


def _merge(found: dict[str, Any], term: dict[str, Any], rule: str, place: str) -> None:
    for name, value in term.items():
        before = found.get(name, {} if isinstance(value, dict) else value)
        if isinstance(value, dict) and not before.keys() & value.keys():
            found[name] = {**before, **value}
        elif before == value:
            found[name] = value
        else:
            raise _wrong(rule, place, f"compares {name} twice: write one of them")


def _pattern(value: str, rule: str, place: str) -> str:
    """Return the pattern that matches what a simple regular expression does."""
    if not _PLAIN.fullmatch(value):
        raise _wrong(rule, place, f"{value!r} is a regular expression that has no pattern")
    return _TOKEN.sub(lambda one: {".*": "*", ".": "?"}.get(one[0], one[0][-1]), value)


def _subsystem(name: str, rule: str, place: str) -> str:
    for start, subsystem in _SUBSYSTEMS.items():
        if name.startswith(start):
            return subsystem or start
    raise _wrong(rule, place, 'needs SUBSYSTEM=="...": udevadm info /dev/NAME shows it')


def _wrong(rule: str, place: str, why: str) -> dp.ConfigError:
    return dp.ConfigError(f"{place}: udevRules: {rule!r}: {why}")
