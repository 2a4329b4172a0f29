"""Converting values of settings from the form that people write, and back."""

import math
import re
import typing
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from deviceplugin._config import quantities

_SHORTEST: Final = 0.001
"""Seconds. Durations are whole milliseconds, so that they are written as they were read."""
_BOOLEANS: Final = {"true": True, "yes": True, "on": True, "1": True} | {
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
KNOWN: Final = (
    "known are str, int, float, bool, Path, timedelta, Literal of strings, tuples of one of these, "
    "one of them or None, classes with their own parse, and fields with a kind in their metadata"
)
"""The types that `can_parse` accepts, in words."""
_URL: Final = re.compile(r"https?://[^/\s]+/?")
_SHORT_BOOLEANS: Final = {"t": "true", "f": "false"}
"""Programs in Go accept these too, so manifests contain them."""


def parse(value: Any, kind: Any) -> Any:
    """Return ``value``, from a flag, a variable or a file, as a ``kind``.

    Known kinds: strings, numbers, booleans, paths, durations (``1m30s``), choices; sequences of
    these, separated by commas or as a list; any of them or None, for which an empty string stands;
    and classes with their own ``parse``, which gets ``value``.

    Raises:
        ValueError: It is not one; the message continues after the value: ``'x' is not ...``.
        TypeError: A setting cannot be of this kind.
    """
    if is_own(kind):
        return kind.parse(value)
    if type(None) in typing.get_args(kind):
        (inner,) = (one for one in typing.get_args(kind) if one is not type(None))
        return None if value is None or value == "" else parse(value, inner)
    if typing.get_origin(kind) is Literal:
        return _choice(value, typing.get_args(kind))
    if typing.get_origin(kind) in {tuple, list, Sequence}:
        return _several(value, typing.get_args(kind)[0])
    if kind is bool:
        text = str(value).lower()
        return (
            value
            if isinstance(value, bool)
            else _choice(_SHORT_BOOLEANS.get(text, text), _BOOLEANS)
        )
    return _single(value, kind)


def _several(value: Any, kind: Any) -> tuple[Any, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError("is not a list")  # noqa: TRY004 - the value is wrong, not the caller
    texts = [item.strip() if isinstance(item, str) else item for item in items]
    return tuple(parse(item, kind) for item in texts if item != "")


def _single(value: Any, kind: Any) -> Any:
    if kind not in _PARSERS:
        raise TypeError(f"a setting cannot be a {kind}")
    if isinstance(value, bool | list | dict) or value is None:
        raise ValueError(f"is not {_NAMES[kind]}")
    try:
        return _PARSERS[kind](str(value))
    except OverflowError:
        raise ValueError("has more than 18 digits") from None
    except ValueError:
        raise ValueError(f"is not {_NAMES[kind]}") from None


def _whole(text: str) -> int:
    if abs(number := int(text)) >= quantities.TOO_LARGE:
        raise OverflowError(text)
    return number


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def _choice(value: Any, choices: Any) -> Any:
    if value not in choices:
        raise ValueError(f"is not one of {', '.join(choices)}")
    return choices[value] if isinstance(choices, dict) else value


def _duration(text: str) -> timedelta:
    seconds = quantities.seconds(text)
    if not _SHORTEST <= seconds <= quantities.LONGEST.total_seconds():
        raise ValueError(text)
    return timedelta(milliseconds=round(seconds * 1000))


def _path(text: str) -> Path:
    if not text.startswith("/") or "\0" in text:
        raise ValueError(text)
    return Path(text)


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``; ``:port`` means every address of the machine.

    Raises:
        ValueError: It is neither; the message continues after the value.
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


_PARSERS: Final[dict[Any, Any]] = {
    str: str,
    int: _whole,
    float: _number,
    Path: _path,
    timedelta: _duration,
}
_NAMES: Final[dict[Any, str]] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    Path: "an absolute path",
    timedelta: "a duration above zero, such as 30s, 1m30s or 24h",
}


def is_own(kind: Any) -> bool:
    """Return whether ``kind`` is a class with its own ``parse``. Its flags give it a list."""
    return hasattr(kind, "parse")


def can_parse(kind: Any) -> bool:
    """Return whether there can be settings of ``kind``: whether ``parse`` knows it."""
    arguments = typing.get_args(kind)
    if is_own(kind):
        return True
    if type(None) in arguments:
        inner = [one for one in arguments if one is not type(None)]
        return len(inner) == 1 and can_parse(inner[0])
    if typing.get_origin(kind) is Literal:
        return all(isinstance(one, str) for one in arguments)
    if typing.get_origin(kind) in {tuple, list, Sequence}:
        return can_parse(arguments[0])
    return any(kind is known for known in (bool, *_PARSERS))


def type_name(kind: Any) -> str:
    """Return a type as an author has written it."""
    return kind.__name__ if type(kind) is type else str(kind)


def metavar(kind: Any) -> str:
    """Return the placeholder for a value of ``kind`` in usage messages."""
    if type(None) in typing.get_args(kind):
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    if typing.get_origin(kind) is Literal:
        return "|".join(typing.get_args(kind))
    names = {int: "N", float: "N", bool: "true|false", Path: "PATH", timedelta: "DURATION"}
    return names.get(kind, "TEXT")


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
