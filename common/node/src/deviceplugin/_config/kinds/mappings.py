"""Kinds of mappings with known keys; whole documents of a kind, and their schemas."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from deviceplugin._config.documents import places
from deviceplugin._config.documents.faults import InvalidError, refuse
from deviceplugin._config.documents.places import Place
from deviceplugin._config.kinds.kind import Kind, Schema, go_on
from deviceplugin.errors import ConfigError

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False, repr=False)
class Key(Generic[_T]):
    """A key of a record."""

    kind: Kind[_T]
    argument: str = ""
    """The argument that gets the value; by default the key, with underscores."""
    needed: bool = False


Rule = Callable[[Place, Mapping[str, Place]], object]
"""Records what is wrong with several keys of a record together."""


def needed(kind: Kind[_T], argument: str = "") -> Key[_T]:
    """Return a key that is required."""
    return Key(kind, argument, needed=True)


def as_argument(kind: Kind[_T], argument: str) -> Key[_T]:
    """Return a key whose value is passed as an argument of another name."""
    return Key(kind, argument)


@dataclass(eq=False, repr=False)
class _Record(Generic[_T]):
    """What a mapping becomes."""

    make: Callable[..., _T]
    keys: Mapping[str, Key[Any]]
    rules: tuple[Rule, ...] = ()
    any_case: bool = False

    def argument(self, key: str) -> str:
        return self.keys[key].argument or key.replace("-", "_")

    def read(self, place: Place) -> _T:
        before = place.faults.count
        given = place.keys(self.keys, any_case=self.any_case)
        given = {
            key: one
            for key, one in given.items()
            if one.kind != "nothing" or "nothing" in self.keys[key].kind.takes
        }
        for key, expected in self.keys.items():
            if expected.needed and key not in given:
                place.fault(f"{key} is missing")
        for rule in self.rules:
            rule(place, given)
        found = {}
        for key, one in given.items():
            with suppress(InvalidError):
                found[self.argument(key)] = self.keys[key].kind.read(one)
        go_on(place, before)
        try:
            return self.make(**found)
        except ValueError as error:
            raise place.fault(str(error)) from error

    def write(self, value: _T) -> dict[str, Any]:
        given = {
            key: (one, getattr(value, self.argument(key), None)) for key, one in self.keys.items()
        }
        return {
            key: one.kind.write(inner)
            for key, (one, inner) in given.items()
            if one.needed or inner not in (None, "", (), {}, [])
        }


def record(
    make: Callable[..., _T],
    keys: Mapping[str, Kind[Any] | Key[Any]],
    *,
    rules: Iterable[Rule] = (),
    schema: Schema | None = None,
    any_case: bool = False,
) -> Kind[_T]:
    """Return the kind of mappings with these keys and no others.

    ``make``, such as a dataclass, makes the value. It gets only the keys that are given, so it
    decides the defaults. If it raises ``ValueError``, the message is a fault of the mapping.
    ``rules`` check several keys together; ``schema`` is the same in JSON Schema. A key whose value
    is null is as absent, unless its kind has a meaning for null. With ``any_case``, keys may be in
    upper or lower case and an unknown key whose value is null is ignored, as in files that programs
    in Go write.
    """
    known = {key: one if isinstance(one, Key) else Key(one) for key, one in keys.items()}
    made = _Record(make, known, tuple(rules), any_case)
    missing = [key for key, one in known.items() if one.needed]
    described: Schema = {
        "type": "object",
        "properties": {key: one.kind for key, one in known.items()},
        "additionalProperties": False,
        **({"required": missing} if missing else {}),
        **(schema or {}),
    }
    return Kind(
        made.read, described, frozenset({"mapping"}), "a mapping with keys", write=made.write
    )


@dataclass(eq=False, repr=False)
class _Definitions:
    """Named kinds of a schema, each of which is described once."""

    found: dict[str, Any] = field(default_factory=dict)

    def of(self, value: Any) -> Any:
        if isinstance(value, Kind):
            if not value.name:
                return self.of(value.schema)
            if value.name not in self.found:
                self.found[value.name] = None  # holds its place
                self.found[value.name] = self.of(value.schema)
            return {"$ref": f"#/$defs/{value.name}"}
        if isinstance(value, Mapping):
            return {key: self.of(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(inner) for inner in value]
        return value


def schema(kind: Kind[Any] | Schema, title: str) -> dict[str, Any]:
    """Return the JSON Schema of ``kind``, for editors; kinds with a name are its ``$defs``.

    ``kind`` may also be a schema that contains kinds.
    """
    definitions = _Definitions()
    outermost = definitions.of(kind.schema if isinstance(kind, Kind) else kind)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **outermost,
        **({"$defs": definitions.found} if definitions.found else {}),
    }


def read(path: Path, kind: Kind[_T]) -> _T:
    """Return the value of a file in TOML, JSON or YAML, read as ``kind``.

    ConfigError has all faults, a line each, with file, line and key.
    """
    return finished(places.of_file(path), kind)


def finished(root: Place, kind: Kind[_T]) -> _T:
    """Return the value at the outermost place of a document, read as ``kind``.

    ConfigError has all faults of the document.
    """
    return checked(root, kind.read)


def checked(root: Place, read: Callable[[Place], _T]) -> _T:
    """Return what ``read`` returns for the outermost place of a document.

    ConfigError has all faults that were recorded, a line each.
    """
    try:
        value = read(root)
    except InvalidError as error:
        raise ConfigError("\n".join(root.faults.lines)) from error
    refuse([root.faults], value)
    return value
