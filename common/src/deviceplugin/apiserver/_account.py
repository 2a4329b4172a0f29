"""The service account of a pod: its token, and the authority that verifies the API server."""

import ssl
import threading
from pathlib import Path
from typing import Final

from urllib3 import PoolManager

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory in a pod that has them."""
_CONNECTIONS: Final = 4


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
        """Return the current token.

        Raises:
            OSError: It cannot be read.
            ValueError: It is not a token. The message does not contain it: it may be half replaced.
        """
        token = (self._folder / "token").read_text(encoding="ascii").strip()
        if not token.isprintable():
            raise ValueError(f"{self._folder}/token: not one line of printable characters")
        return token

    def pool(self) -> PoolManager:
        """Return a connection pool that only talks to servers that the authority verifies.

        Raises:
            OSError: The authority cannot be read, or is not a certificate.
            UnicodeDecodeError: The authority is not ASCII.
        """
        authority = (self._folder / "ca.crt").read_text(encoding="ascii")
        with self._lock:
            if self._pool is None or authority != self._authority:
                context = ssl.create_default_context(cadata=authority)
                self._pool = PoolManager(_CONNECTIONS, maxsize=_CONNECTIONS, ssl_context=context)
                self._authority = authority
            return self._pool


class Anonymous(Account):
    """No token and no certificates, for plain HTTP: a proxy on this machine, or a test."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))
        self._plain = PoolManager(_CONNECTIONS, maxsize=_CONNECTIONS)

    def token(self) -> str:
        """Return an empty string: without TLS no token is sent."""
        return ""

    def pool(self) -> PoolManager:
        """Return connections without TLS."""
        return self._plain
