"""The service account of a pod: its token and the authority that the API server is known by."""

import ssl
import threading
from pathlib import Path
from typing import Final

from urllib3 import PoolManager

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds them."""
_CONNECTIONS: Final = 4


class Account:
    """The token and the authority in ``folder``, read again whenever they may have been renewed.

    Thread-safe. Connections are kept open, and made anew when the authority changes.
    """

    def __init__(self, folder: Path = SERVICE_ACCOUNT) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._authority = ""
        self._pool: PoolManager | None = None

    def token(self) -> str:
        """Return the token as it is now.

        Raises:
            OSError: It cannot be read.
            ValueError: It is not a token. The text does not have it: it may be one half replaced.
        """
        token = (self._folder / "token").read_text(encoding="ascii").strip()
        if not token.isprintable():
            raise ValueError(f"{self._folder}/token: not one line of printable characters")
        return token

    def pool(self) -> PoolManager:
        """Return the connections on which only a server that the authority vouches for is asked.

        Raises:
            OSError: The authority cannot be read, or is not a certificate.
            UnicodeDecodeError: It is not text.
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
        """Return nothing: without TLS no token is sent."""
        return ""

    def pool(self) -> PoolManager:
        """Return connections without TLS."""
        return self._plain
