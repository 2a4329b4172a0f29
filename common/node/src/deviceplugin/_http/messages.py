"""Requests and answers, as bytes. Requests have no body, and every connection has one request."""

import re
from collections.abc import Mapping
from email.message import Message
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from io import BytesIO
from types import MappingProxyType
from typing import Final, NamedTuple

TEXT: Final = "text/plain; charset=utf-8"
_METHODS: Final = ("GET", "HEAD")
_VERSION: Final = re.compile(r"HTTP/1\.[0-9]")
_ALWAYS: Final = {
    "Server": "deviceplugin",
    "Connection": "close",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Request(NamedTuple):
    """A request that can be answered."""

    line: str
    method: str
    path: str
    """Without what follows a question mark."""
    headers: Message


class HttpAnswer(NamedTuple):
    """What a client gets."""

    status: int
    kind: str
    body: bytes
    headers: Mapping[str, str] = _NOTHING
    """Those that not every answer has."""

    def head(self) -> bytes:
        """Return everything before the body."""
        lines = {
            **_ALWAYS,
            **self.headers,
            "Date": formatdate(usegmt=True),
            "Content-Type": self.kind,
            "Content-Length": str(len(self.body)),
        }
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        phrase = HTTPStatus(self.status).phrase
        return f"HTTP/1.0 {self.status} {phrase}\r\n{text}\r\n".encode("latin-1")


class RequestRefusedError(Exception):
    """A request is not answered. ``answer`` says why."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] = _NOTHING) -> None:
        super().__init__(reason)
        self.answer = HttpAnswer(status, TEXT, f"{reason}\n".encode(errors="replace"), headers)


def parse(head: bytes) -> Request:
    """Return the request that begins with ``head``: all up to the empty line after the headers.

    RequestRefusedError if it is no request, has no end, or is not one that is answered here.
    """
    if not head[:1].isalpha():
        raise RequestRefusedError(
            400, "not an HTTP request: use https:// if the plugin has http-cert-file, else http://"
        )
    first, newline, rest = head.partition(b"\n")
    if not newline:
        raise RequestRefusedError(414, "the request line is too long")
    line = first.decode("latin-1").rstrip("\r")
    words = line.split(" ")
    if len(words) != 3 or not _VERSION.fullmatch(words[2]):  # noqa: PLR2004 - GET / HTTP/1.1
        raise RequestRefusedError(400, "the request line is not of the form: GET /path HTTP/1.1")
    method, target, version = words
    if method not in _METHODS:
        allowed = ", ".join(_METHODS)
        raise RequestRefusedError(405, f"use one of {allowed}", {"Allow": allowed})
    headers = _headers(rest)
    hosts = headers.get_all("Host", [])
    if len(hosts) > 1 or (not hosts and version != "HTTP/1.0"):
        raise RequestRefusedError(400, "there must be one header Host")
    if "Transfer-Encoding" in headers or headers.get("Content-Length", "0").strip() != "0":
        raise RequestRefusedError(413, "a request has no body here")
    return Request(line, method, target.partition("?")[0], headers)


def _headers(lines: bytes) -> Message:
    if not re.search(rb"(^|\n)\r?\n", lines):
        raise RequestRefusedError(431, "the headers are too long")
    try:
        headers = parse_headers(BytesIO(lines))
    except HTTPException as error:
        raise RequestRefusedError(431, f"too many headers: {error}") from error
    if headers.defects:
        raise RequestRefusedError(400, "the headers are not of the form: Name: value")
    return headers
