"""A user of a kubeconfig: a token, a client certificate, or a program that returns either."""

import ssl
import tempfile
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from urllib3 import PoolManager
from urllib3.exceptions import InsecureRequestWarning

from deviceplugin.apiserver._credentials import checked_token, connections, read_token
from deviceplugin.errors import ConfigError
from deviceplugin_cli.kubeconfig._exec_plugin import ExecPlugin

_NONE: Final = ("", "")


@dataclass(frozen=True)
class Server:
    """How the API server is verified.

    Attributes:
        authority: Certificates in PEM; empty for those of this machine.
        name: What its certificate is for; empty for the host's name.
        verified: Whether it is verified at all.
    """

    authority: str = ""
    name: str = ""
    verified: bool = True


class User:
    """Credentials of a kubeconfig. Thread-safe. The certificate is a PEM, and so is its key."""

    def __init__(
        self,
        server: Server,
        *,
        token: str = "",
        token_file: Path | None = None,
        certificate: str = "",
        key: str = "",
        plugin: ExecPlugin | None = None,
    ) -> None:
        self._server = server
        self._token = token
        self._token_file = token_file
        self._own = certificate, key
        self._plugin = plugin
        self._lock = threading.Lock()
        self._used = _NONE
        self._pool: PoolManager | None = None

    def token(self) -> str:
        """Return the current token; an empty string if there is none.

        Raises:
            OSError: The file with it cannot be read.
            ValueError: It is not a token.
            ConfigError: The program that returns it failed.
        """
        if self._token_file is not None:
            return read_token(self._token_file)
        if self._token or self._plugin is None:
            return checked_token(self._token, "the token of the kubeconfig")
        return checked_token(self._plugin.credential().token, "the token of the program")

    def pool(self) -> PoolManager:
        """Return connections with the client certificate, if there is one.

        Raises:
            ConfigError: A certificate is invalid, or the program that returns it failed.
        """
        pair = self._own
        if self._plugin is not None and pair == _NONE:
            credential = self._plugin.credential()
            pair = credential.certificate, credential.key
        with self._lock:
            if self._pool is None or pair != self._used:
                self._pool = connections(self._context(pair), self._server.name)
                self._used = pair
            return self._pool

    def _context(self, pair: tuple[str, str]) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cadata=self._server.authority or None)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"the certificate-authority is not a certificate: {error}") from error
        if not self._server.verified:
            warnings.simplefilter("ignore", InsecureRequestWarning)  # the user has asked for it
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if pair != _NONE:
            _load(context, *pair)
        return context


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Have ``context`` use a client certificate, which OpenSSL's binding only takes from files."""
    with tempfile.TemporaryDirectory(prefix="deviceplugin-") as folder:  # nobody else may enter
        place = Path(folder, "pair.pem")
        place.write_text(f"{certificate}\n{key}\n", encoding="ascii")
        try:
            context.load_cert_chain(place)
        except ssl.SSLError as error:
            raise ConfigError(f"the client certificate and its key cannot be used: {error}") from (
                error
            )
