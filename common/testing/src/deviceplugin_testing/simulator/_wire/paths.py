"""How the kubelet reads the path of an endpoint."""

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)

_GO_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    '"': r"\"",
    "\\": r"\\",
}


def socket_path(directory: Path, endpoint: str) -> str:
    """Return the path that the kubelet dials for ``endpoint``: joined and cleaned, never checked.

    ``..`` leads out of ``directory``; an absolute endpoint lands inside it.
    """
    return os.path.normpath(f"{directory}/{endpoint}")


def dialled_path(path: str) -> str:
    """Return the path for gRPC to dial: the kubelet reads ``path`` as part of a URL.

    So ``?`` and ``#`` cut the path short, and ``%41`` means ``A``.

    Raises:
        ValueError: The path has an invalid escape.
    """
    if bad := _BAD_ESCAPE.search(path):
        url = go_quote(f"passthrough:///{path}")
        raise ValueError(f"parse {url}: invalid URL escape {go_quote(bad.group())}")
    return quote(unquote(re.split("[?#]", path, maxsplit=1)[0]))


def go_quote(text: str) -> str:
    """Return ``text`` in quotes, as in the kubelet's messages."""
    return '"' + "".join(_GO_ESCAPES.get(char) or _printable(char) for char in text) + '"'


def _printable(char: str) -> str:
    if char.isprintable():
        return char
    if char < "\x80":
        return f"\\x{ord(char):02x}"
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"
