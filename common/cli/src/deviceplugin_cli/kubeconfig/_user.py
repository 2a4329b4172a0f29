"""A user of a kubeconfig: a token, a client certificate, or a program that returns either."""

import json
import ssl
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from urllib3 import PoolManager
from urllib3.exceptions import InsecureRequestWarning

from deviceplugin.apiserver._credentials import checked_token, connections, read_token
from deviceplugin.errors import ConfigError

_TIMEOUT: Final = 60.0
_MARGIN: Final = timedelta(seconds=10)
"""Before it expires, a credential is renewed."""
_NONE: Final = ("", "")


@dataclass(frozen=True)
class Credential:
    """What a program has returned. An empty string means none."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether it can be used for a while."""
        return self.expires is None or now + _MARGIN < self.expires


@dataclass(eq=False, repr=False)
class ExecPlugin:
    """A program that is run when a credential is needed, and again when it expires. Thread-safe."""

    words: list[str]
    environ: Mapping[str, str]
    version: str
    """Of the ``ExecCredential`` that it returns."""
    _: KW_ONLY
    interactive: bool = False
    """Whether it may ask the user."""
    hint: str = ""
    """How to install it."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._credential: Credential | None = None

    def credential(self) -> Credential:
        """Return a credential that is valid; raise ``ConfigError``."""
        with self._lock:
            if self._credential is None or not self._credential.is_valid(self.now()):
                self._credential = self._parsed(self._run())
            return self._credential

    def _run(self) -> str:
        try:
            return subprocess.run(  # noqa: S603
                self.words,
                env=self.environ,
                stdin=None if self.interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=None if self.interactive else _TIMEOUT,
                check=True,
                text=True,
            ).stdout
        except subprocess.SubprocessError as error:  # its own message is on standard error
            raise ConfigError(f"no credentials: {_failure(self.words[0], error)}") from error
        except (OSError, ValueError) as error:
            hint = f"\n{self.hint}" if self.hint else ""
            raise ConfigError(f"no credentials: {self.words[0]}: {error}{hint}") from error

    def _parsed(self, output: str) -> Credential:
        wrong = ConfigError(f"no credentials: {self.words[0]}: did not print an ExecCredential")
        try:
            answer = json.loads(output)
            if answer["apiVersion"] != self.version:
                raise wrong
            status = answer["status"]
            expires = status.get("expirationTimestamp")
            found = Credential(
                _string(status, "token"),
                _string(status, "clientCertificateData"),
                _string(status, "clientKeyData"),
                datetime.fromisoformat(expires).astimezone(UTC) if expires else None,
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise wrong from None  # the reason could contain a token
        if not (found.token or (found.certificate and found.key)):
            raise wrong
        return found


def _string(status: Mapping[str, Any], key: str) -> str:
    value = status.get(key) or ""
    if not isinstance(value, str) or not value.isascii():
        raise TypeError
    return value


def _failure(command: str, error: subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"{command}: exit status {error.returncode}"
    return f"{command}: no answer after {_TIMEOUT:g} s"


@dataclass(frozen=True)
class Server:
    """How the API server is verified, if it is."""

    authority: str = ""
    """Certificates in PEM; empty for those of this machine."""
    name: str = ""
    """What its certificate is for; empty for the host's name."""
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

        OSError and ValueError are those of ``read_token``; a program that fails is ``ConfigError``.
        """
        if self._token_file is not None:
            return read_token(self._token_file)
        if self._token or self._plugin is None:
            return checked_token(self._token, "the token of the kubeconfig")
        return checked_token(self._plugin.credential().token, "the token of the program")

    def pool(self) -> PoolManager:
        """Return connections with the client certificate, if any; raise ``ConfigError``."""
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
