"""Converting values of settings from the form that people write, and back."""

import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from deviceplugin._config import quantities

_SHORTEST: Final = 0.001
"""Seconds. Durations are whole milliseconds, so that they are written as they were read."""
_BOOLEANS: Final = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(
    ("false", "no", "off", "0"), False
)
_SHORT_BOOLEANS: Final = {"t": "true", "f": "false"}
"""Programs in Go accept these too, so manifests contain them."""
_KNOWN: Final = (
    "known are str, int, float, bool, Path, timedelta, Literal of strings, tuples of one of these, "
    "one of them or None, classes with their own parse, and fields with a kind in their metadata"
)
_URL: Final = re.compile(r"https?://[^/\s]+/?")


class Form(NamedTuple):
    """How the values of a type are read and described."""

    parse: Callable[[Any], Any]
    """Raises ValueError, whose message continues after the value: ``'x' is not ...``."""
    metavar: str
    """The placeholder in usage messages."""
    schema: Mapping[str, Any]
    """The JSON Schema of what stands in a file."""


def form_of(kind: Any) -> Form | None:
    """Return the form of settings of a type; None if there cannot be any."""
    arguments = typing.get_args(kind)
    if is_own(kind):
        return Form(kind.parse, "TEXT", kind.schema() if hasattr(kind, "schema") else {})
    if type(None) in arguments:
        inner = [one for one in arguments if one is not type(None)]
        form = form_of(inner[0]) if len(inner) == 1 else None
        return form and form._replace(
            parse=partial(_optional, form.parse),
            schema={"anyOf": [form.schema, {"type": "null"}]},
        )
    if typing.get_origin(kind) is Literal:
        return _choice_of(arguments)
    if typing.get_origin(kind) in {tuple, list, Sequence}:
        if not (form := form_of(arguments[0])):
            return None
        items = {"type": "array", "items": form.schema}
        return Form(partial(_several, form.parse), "TEXT", items)
    return next((form for known, form in _SINGLE.items() if kind is known), None)


def _choice_of(choices: tuple[Any, ...]) -> Form | None:
    if not all(isinstance(one, str) for one in choices):
        return None
    schema = {"type": "string", "enum": [*choices]}
    return Form(partial(_choice, choices), "|".join(choices), schema)


def type_problem(kind: Any) -> str:
    """Return why there cannot be settings of a type; empty if there can."""
    if form_of(kind):
        return ""
    name = kind.__name__ if type(kind) is type else kind
    return f"because of its type {name}: {_KNOWN}"


def parse(value: Any, kind: Any) -> Any:
    """Return ``value``, from a flag, a variable or a file, as a ``kind``.

    Known kinds: strings, numbers, booleans, paths, durations (``1m30s``), choices; sequences of
    these, separated by commas or as a list; any of them or None, for which an empty string stands;
    and classes with their own ``parse``, which gets ``value``. TypeError for any other.
    """
    if form := form_of(kind):
        return form.parse(value)
    raise TypeError(f"a setting cannot be a {kind}")


def is_own(kind: Any) -> bool:
    """Return whether ``kind`` is a class with its own ``parse``. Its flags give it a list."""
    return hasattr(kind, "parse")


def _optional(parse: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None or value == "" else parse(value)


def _several(parse: Callable[[Any], Any], value: Any) -> tuple[Any, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError("is not a list")  # noqa: TRY004 - the value is wrong, not the caller
    texts = [item.strip() if isinstance(item, str) else item for item in items]
    return tuple(parse(item) for item in texts if item != "")


def _choice(choices: Any, value: Any) -> Any:
    if value not in choices:
        raise ValueError(f"is not one of {', '.join(choices)}")
    return value


def _boolean(value: Any) -> bool:
    text = str(value).lower()
    return _BOOLEANS[_choice(_BOOLEANS, _SHORT_BOOLEANS.get(text, text))]


def _scalar(read: Callable[[str], Any], name: str, value: Any) -> Any:
    if isinstance(value, bool | list | dict) or value is None:
        raise ValueError(f"is not {name}")
    try:
        return read(str(value))
    except OverflowError:
        raise ValueError("has more than 18 digits") from None
    except ValueError:
        raise ValueError(f"is not {name}") from None


def _whole(text: str) -> int:
    if abs(number := int(text)) >= quantities.TOO_LARGE:
        raise OverflowError(text)
    return number


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def _duration(text: str) -> timedelta:
    seconds = quantities.seconds(text)
    if not _SHORTEST <= seconds <= quantities.LONGEST.total_seconds():
        raise ValueError(text)
    return timedelta(milliseconds=round(seconds * 1000))


def _path(text: str) -> Path:
    if not text.startswith("/") or "\0" in text:
        raise ValueError(text)
    return Path(text)


def _form(
    read: Callable[[str], Any], name: str, metavar: str, json_type: str, pattern: str = ""
) -> Form:
    schema = {"type": json_type, **({"pattern": pattern} if pattern else {})}
    return Form(partial(_scalar, read, name), metavar, schema)


_LONG: Final = "a duration above zero, such as 30s, 1m30s or 24h"
_SINGLE: Final[dict[Any, Form]] = {
    str: _form(str, "a string", "TEXT", "string"),
    int: _form(_whole, "a whole number", "N", "integer"),
    float: _form(_number, "a number", "N", "number"),
    bool: Form(_boolean, "true|false", {"type": "boolean"}),
    Path: _form(_path, "an absolute path", "PATH", "string", r"^/[^\x00]*$"),
    timedelta: _form(_duration, _LONG, "DURATION", "string", quantities.DURATION_PATTERN),
}


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; ``:port`` means every address of the machine.

    ValueError if it is neither; the message continues after the value.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or len(port) > 5 or int(port) > 65535:  # noqa: PLR2004
        raise ValueError("is not of the form host:port or :port, or off")
    return host.strip("[]"), int(port)


def check_address(text: str) -> None:
    """Raise ``ValueError`` unless ``text`` is an address, or ``off``."""
    if text != "off":
        parse_address(text)


def check_url(text: str) -> None:
    """Raise ``ValueError`` unless ``text`` is the URL of a server, or is empty."""
    if text and not _URL.fullmatch(text):
        raise ValueError("is not the URL of a server, such as https://10.96.0.1:443")


def write(value: Any) -> Any:
    """Return ``value`` as people write it."""
    if hasattr(value, "write"):
        return value.write()
    if isinstance(value, timedelta):
        return quantities.write_duration(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [write(item) for item in value]
    return value
