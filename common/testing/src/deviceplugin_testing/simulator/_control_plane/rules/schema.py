"""Reading an object by the fields that a server knows: others vanish, and types are checked."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deviceplugin_testing.simulator._control_plane.kinds import (
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    Kind,
    Object,
)
from deviceplugin_testing.simulator._control_plane.quantities import canonical
from deviceplugin_testing.simulator._control_plane.refusals import unhandled
from deviceplugin_testing.simulator._control_plane.rules.claims import requests_of

SHARES: Final = "DRAConsumableCapacity"
KNOWN: Final = (SHARES,)
"""The feature gates that can be off."""
_FIELDS: Final[Mapping[Kind, tuple[str, ...]]] = {
    RESOURCE_SLICE: ("allowMultipleAllocations", "requestPolicy"),
    RESOURCE_CLAIM: ("capacity",),
    RESOURCE_CLAIM_TEMPLATE: ("capacity",),
}


def checked(gates: Mapping[str, bool]) -> Mapping[str, bool]:
    """Return ``gates``; raise ``ValueError`` if there is an unknown one."""
    if unknown := sorted(gates.keys() - set(KNOWN)):
        raise ValueError(f"{unknown[0]} is not simulated; there is {', '.join(KNOWN)}")
    return gates


def without_shares(kind: Kind, new: Object, old: Object | None) -> None:
    """Remove from ``new`` what says that devices are shared, unless ``old`` has any of it."""
    fields = _FIELDS.get(kind, ())
    if old is not None and any(field in one for one in _owners(kind, old) for field in fields):
        return
    for one in _owners(kind, new):
        for name in fields:
            one.pop(name, None)


def _owners(kind: Kind, made: Object) -> Iterator[Object]:
    """Yield what can have such fields: devices and their capacities, or requests."""
    if kind == RESOURCE_SLICE:
        for device in made["spec"].get("devices", ()):
            yield device
            yield from device.get("capacity", {}).values()
    elif kind in _FIELDS:
        spec = made["spec"]["spec"] if kind == RESOURCE_CLAIM_TEMPLATE else made["spec"]
        for request in requests_of(spec):
            yield request.get("exactly", {})
            yield from request.get("firstAvailable", ())


_INT64: Final = 2**63
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"


class WrongTypeError(ValueError):
    """A value is not of its field's type; the message is the server's."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A string, a number or a truth value."""

    go: str
    """The name of the type in the server's messages."""
    python: type

    def read(self, value: Any, place: str) -> Any:
        """Return ``value``; raise ``WrongTypeError``."""
        wrong: bool = type(value) is not self.python
        if wrong or (self.python is int and not -_INT64 <= value < _INT64):
            raise WrongTypeError(_mismatch(value, place, self.go))
        return value


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity, which is written anew."""

    def read(self, value: Any, place: str) -> str:
        """Return the canonical form; raise ``WrongTypeError``."""
        del place
        try:
            return canonical(value)
        except ValueError as error:
            raise WrongTypeError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Time:
    """A time."""

    def read(self, value: Any, place: str) -> str:
        """Return ``value``; raise ``WrongTypeError``."""
        del place
        text = str(value)
        if _TIME.fullmatch(text) is None:
            raise WrongTypeError(
                f'parsing time "{text}" as "{_LAYOUT}": cannot parse "{text}" as "2006"'
            )
        return text


@dataclass(frozen=True, slots=True)
class Anything:
    """What is kept as it is."""

    def read(self, value: Any, place: str) -> Any:
        """Return ``value``."""
        del place
        return value


@dataclass(frozen=True, slots=True)
class Several:
    """A list. An empty one vanishes."""

    item: "Type"
    go: str

    def read(self, value: Any, place: str) -> list[Any]:
        """Return the items; raise ``WrongTypeError``."""
        if not isinstance(value, list):
            raise WrongTypeError(_mismatch(value, place, self.go))
        return [self.item.read(_zero(self.item, one), place) for one in value]


@dataclass(frozen=True, slots=True)
class Named:
    """A map from strings. An empty one vanishes."""

    value: "Type"
    go: str

    def read(self, value: Any, place: str) -> Object:
        """Return the entries; raise ``WrongTypeError``."""
        if not isinstance(value, dict):
            raise WrongTypeError(_mismatch(value, place, self.go))
        return {name: self.value.read(_zero(self.value, one), place) for name, one in value.items()}


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with fields."""

    go: str
    fields: Mapping[str, "Type"]
    always: Mapping[str, Any] = field(default_factory=dict)
    """Fields that are there even if nobody sets them, and their values then."""
    nullable: tuple[str, ...] = ()
    """Fields that are there as ``null`` if nobody sets them."""

    def read(self, value: Any, place: str) -> Object:
        """Return the known fields; raise ``WrongTypeError``."""
        if not isinstance(value, dict):
            raise WrongTypeError(_mismatch(value, place, f"v1.{self.go}"))
        found: Object = {}
        for name, kind in self.fields.items():
            one = value.get(name)
            one = self.always.get(name) if one is None else one
            if one is None:
                if name in self.nullable:
                    found[name] = None
                continue
            inner = place.partition(" ")[2] or place
            read = kind.read(one, f"{self.go} {inner}.{name}" if inner else f"{self.go} {name}")
            if read not in ([], {}) or not isinstance(kind, Several | Named):
                found[name] = read
        return found


Type = Scalar | Quantity | Time | Anything | Several | Named | Struct
STRING: Final = Scalar("string", str)
INTEGER: Final = Scalar("int64", int)
BOOLEAN: Final = Scalar("bool", bool)
QUANTITY: Final = Quantity()
TIME: Final = Time()
ANYTHING: Final = Anything()


def _zero(kind: Type, value: Any) -> Any:
    """Return what ``null`` in a list or a map stands for."""
    return {} if value is None and isinstance(kind, Struct) else value


def _mismatch(value: Any, place: str, go: str) -> str:
    names = {str: "string", bool: "bool", list: "array", dict: "object"}
    shown = names.get(type(value), "number")
    if go == INTEGER.go and type(value) in {int, float}:
        shown = f"number {value}"
    owner, _, path = place.partition(" ")
    return f"json: cannot unmarshal {shown} into Go struct field {owner}.{path} of type {go}"


def read(kind: Kind, schema: Struct, made: Object) -> Object:
    """Return the fields of ``made`` that the server knows, written as the server writes them.

    Raises:
        RefusedError: A value is not of its field's type.
    """
    try:
        return schema.read(made, "")
    except WrongTypeError as error:
        raise unhandled(kind, str(error)) from error
