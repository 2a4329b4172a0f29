"""Reading the state of a plugin's devices, with limits on time and size."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from deviceplugin.tools._devices_page import (
    NO_CREDENTIALS,
    Credentials,
    NoAnswerError,
    bounded,
    fetch,
    page_of,
)

MAX_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of an answer, enough for some 35,000 devices."""


class Fact(NamedTuple):
    """The state of a device, or of the registration of a resource, at one moment."""

    resource: str
    device: str
    """The id of the device; empty for the registration."""
    good: bool
    """Whether it is healthy, or registered."""
    reason: str = ""
    """Why it is not, or will not be for long."""
    since: str = ""
    """The time when health or reason last changed, as ISO 8601; empty if that is unknown."""

    @property
    def state(self) -> str:
        """``good``, ``degraded`` (a device that is healthy with a reason) or ``bad``."""
        if not self.good:
            return "bad"
        return "degraded" if self.device and self.reason else "good"


def read_facts(
    source: str, timeout: float, credentials: Credentials = NO_CREDENTIALS
) -> list[Fact]:
    """Return the facts of the plugin at ``source``, which is a URL or a file with its answer.

    Args:
        source: The address of the plugin, whose default path is ``/devices``; or the file.
        timeout: Most seconds that the plugin may be silent.
        credentials: What the plugin asks for.

    Raises:
        NoAnswerError: There is no answer, or it is not a plugin's.
    """
    try:
        return list(_facts(json.loads(_read(source, timeout, credentials))))
    except NoAnswerError as error:
        raise NoAnswerError(f"{source}: {error}") from error
    except OSError as error:
        raise NoAnswerError(f"{source}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoAnswerError(f"{source}: is not a list of a plugin's devices") from error


def _read(source: str, timeout: float, credentials: Credentials) -> bytes:
    if "://" not in source:
        with Path(source).open("rb") as file:
            return bounded(file.read(MAX_BYTES + 1), MAX_BYTES)
    if urlsplit(source).scheme not in {"http", "https"}:
        raise NoAnswerError("is neither an http:// address nor a file")
    return fetch(page_of(source), timeout, MAX_BYTES, credentials)


def _facts(page: Any) -> Iterator[Fact]:
    for resource in page["resources"]:
        name = str(resource["name"])
        problem = str(resource["problem"])  # none where it need not be registered
        yield Fact(name, "", not problem, problem)
        for device in resource["devices"]:
            yield Fact(
                name,
                str(device["id"]),
                bool(device["healthy"]),
                str(device.get("reason", "")),
                str(device.get("since", "")),
            )
