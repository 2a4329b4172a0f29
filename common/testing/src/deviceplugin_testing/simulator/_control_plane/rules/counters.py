"""What is wrong with the counters of a pool, and with what its devices consume of them."""

from collections.abc import Iterator, Sequence
from typing import Final

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.refusals import (
    FieldError,
    duplicate,
    invalid,
    required,
    too_many,
)
from deviceplugin_testing.simulator._control_plane.rules import names

_MOST_SETS: Final = 8
_MOST_CONSUMPTIONS: Final = 2
_MOST_COUNTERS: Final = 32


def check_sets(place: str, sets: Sequence[Object]) -> Iterator[FieldError]:
    """Yield the errors of the counter sets of a slice; ``place`` is their field."""
    yield from _check_each(place, sets, "name", _MOST_SETS)


def check_consumptions(place: str, several: Sequence[Object]) -> Iterator[FieldError]:
    """Yield the errors of what a device consumes; ``place`` is its field."""
    yield from _check_each(place, several, "counterSet", _MOST_CONSUMPTIONS)


def _check_each(place: str, several: Sequence[Object], key: str, most: int) -> Iterator[FieldError]:
    if len(several) > most:
        yield too_many(place, len(several), most)
        return
    for index, one in enumerate(several):
        at = f"{place}[{index}]"
        yield from _check_name(f"{at}.{key}", one[key])
        yield from _check_counters(f"{at}.counters", one.get("counters", {}))
    given = [one[key] for one in several]
    for index, name in enumerate(given):
        if name in given[:index]:
            yield duplicate(f"{place}[{index}]", name)


def _check_name(field: str, name: str) -> Iterator[FieldError]:
    if not name:
        yield required(field)
        return
    yield from (invalid(field, name, problem) for problem in names.label(name))


def _check_counters(field: str, counters: Object) -> Iterator[FieldError]:
    """Yield the errors of counters, sorted. The real server's order is random."""
    if not counters:
        yield required(field)
    elif len(counters) > _MOST_COUNTERS:
        yield too_many(field, len(counters), _MOST_COUNTERS)
    else:
        for name in sorted(counters):
            yield from (invalid(field, name, problem) for problem in names.label(name))
