"""What the running plugin itself reports that it should offer and does not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deviceplugin.checks import Finding, Node, ok, warning
from deviceplugin.tools._devices_page import (
    Credentials,
    NoAnswerError,
    RefusedError,
    fetch,
    page_of,
)
from deviceplugin.tools.doctor._check import Check

_MOST: Final = 64 << 20
"""Most bytes of an answer."""
_OFF: Final = "off"


def _check(node: Node) -> Iterator[Finding]:
    address = node.settings.http_address
    if node.root != Path("/") or address == _OFF:
        yield ok("the running plugin", "is asked only where it runs, and where it serves HTTP")
        return
    host, _, port = address.rpartition(":")
    settings = node.settings
    scheme = "https" if settings.http_cert_file else "http"
    page = page_of(f"{scheme}://{host or '127.0.0.1'}:{port}")
    # Its own certificate is known here, whatever name is in it.
    credentials = Credentials(settings.http_token_file, settings.http_cert_file, is_named=False)
    try:
        found = json.loads(fetch(page, node.timeout, _MOST, credentials)).get("shortfalls", [])
    except RefusedError as error:
        yield warning(
            page,
            str(error),
            means="what the plugin should offer and does not is not known.",
            do="set DP_HTTP_TOKEN_FILE and DP_HTTP_CERT_FILE as for the plugin.",
        )
        return
    except (NoAnswerError, ValueError, AttributeError, RecursionError):
        yield ok(page, "no plugin answers here")
        return
    for text in found if isinstance(found, list) else []:
        yield warning(
            page,
            str(text),
            means="the plugin offers less than it should.",
            do="do as it says; the plugin finds out by itself.",
        )
    if not found:
        yield ok(page, "the plugin offers all that it should")


CHECK: Final = Check("shortfalls", "what the running plugin should offer and does not", _check)
