"""Who is answered: clients with the token, or without one those that ask by a known name.

The names of pods are behind it, but not the probes, because a kubelet has no token. Without a token
a browser on the network of the pods could be made to read them, by the page of a stranger whose
name then resolves to the plugin's address (DNS rebinding). Such a name is in the header ``Host``.
"""

import logging
import re
from collections.abc import Collection
from contextlib import suppress
from email.message import Message
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from deviceplugin._http.messages import RequestRefusedError
from deviceplugin.kit.log import Problems

log = logging.getLogger(__name__)

_LONGEST: Final = 8 * 1024
"""Most bytes of a token, so that a request with it is not too long."""
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:@]+?)\.?)(?::[0-9]*)?")
_SHOWN: Final = 100
"""Most characters of a wrong name in a message."""


class Access:
    """Decides about requests. Thread-safe.

    ``token_file`` is read for each request. ``hosts`` are names by which clients may ask, besides
    localhost and addresses.
    """

    def __init__(self, token_file: Path | None, hosts: Collection[str]) -> None:
        self._token_file = token_file
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._problems = Problems(log)

    def check(self, headers: Message) -> None:
        """Raise ``RequestRefusedError`` unless a request with ``headers`` may be answered."""
        if self._token_file is None:
            self._check_host(headers.get("Host"))
            return
        from hmac import compare_digest  # few need OpenSSL

        token = self.read_token()
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        known = compare_digest(given.strip().encode("latin-1"), token)
        if scheme.lower() != "bearer" or not known:
            reason = "the header Authorization must be Bearer with the token of http-token-file"
            raise RequestRefusedError(401, reason, {"WWW-Authenticate": "Bearer"})

    def may_know_reasons(self, headers: Message) -> bool:
        """Return whether a probe is answered with more than its result."""
        if self._token_file is None:
            return True
        with suppress(RequestRefusedError):
            if "Authorization" in headers:
                self.check(headers)
                return True
        return False

    def read_token(self) -> bytes:
        """Return the token, if there is one; RequestRefusedError if it is unusable, logged once."""
        if self._token_file is None:
            return b""
        try:
            with self._token_file.open("rb") as file:
                token = file.read(_LONGEST + 1).rstrip()
            error = _problem(token)
        except OSError as failure:
            token, error = b"", str(failure.strerror)
        if error:
            event = "http token unusable, requests refused"
            self._problems.say("token", event, file=str(self._token_file), error=error)
            raise RequestRefusedError(503, f"http-token-file {self._token_file}: {error}")
        self._problems.over("token")
        return token

    def _check_host(self, host: str | None) -> None:
        if host is None:  # HTTP/1.0, which no browser speaks
            return
        found = _HOST.fullmatch(host.strip())
        name = (found[1] or found[2] or "").lower() if found else ""
        if name not in self._hosts and not _is_address(name):
            advice = "is not in http-hosts: add its name there, or ask by an address"
            raise RequestRefusedError(421, f"{host[:_SHOWN]!a} {advice}")


def _problem(token: bytes) -> str:
    if not token:
        return "is empty"
    if len(token) > _LONGEST:
        return f"is longer than {_LONGEST} bytes"
    if not all(0x20 < byte < 0x7F for byte in token):  # noqa: PLR2004 - ASCII
        return "is not one word of ASCII characters"
    return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
