"""Kinds of single values: strings, numbers, booleans, durations, sizes, choices."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from deviceplugin._config import quantities
from deviceplugin._config.documents import faults
from deviceplugin._config.documents.places import Place
from deviceplugin._config.kinds.kind import Kind, Schema

_T = TypeVar("_T")

_SCALARS: Final = frozenset({"integer", "number", "boolean"})
NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


def text(
    pattern: str = "",
    wanted: str = "",
    *,
    problem: Callable[[str], str] | None = None,
    strip: bool = False,
    digits: bool = False,
) -> Kind[str]:
    """Return the kind of strings, or of those that match ``pattern``. ``wanted`` describes them.

    ``problem`` returns what is wrong with a string, as a message that continues after it, or an
    empty string. ``strip`` removes blanks at both ends. With ``digits``, a number is accepted as it
    is written. Otherwise it is a fault: without quotes, it may not be what was meant.
    """

    def read(place: Place) -> str:
        if place.kind not in {"text", "date"} and not (
            digits and place.kind in {"integer", "number"}
        ):
            raise place.wrong(
                "a string: put it in quotes" if place.kind in _SCALARS else wanted or "a string"
            )
        if pattern and not matches(place.raw, pattern):
            raise place.wrong(wanted)
        if what := problem(place.raw) if problem else "":
            raise place.fault(f"{place.shown} {what}")
        return place.raw.strip() if strip else place.raw

    types: Schema = {"type": ["string", "number"] if digits else "string"}
    takes = {"text", "date"} | ({"integer", "number"} if digits else set())
    schema = {**types, **({"pattern": pattern} if pattern else {})}
    return Kind(read, schema, frozenset(takes), wanted or "a string")


def matches(text: str, pattern: str) -> bool:
    """Return whether ``text`` matches. ``$`` is the very end, as in JSON Schema."""
    return re.search(pattern.replace("$", r"\Z"), text) is not None


def name() -> Kind[str]:
    """Return the kind of Kubernetes names: 1 to 63 lower-case letters, digits and hyphens."""
    return text(NAME_PATTERN, "a name of 1 to 63 lower-case letters, digits and hyphens")


def path() -> Kind[Path]:
    """Return the kind of absolute paths."""
    return text(r"^/[^\x00]*$", "an absolute path").to(Path, str)


def integer(least: int = 0, most: int | None = None) -> Kind[int]:
    """Return the kind of whole numbers from ``least`` to ``most``, both included.

    Without ``most``, they have at most 18 digits.
    """
    wanted = f"a whole number from {least}" + ("" if most is None else f" to {most}")

    def read(place: Place) -> int:
        value = _integer(place)
        if value is None or value < least or (most is not None and value > most):
            raise place.wrong(wanted)
        if value >= quantities.TOO_LARGE:
            raise place.fault("has more than 18 digits")
        return value

    limits = {"minimum": least, **({} if most is None else {"maximum": most})}
    return Kind(read, {"type": "integer", **limits}, frozenset({"integer"}), wanted)


def _integer(place: Place) -> int | None:
    if place.kind != "integer":
        return None
    try:
        decimal = int(place.raw) if place.raw.isdecimal() else place.plain()
        if decimal != place.plain():
            problem = f"{place.raw} is octal in YAML: write {place.plain()} or {decimal}"
            raise place.fault(problem)
    except ValueError:  # more digits than Python accepts
        return None
    return decimal


def number(least: float = float("-inf"), most: float = float("inf")) -> Kind[float]:
    """Return the kind of numbers, whole or not, from ``least`` to ``most``."""
    limits = {
        key: limit
        for key, limit in (("minimum", least), ("maximum", most))
        if abs(limit) != float("inf")
    }
    range_ = " and".join(
        f" {'from' if key == 'minimum' else 'up to'} {limit:g}" for key, limit in limits.items()
    )
    wanted = f"a number{range_}"

    def read(place: Place) -> float:
        value = place.plain() if place.kind in {"integer", "number"} else float("nan")
        if not least <= value <= most or abs(value) == float("inf"):
            raise place.wrong(wanted)
        return float(value)

    return Kind(read, {"type": "number", **limits}, frozenset({"integer", "number"}), wanted)


def boolean() -> Kind[bool]:
    """Return the kind of ``true`` and ``false``; in YAML also ``yes``, ``no``, ``on``, ``off``."""

    def read(place: Place) -> bool:
        if place.kind != "boolean":
            raise place.wrong("true or false")
        return bool(place.plain())

    return Kind(read, {"type": "boolean"}, frozenset({"boolean"}), "true or false")


def duration(most: timedelta = quantities.LONGEST, *, zero: bool = False) -> Kind[timedelta]:
    """Return the kind of durations such as ``1m30s``, up to ``most``; 0 is valid with ``zero``."""

    def make(text: str) -> timedelta:
        found = quantities.seconds(text)
        if not (found or zero):
            raise ValueError("is not above zero")
        if found > most.total_seconds():
            longest = "100 years" if most == quantities.LONGEST else quantities.write_duration(most)
            raise ValueError(f"is longer than {longest}")
        return max(timedelta(seconds=found), timedelta.resolution if found else timedelta())

    def read(place: Place) -> timedelta:
        if place.kind != "text":
            raise place.wrong("a duration, such as 500ms, 30s or 1m30s")
        return plain.read(place)

    plain = text().to(make, quantities.write_duration)
    schema = {"type": "string", "pattern": quantities.DURATION_PATTERN}
    return replace(plain, read=read, schema=schema, takes=frozenset({"text"}))


def size(least: int = 0, most: int | None = None) -> Kind[int]:
    """Return the kind of sizes in bytes, such as ``80Gi``, ``1.5G`` or a whole number."""
    wanted = "a size, such as 512Ki, 80Gi or 1.5G"

    def read(place: Place) -> int:
        try:
            found = quantities.size_in_bytes(place.raw)
        except ValueError:
            found = -1
        if place.kind not in {"text", "integer"} or found < 0:
            raise place.wrong(wanted)
        if found < least or (most is not None and found > most):
            range_ = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise place.wrong(f"{range_} bytes")
        return found

    schema = {
        "anyOf": [
            {"type": "string", "pattern": quantities.SIZE_PATTERN},
            {"type": "integer", "minimum": 0},
        ]
    }
    return Kind(read, schema, frozenset({"text", "integer"}), wanted)


def choice(*choices: _T) -> Kind[_T]:
    """Return the kind of strings that name one of ``choices``; the value is that choice."""
    names = {str(one): one for one in choices}

    def make(text: str) -> _T:
        if text in names:
            return names[text]
        near = faults.suggestion(text, names, 0.4)
        advice = f": {near}" if near.startswith("did") else ""
        raise ValueError(f"is not one of {', '.join(names)}{advice}")

    return replace(text().to(make, str), schema={"enum": [*names]})
