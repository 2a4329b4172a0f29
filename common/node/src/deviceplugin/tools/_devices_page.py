"""Reading ``/devices`` from a plugin, with limits on time and size."""

import argparse
import json
import ssl
import threading
from collections.abc import Callable
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from deviceplugin._inventory.divided import Profile, Profiles

MAX_BYTES: Final = 8 * 1024**2
"""Most bytes of an answer, enough for some 35,000 devices."""
_LONGEST_TEXT: Final = 200
"""Most characters of an unexpected answer in a message."""
_LONGEST_TOKEN: Final = 8 * 1024
_REFUSALS: Final = frozenset({401, 421})
_WRONG: Final = ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError
"""What a ``reduce`` raises for a page that is not a plugin's."""
_READING: Final = threading.Lock()
"""One answer is decoded at a time, for it takes several times its size in memory."""

_T = TypeVar("_T")


class NoAnswerError(Exception):
    """There was no answer, or a wrong one. The message says why."""


class RefusedError(NoAnswerError):
    """The plugin is not to be asked like this. The message says why."""


class Credentials(NamedTuple):
    """What a plugin asks for, and what it is known by. The files are read for each request."""

    token_file: Path | None = None
    ca_file: Path | None = None
    """Certificates of which one must have signed the plugin's, or be it; None for the system's."""
    is_named: bool = True
    """Whether the plugin's certificate must be for the name or address that is asked."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Credentials":
        """Return those of the options that ``add_options`` adds."""
        return cls(options.plugin_token_file, options.plugin_ca_file)

    def headers(self, page: str) -> dict[str, str]:
        """Return the headers of a request for the URL ``page``.

        A token that the network could read is ``RefusedError``.
        """
        if self.token_file is None:
            return {}
        if urlsplit(page).scheme == "http" and not _is_here(urlsplit(page).hostname or ""):
            raise RefusedError("the token is not sent to another machine without TLS: use https://")
        with self.token_file.open(encoding="latin-1") as file:
            token = file.read(_LONGEST_TOKEN).strip()
        if not token or not (token.isascii() and token.isprintable()):
            raise NoAnswerError(f"{self.token_file}: is not a token")
        return {"Authorization": f"Bearer {token}"}

    def tls(self) -> ssl.SSLContext:
        """Return the context for a connection; raise ``NoAnswerError``."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except ssl.SSLError as error:
            raise NoAnswerError(f"{self.ca_file}: has no certificate in PEM") from error
        except OSError as error:  # which does not name it
            raise NoAnswerError(f"{self.ca_file}: {error.strerror}") from error
        context.check_hostname = self.is_named
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context


NO_CREDENTIALS: Final = Credentials()


def add_options(parser: argparse.ArgumentParser) -> None:
    for name, words in (
        ("token", "the plugin's token (its http-token-file); sent by https, or on this machine"),
        ("ca", "the authority of the plugin's certificate, in PEM (the system's)"),
    ):
        help_ = f"with {words}"
        parser.add_argument(f"--plugin-{name}-file", type=Path, metavar="FILE", help=help_)


def page_of(url: str) -> str:
    """Return the URL of the devices of a plugin: the default path is ``/devices``."""
    try:
        return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/devices"
    except ValueError as error:
        raise NoAnswerError(f"is not an address: {error}"[:_LONGEST_TEXT]) from error


def ask(
    url: str,
    reduce: Callable[[Any], _T],
    timeout: float,
    credentials: Credentials = NO_CREDENTIALS,
    most: int = MAX_BYTES,
) -> _T:
    """Return what ``reduce`` makes of the ``/devices``; raise as ``fetch`` and ``decode``."""
    return decode(fetch(page_of(url), timeout, most, credentials), reduce)


def decode(text: bytes, reduce: Callable[[Any], _T]) -> _T:
    """Return what ``reduce`` makes of a plugin's answer, which is JSON; raise ``NoAnswerError``."""
    try:
        with _READING:
            return reduce(json.loads(text))
    except _WRONG as error:
        raise NoAnswerError("is not a list of a plugin's devices") from error


def is_spare(device: Any) -> bool:
    """Return whether a device of the page is a part of hardware that is not made.

    There can be very many, which are as unhealthy as their hardware, and no kubelet has them.
    """
    is_part = bool((device.get("part") or {}).get("on_demand"))
    return is_part and not (device.get("holders") or "made" in device)


def parts_in(page: Any) -> dict[tuple[str, str], Profiles]:
    """Return the profiles of the parts on a page, by resource and the name of the hardware."""
    return {
        (str(resource["name"]), str(of)): {
            str(name): Profile(*(int(count[one]) for one in Profile.__slots__))
            for name, count in found["profiles"].items()
        }
        for resource in page["resources"]
        for of, found in resource.get("parts", {}).items()
    }


def fetch(page: str, timeout: float, most: int, credentials: Credentials = NO_CREDENTIALS) -> bytes:
    """Return the content of a URL of ``page_of``, of at most ``most`` bytes.

    The plugin may be silent for ``timeout`` seconds. Anything else is ``NoAnswerError``.
    """
    if urlsplit(page).scheme not in {"http", "https"}:
        raise NoAnswerError("is not an http:// address")
    try:
        request = Request(page)  # noqa: S310 - looked at above
        for name, value in credentials.headers(page).items():
            request.add_unredirected_header(name, value)
        tls = [HTTPSHandler(context=credentials.tls())] if page.startswith("https:") else []
        opener = build_opener(ProxyHandler({}), *tls)  # a plugin is never behind a proxy
        with opener.open(request, timeout=timeout) as answer:
            return bounded(answer.read(most + 1), most)
    except HTTPError as error:
        with error:
            kind = RefusedError if error.code in _REFUSALS else NoAnswerError
            raise kind(f"{error.code} {error.reason}{_said(error)}") from error
    except OSError as error:
        raise NoAnswerError(_why(error)) from error
    except HTTPException as error:
        raise NoAnswerError(f"is not HTTP: {error!r}"[:_LONGEST_TEXT]) from error
    except ValueError as error:  # a name or path that cannot be sent
        raise NoAnswerError(f"is not an address: {error}"[:_LONGEST_TEXT]) from error


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _why(error: OSError) -> str:
    if isinstance(error.filename, Path | str):
        return f"{error.filename}: {error.strerror}"
    return str(getattr(error, "reason", None) or error.strerror or error)


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
