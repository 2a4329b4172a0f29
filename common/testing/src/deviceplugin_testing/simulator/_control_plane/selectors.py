"""The selectors of device classes and claims: of CEL what drivers and their examples use.

Operators get Python's spelling, because Python's parser gives them the same precedence. Of the
tree, only nodes that are known are taken, and they are evaluated here: nothing is executed.
"""

import ast
import keyword
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter, contains, ge, gt, le, lt
from typing import Any, Final, NamedTuple

from deviceplugin._dra.slices.attributes import semantic
from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.quantities import amount

_NUMBER: Final = r"(0|[1-9]\d*)"
_PRE_RELEASE: Final = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = r"[0-9a-zA-Z-]+"
VERSION: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?",
    re.ASCII,
)
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<raw>[rR]?)(?:"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)')"""
    r"""|(?P<word>[A-Za-z_]\w*|(?:0|[1-9]\d{0,18})(?![\w.])|&&|\|\||[=!<>]=|[!<>().,\[\]-]))\s*""",
    re.ASCII,
)
_SPELLED: Final = {"&&": "and", "||": "or", "!": "~", "true": "True", "false": "False"}
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_DEVICE: Final = {"driver", "attributes", "capacity", "allowMultipleAllocations"}
_UNKNOWN: Final = (
    "not simulated: use device.driver, .attributes, .capacity and .allowMultipleAllocations with "
    "comparisons, in, &&, ||, !, has, quantity, semver, and methods of strings and of these two"
)
_DEEPEST: Final = 100
"""Levels of an expression."""
_NOT_RE2: Final = re.compile(r"\(\?(?:[=!<>(]|P[=>])|\\[1-9]")
_REPEATED: Final = re.compile(r"\)[*+{]|(?:(?<!\()[*+?{][^*+?{]*){6}")
_MOST_TEXT: Final = 64
"""Characters in which Python finds what RE2 does, and soon, if it is not ``_REPEATED``."""


class SelectorError(Exception):
    """A selector cannot be evaluated for a device; the scheduler then gives up on the claim."""


class _Quantity(NamedTuple):
    value: Fraction


class _Semver(NamedTuple):
    major: int
    minor: int
    patch: int
    is_final: bool
    early: Sequence[tuple[bool, int, str]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device and its driver."""

    driver: str
    device: Object

    def read(self, what: str) -> Any:
        """Return what CEL sees of the device: of attributes and capacity, values by domain."""
        if what == "driver":
            return self.driver
        if what not in ("attributes", "capacity"):
            return bool(self.device.get(what))
        found: dict[str, dict[str, Any]] = defaultdict(dict)  # every domain is there
        for name, given in self.device.get(what, {}).items():
            domain, _, last = name.rpartition("/")
            kind, value = next((k, v) for k, v in given.items() if k != "requestPolicy")
            found[domain or self.driver][last] = _READ[kind](value) if kind in _READ else value
        return found


Selector = Callable[[Candidate], bool]


@lru_cache(maxsize=256)
def parse_selector(expression: str) -> Selector:
    """Return whether a candidate is selected, as a function; raise ``ValueError``."""
    try:
        tree = ast.parse("".join(_respelled(expression)), mode="eval").body
    except (KeyError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(_UNKNOWN) from None
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        if not all(map(_is_known, level)):
            break
        level = [below for node in level for below in ast.iter_child_nodes(node)]
    if level:
        raise ValueError(_UNKNOWN)
    return lambda candidate: _truth(_value(tree, candidate))


def _respelled(expression: str) -> Iterator[str]:
    place, was_text = 0, False
    while place < len(expression):
        found = _TOKEN.match(expression, place)
        if found is None or (was_text and not found["word"]):  # Python would join two strings
            raise ValueError(_UNKNOWN)
        place, was_text = found.end(), not found["word"]
        if word := found["word"]:
            if keyword.iskeyword(word) and word != "in":
                raise ValueError(_UNKNOWN)
            yield f"{_SPELLED.get(word, word)} "
        else:
            text = found["double"] or found["single"] or ""
            yield repr(text if found["raw"] else _ESCAPE.sub(lambda one: _ESCAPED[one[1]], text))


def _is_known(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            known = name in {"device", *_FUNCTIONS}
        case ast.Attribute(value=ast.Name(id=of)):
            known = of == "device" and node.attr in _DEVICE
        case ast.Call(func=ast.Name(id=name), args=given):
            tested = [type(one) for one in given] == [ast.Attribute]
            known = name in _FUNCTIONS and (name != "has" or tested)
        case ast.Call(func=function):
            known = isinstance(function, ast.Attribute) and function.attr in _METHODS
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            known = isinstance(operand, ast.Constant) and type(operand.value) is int
        case ast.Compare(ast.Attribute(ast.Name(), "driver"), _, [ast.Constant(of)]):
            known = isinstance(of, str)
        case ast.Compare():
            known = len(node.ops) == 1
        case _:
            known = type(node) in {*_VALUES, *_OPERATORS}
    return known


def _value(node: ast.expr, of: Candidate) -> Any:
    return _VALUES[type(node)](node, of)


def _call(node: ast.Call, of: Candidate) -> Any:
    given: tuple[Any, ...] = ()
    match node:
        case ast.Call(func=ast.Name(id="has"), args=[ast.Attribute(value=subject, attr=name)]):
            return isinstance(subject, ast.Name) or name in _value(subject, of)
        case ast.Call(func=ast.Attribute(value=subject, attr=name)):
            given = (_value(subject, of),)
            call = _METHODS[name].get(type(given[0]), _no_overload)
        case _:
            name = ast.unparse(node.func)
            call = _FUNCTIONS[name]
    return _apply(name, call, *given, *(_value(one, of) for one in node.args))


def _apply(name: str, call: Callable[..., Any], *given: Any) -> Any:
    try:
        return call(*given)
    except (AttributeError, TypeError, ValueError, re.error):
        raise SelectorError(f"no such overload: {name}") from None


def _no_overload(*_given: object) -> None:
    raise TypeError


def _member(subject: Any, key: Any) -> Any:
    try:
        is_place = isinstance(subject, list) and type(key) is int and key >= 0
        return subject[key] if is_place or isinstance(subject, Mapping) else {}[key]
    except (LookupError, TypeError):
        raise SelectorError(f"no such key: {key}") from None


def _logic(node: ast.BoolOp, of: Candidate) -> bool:
    """Return the result. As in CEL, an error counts only if no other operand decides."""
    decisive, failed = isinstance(node.op, ast.Or), None
    for one in node.values:
        try:
            if _truth(_value(one, of)) is decisive:
                return decisive
        except SelectorError as error:
            failed = failed or error
    if failed:
        raise failed
    return not decisive


def _compare(node: ast.Compare, of: Candidate) -> bool:
    (symbol,), (right,) = node.ops, node.comparators
    one, other = _value(node.left, of), _value(right, of)
    if isinstance(symbol, ast.Eq | ast.NotEq):
        return _equal(one, other) is isinstance(symbol, ast.Eq)
    if isinstance(symbol, ast.In) and isinstance(other, list | Mapping):
        return _includes(other, one)
    fits = isinstance(one, int | str) and type(one) is type(other)
    call = _OPERATORS[type(symbol)] if fits else _no_overload
    return bool(_apply(type(symbol).__name__, call, one, other))


def _equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal, which true and 1 are not."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return type(one) is type(other) and one == other


def _includes(several: Iterable[Any], one: Any) -> bool:
    return any(_equal(one, each) for each in several)


def _unary(node: ast.UnaryOp, of: Candidate) -> Any:
    value = _value(node.operand, of)
    return not _truth(value) if isinstance(node.op, ast.Invert) else -value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise SelectorError("a selector, and an operand of &&, || and !, must be true or false")
    return value


def _quantity(text: str) -> _Quantity:
    if text.strip() != text:
        raise ValueError(text)
    return _Quantity(amount(text))


def _matches(text: str, pattern: str) -> bool:
    if _NOT_RE2.search(pattern):
        raise ValueError(pattern)
    if _REPEATED.search(pattern) or len(text) > _MOST_TEXT:
        raise SelectorError("not simulated: repeated groups, 6 repetitions, or a long string")
    return bool(re.search(pattern, text, re.ASCII))


def _semver(text: str, normalize: bool = False) -> _Semver:  # noqa: FBT001, FBT002 - as in CEL
    found = VERSION.fullmatch(semantic(text) if normalize else text)
    if found is None or not isinstance(normalize, bool):
        raise ValueError(text)
    major, minor, patch, early = found.groups()[:4]
    names = early[1:].split(".") if early else ()
    parts = [(False, int(one), "") if one.isdigit() else (True, 0, one) for one in names]
    return _Semver(int(major), int(minor), int(patch), not early, parts)


def _order(one: Any, other: Any) -> int:
    if type(one) is not type(other):
        raise TypeError
    return int(one > other) - int(one < other)


_OPERATORS: Final[Mapping[type, Any]] = {
    **dict(zip((ast.Lt, ast.LtE, ast.Gt, ast.GtE), (lt, le, gt, ge), strict=True)),
    **dict.fromkeys(
        (ast.Eq, ast.NotEq, ast.In, ast.And, ast.Or, ast.Invert, ast.USub, ast.Load), _no_overload
    ),
}
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "value": _quantity,
    "version": _semver,
    "versions": lambda several: [*map(_semver, several)],
}
_FUNCTIONS: Final[Mapping[str, Any]] = {"has": bool, "quantity": _quantity, "semver": _semver}
_AMOUNTS: Final = (_Quantity, _Semver)
_METHODS: Final[Mapping[str, Mapping[type, Callable[..., Any]]]] = {
    "compareTo": dict.fromkeys(_AMOUNTS, _order),
    "isGreaterThan": dict.fromkeys(_AMOUNTS, lambda one, other: _order(one, other) > 0),
    "isLessThan": dict.fromkeys(_AMOUNTS, lambda one, other: _order(one, other) < 0),
    **{name: {_Semver: attrgetter(name)} for name in ("major", "minor", "patch")},
    "startsWith": {str: lambda text, start: text.startswith(start)},
    "endsWith": {str: lambda text, end: text.endswith(end)},
    "contains": {str: contains},
    "matches": {str: _matches},
    "lowerAscii": {str: lambda text: text.encode().lower().decode()},
    "includes": {**dict.fromkeys((bool, int, str, *_AMOUNTS), _equal), list: _includes},
    "upperAscii": {str: lambda text: text.encode().upper().decode()},
}
_VALUES: Final[Mapping[type, Callable[[Any, Candidate], Any]]] = {
    ast.Constant: lambda node, _of: node.value,
    ast.Name: lambda node, _of: _member({}, node.id),
    ast.List: lambda node, of: [_value(one, of) for one in node.elts],
    ast.Attribute: lambda node, of: (
        of.read(node.attr)
        if isinstance(node.value, ast.Name)
        else _member(_value(node.value, of), node.attr)
    ),
    ast.Subscript: lambda node, of: _member(_value(node.value, of), _value(node.slice, of)),
    ast.BoolOp: _logic,
    ast.Compare: _compare,
    ast.UnaryOp: _unary,
    ast.Call: _call,
}
