"""Reading ``/devices`` from a plugin, with limits on time and size."""

from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

_LONGEST_TEXT: Final = 200
"""Most characters of an unexpected answer in a message."""


class NoAnswerError(Exception):
    """There was no answer, or a wrong one. The message says why."""


def page_of(url: str) -> str:
    """Return the URL of the devices of the plugin at ``url``: the default path is ``/devices``.

    Raises:
        ValueError: ``url`` is not a URL.
    """
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/devices"


def fetch(page: str, timeout: float, most: int) -> bytes:
    """Return the content of the URL ``page``.

    Args:
        page: The result of ``page_of``.
        timeout: Most seconds that the plugin may be silent.
        most: Most bytes of an answer.

    Raises:
        NoAnswerError: There is no answer, or it is too long.
    """
    if urlsplit(page).scheme not in {"http", "https"}:
        raise NoAnswerError("is not an http:// address")
    opener = build_opener(ProxyHandler({}))  # a plugin is never behind a proxy
    try:
        with opener.open(page, timeout=timeout) as answer:
            return bounded(answer.read(most + 1), most)
    except HTTPError as error:
        with error:
            raise NoAnswerError(f"{error.code} {error.reason}{_said(error)}") from error
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise NoAnswerError(str(reason)) from error
    except HTTPException as error:
        raise NoAnswerError(f"is not HTTP: {error!r}"[:_LONGEST_TEXT]) from error
    except ValueError as error:  # a name or path that cannot be sent
        raise NoAnswerError(f"is not an address: {error}"[:_LONGEST_TEXT]) from error


def _said(error: HTTPError) -> str:
    """Return the reason that a probe gives in its first line."""
    try:
        line = error.fp.readline(_LONGEST_TEXT).decode(errors="replace").strip()
    except (OSError, HTTPException):
        return ""
    return f": {line}" if line.isprintable() and line else ""


def bounded(text: bytes, most: int) -> bytes:
    """Return ``text``; raise ``NoAnswerError`` if it has more than ``most`` bytes."""
    if len(text) > most:
        raise NoAnswerError(f"answers with more than {most // 1024**2} MiB")
    return text
