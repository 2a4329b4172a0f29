"""Kinds of values: each reads a place, checks it, and has its JSON Schema."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from deviceplugin._config.documents.faults import InvalidError, bounded
from deviceplugin._config.documents.places import Place
from deviceplugin._config.values import write

_T = TypeVar("_T")
_U = TypeVar("_U")
Schema = Mapping[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Kind(Generic[_T]):
    """A kind of value. ``read`` turns a place into a value, and records faults at the place."""

    read: Callable[[Place], _T]
    schema: Schema
    """The JSON Schema of the kind. It may contain other kinds."""
    takes: frozenset[str]
    """The kinds of places that it can read."""
    wanted: str
    """What the value must be, for messages: ``a string``."""
    name: str = ""
    """Its name among the definitions of a schema. Without one, it is written out where it is used.
    """
    write: Callable[[Any], Any] = write
    """The reverse of ``read``: what one would write into a file."""

    def then(self, make: Callable[[Place, _T], _U], schema: Schema | None = None) -> "Kind[_U]":
        """Return a kind whose values ``make`` makes from these; it may record faults and raise."""
        read = self.read
        return Kind(
            lambda place: make(place, read(place)),
            {**self.schema, **(schema or {})},
            self.takes,
            self.wanted,
            self.name,
            self.write,
        )

    def to(
        self,
        make: Callable[[_T], _U],
        write: Callable[[_U], Any] = write,
        schema: Schema | None = None,
    ) -> "Kind[_U]":
        """Return a kind whose values ``make`` makes from these.

        The message of its ``ValueError`` continues after the value: ``'x' is not ...``.
        """

        def made(place: Place, value: _T) -> _U:
            try:
                return make(value)
            except ValueError as error:
                raise place.fault(f"{place.shown} {error}") from error

        return replace(self.then(made, schema), write=write)

    def called(self, name: str) -> "Kind[_T]":
        """Return the same kind with a name in the schema."""
        return replace(self, name=name)

    def described(self, description: str) -> "Kind[_T]":
        """Return the same kind with a description, which editors show."""
        return replace(self, schema={**self.schema, "description": description})


def list_of(
    kind: Kind[_T],
    least: int = 0,
    *,
    single: bool = False,
    nullable: bool = False,
    together: Callable[[Sequence[tuple[Place, _T]]], object] = len,
    instead: Callable[[Place, str], _T] | None = None,
) -> Kind[tuple[_T, ...]]:
    """Return the kind of lists of ``kind`` with ``least`` items or more.

    With ``single``, a value that is not a list stands for a list of one. With ``nullable``, null is
    an empty list, as programs in Go write it: for a list of what is offered, where an absent one
    has another meaning. ``together`` gets the items that are valid by themselves, and records what
    is wrong with several of them. With ``instead``, wrong items can be skipped: see ``read_each``.
    """
    wanted = f"{kind.wanted}, or a list" if single else "a list"

    def read(place: Place) -> tuple[_T, ...]:
        before = place.faults.count
        if single and place.kind not in kind.takes and place.kind != "list":
            raise place.wrong(wanted)
        if nullable and place.kind == "nothing":
            return ()
        places = [place] if single and place.kind in kind.takes else place.items()
        if len(places) < least:
            raise place.fault("is empty" if least == 1 else f"needs {least} items")
        if instead:
            return read_each(places, kind, together, instead)
        found = _valid(places, kind)
        together(found)
        go_on(place, before)
        return tuple(value for _, value in found)

    schema: Schema = {"type": "array", "items": kind, **({"minItems": least} if least else {})}
    others = [*([kind] * single), *([{"type": "null"}] * nullable)]
    takes = {"list"} | (kind.takes if single else set()) | ({"nothing"} if nullable else set())
    return Kind(
        read,
        {"anyOf": [*others, schema]} if others else schema,
        frozenset(takes),
        wanted,
        write=lambda values: [kind.write(one) for one in values],
    )


MOST_ENTRIES: Final = 5000
"""Entries of a list. Each is a resource, and the kubelet is not made for more."""


def read_each(
    places: Sequence[Place],
    kind: Kind[_T],
    together: Callable[[Sequence[tuple[Place, _T]]], object],
    instead: Callable[[Place, str], _T],
) -> tuple[_T, ...]:
    """Return the items at ``places``, in their order, with ``instead`` for each that is wrong.

    That gets the place of the item and, in one message, all that is wrong there. Those who may not
    skip wrong items get an error at the end, as for any fault. ``together`` is as for ``list_of``.
    More than ``MOST_ENTRIES`` are not read, and an error in any case.
    """
    if len(places) > MOST_ENTRIES:
        places[MOST_ENTRIES].fault(f"is one of {len(places)}: {MOST_ENTRIES} are the most")
        return ()
    apart = [Place(one.faults.of_entry(one.key), one.node, one.key) for one in places]
    found = _valid(apart, kind)
    together(found)
    valid = {id(one): value for one, value in found if not one.faults.count}
    return tuple(
        valid[id(one)] if id(one) in valid else instead(one, bounded("; ".join(one.faults.lines)))
        for one in apart
    )


def _valid(places: Iterable[Place], kind: Kind[_T]) -> list[tuple[Place, _T]]:
    found = []
    for one in places:
        with suppress(InvalidError):
            found.append((one, kind.read(one)))
    return found


def readable(place: Place | None, kind: Kind[_T]) -> _T | None:
    """Return the value at a place if there is a valid one. Faults are not recorded."""
    if place is not None:
        with suppress(InvalidError):
            return kind.read(Place(place.faults.apart(), place.node, place.key))
    return None


def mapping_of(
    kind: Kind[_T], name_problem: Callable[[str], str] = lambda _name: "", least: int = 0
) -> Kind[dict[str, _T]]:
    """Return the kind of mappings from names to ``kind``.

    ``name_problem`` returns what is wrong with a name, or an empty string.
    """

    def read(place: Place) -> dict[str, _T]:
        before = place.faults.count
        places = place.keys()
        if len(places) < least:
            raise place.fault("is empty")
        found = {}
        for name, one in places.items():
            if what := name_problem(name):
                one.fault(what)
            with suppress(InvalidError):
                found[name] = kind.read(one)
        go_on(place, before)
        return found

    limits = {"minProperties": least} if least else {}
    return Kind(
        read,
        {"type": "object", "additionalProperties": kind, **limits},
        frozenset({"mapping"}),
        "a mapping with keys",
        write=lambda values: {name: kind.write(one) for name, one in values.items()},
    )


def either(*kinds: Kind[Any], wanted: str = "") -> Kind[Any]:
    """Return the kind of values that are of any of ``kinds``; the first that fits reads the place.

    ``wanted`` describes them all in messages.
    """
    wanted = wanted or " or ".join(dict.fromkeys(kind.wanted for kind in kinds))

    def read(place: Place) -> Any:
        for kind in kinds:
            if place.kind in kind.takes:
                return kind.read(place)
        raise place.wrong(wanted)

    takes = frozenset[str]().union(*(kind.takes for kind in kinds))
    return Kind(read, {"anyOf": [*kinds]}, takes, wanted)


def nothing(value: _T) -> Kind[_T]:
    """Return the kind of ``null``, which is read as ``value``."""

    def read(place: Place) -> _T:
        if place.kind != "nothing":
            raise place.wrong("null")
        return value

    return Kind(read, {"type": "null"}, frozenset({"nothing"}), "null")


def anything() -> Kind[Any]:
    """Return the kind of any value, read as a plain Python object."""
    every = "text integer number boolean date nothing list mapping other"
    return Kind(lambda place: place.plain(), {}, frozenset(every.split()), "anything")


def go_on(place: Place, before: int) -> None:
    """Raise InvalidError if there are more faults than ``before``."""
    if place.faults.count > before:
        raise InvalidError
