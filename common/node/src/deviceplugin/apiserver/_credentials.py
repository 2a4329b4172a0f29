"""Who asks the API server, how it is verified, and why a connection failed."""

import base64
import json
import re
import ssl
import threading
from pathlib import Path
from typing import Any, Final, Protocol

from urllib3 import PoolManager
from urllib3.exceptions import HTTPError

from deviceplugin._config.documents.reading import content

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory in a pod that has them."""
CONNECTIONS: Final = 4
MOST_BYTES: Final = 1024**2
"""Of a token, a key or certificates."""
_CONNECTION: Final = re.compile(r"^<?HTTPS?Connection\([^)]*\)( at 0x[0-9a-f]+>)?: ")


class Credentials(Protocol):
    """Who asks the API server, and how it is verified. Thread-safe; asked before each request."""

    def token(self) -> str:
        """Return the current token; an empty string if there is none."""

    def pool(self) -> PoolManager:
        """Return connections to servers that are verified."""


class Account:
    """The token and the authority in ``folder``, read again for each use, because they are renewed.

    Thread-safe. Connections stay open, and are replaced when the authority changes.
    """

    def __init__(self, folder: Path = SERVICE_ACCOUNT) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._authority = ""
        self._pool: PoolManager | None = None

    def token(self) -> str:
        """Return the current token. It raises what ``read_token`` does."""
        return read_token(self._folder / "token")

    def pool(self) -> PoolManager:
        """Return a connection pool that only talks to servers that the authority verifies.

        Raises:
            OSError: The authority cannot be read, or is not a certificate.
            ValueError: The authority is not ASCII, or longer than any.
        """
        authority = content(self._folder / "ca.crt", MOST_BYTES).decode("ascii")
        with self._lock:
            if self._pool is None or authority != self._authority:
                context = ssl.create_default_context(cadata=authority)
                self._pool = connections(context)
                self._authority = authority
            return self._pool


def read_token(path: Path) -> str:
    """Return the token in a file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a token. The message does not contain it: it may be half replaced.
    """
    return checked_token(content(path, MOST_BYTES).decode("ascii").strip(), str(path))


def checked_token(token: str, place: str) -> str:
    """Return ``token``; ``ValueError`` if it cannot be sent, without the token in the message."""
    if not token.isprintable() or not token.isascii():
        raise ValueError(f"{place}: not one line of printable characters")
    return token


def claims_in(token: str) -> dict[str, Any]:
    """Return what a JSON web token says, unverified; nothing if it is another kind of token."""
    try:
        part = token.split(".")[1]
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Anonymous:
    """No token and no certificates, for plain HTTP: a proxy on this machine, or a test."""

    def __init__(self) -> None:
        self._plain = connections()

    def token(self) -> str:
        """Return an empty string: without TLS no token is sent."""
        return ""

    def pool(self) -> PoolManager:
        """Return connections without TLS."""
        return self._plain


def connections(context: ssl.SSLContext | None = None, name: str = "") -> PoolManager:
    """Return a pool of connections, which expects certificates of ``name`` if that is given."""
    named: dict[str, Any] = {"server_hostname": name, "assert_hostname": name} if name else {}
    return PoolManager(CONNECTIONS, maxsize=CONNECTIONS, ssl_context=context, **named)


def reason_of(error: BaseException) -> str:
    """Return the root cause of an error of urllib3, which is at the end of a chain.

    It does not name the connection object, whose address in memory would make each message new.
    """
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return reason_of(reason)
    own = len(error.args) > 1 and isinstance(error, HTTPError)
    return _CONNECTION.sub("", str(error.args[-1] if own else error))
