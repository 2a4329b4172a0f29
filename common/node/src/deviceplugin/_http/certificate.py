"""The certificate of the HTTP server, which is read again when it is renewed."""

import logging
import ssl
from pathlib import Path
from typing import Final

from deviceplugin._platform.file_identity import Signature, file_signature
from deviceplugin.errors import ConfigError

log = logging.getLogger(__name__)

_MISMATCH: Final = "KEY_VALUES_MISMATCH"


class Certificate:
    """A certificate with its key; ConfigError if they cannot be used. For one thread."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._seen = self._identities()
        try:
            self._context = self._load()
        except OSError as error:
            raise ConfigError(
                f"http-cert-file {certificate} and http-key-file {key}: {_said(error)}"
            ) from error

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection, with the last usable pair of files."""
        seen = self._identities()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = self._load()
            except OSError as error:
                fields = {"file": str(self._files[0]), "error": _said(error)}
                log.warning("http certificate unusable, the old one stays", extra=fields)
            else:
                log.info("http certificate renewed", extra={"file": str(self._files[0])})
        return self._context

    def _load(self) -> ssl.SSLContext:
        for file in self._files:  # load_cert_chain does not say which one cannot be read
            file.open("rb").close()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # a client could make us work with it
        context.load_cert_chain(*self._files, password="")  # never asked for on a terminal
        return context

    def _identities(self) -> tuple[Signature, ...]:
        return tuple(map(file_signature, self._files))


def _said(error: OSError) -> str:
    if not isinstance(error, ssl.SSLError):
        return f"{error.filename}: {error.strerror}"
    if error.reason == _MISMATCH:
        return "the key is not that of the certificate"
    return "they are not a certificate and a key without a passphrase, both in PEM"
