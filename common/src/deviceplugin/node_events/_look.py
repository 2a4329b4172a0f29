"""What a plugin says of its devices, in a bounded time and size."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

MAX_BYTES: Final = 8 * 1024 * 1024
"""What is read of an answer; some 35,000 devices."""


class NoAnswerError(Exception):
    """The plugin tells nothing, or something else; the text says why."""


class Fact(NamedTuple):
    """How a device, or the registration of a resource, is at one moment."""

    resource: str
    device: str
    """Its id; empty for the registration."""
    good: bool
    """Whether it is healthy, or registered."""
    reason: str = ""
    """Why it is not."""
    since: str = ""
    """When health or reason last changed, as ISO 8601; empty where that is not known."""


def look(source: str, timeout: float) -> list[Fact]:
    """Return what the plugin at ``source`` says, which is a URL or a file with its answer.

    Args:
        source: Where the plugin serves; ``/devices`` is understood.
        timeout: Seconds that it may be silent.

    Raises:
        NoAnswerError: It says nothing, or something else.
    """
    try:
        return list(_facts(json.loads(_read(source, timeout))))
    except HTTPError as error:
        with error:
            raise NoAnswerError(f"{source}: {error.code} {error.reason}") from error
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise NoAnswerError(f"{source}: {reason}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoAnswerError(f"{source}: is no list of a plugin's devices") from error


def _read(source: str, timeout: float) -> bytes:
    if "://" not in source:
        with Path(source).open("rb") as file:
            return _bounded(source, file.read(MAX_BYTES + 1))
    place = urlsplit(source)
    if place.scheme not in {"http", "https"}:
        raise NoAnswerError(f"{source}: is neither an http:// address nor a file")
    url = source if place.path.strip("/") else f"{source.rstrip('/')}/devices"
    opener = build_opener(ProxyHandler({}))  # a plugin is near
    with opener.open(url, timeout=timeout) as answer:
        return _bounded(source, answer.read(MAX_BYTES + 1))


def _bounded(source: str, text: bytes) -> bytes:
    if len(text) > MAX_BYTES:
        raise NoAnswerError(f"{source}: answers with more than {MAX_BYTES // 1024**2} MiB")
    return text


def _facts(page: Any) -> Iterator[Fact]:
    for resource in page["resources"]:
        name = str(resource["name"])
        yield Fact(name, "", bool(resource["registered"]), str(resource["problem"]))
        for device in resource["devices"]:
            yield Fact(
                name,
                str(device["id"]),
                bool(device["healthy"]),
                str(device.get("reason", "")),
                str(device.get("since", "")),
            )
