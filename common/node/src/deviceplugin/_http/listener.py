"""The listening socket of the HTTP server, and when the server itself is loaded.

Clients that connect early wait in the socket's queue. So an address that cannot be used is an error
at the start, but the server and its libraries do not delay the first list.
"""

import errno
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from deviceplugin._config import values
from deviceplugin._config.settings import Settings
from deviceplugin._platform.clock import MONOTONIC, Clock
from deviceplugin._platform.waiting import Waiter
from deviceplugin.errors import ConfigError

if TYPE_CHECKING:
    from deviceplugin._http.certificate import Certificate
    from deviceplugin._http.server import HttpServer

log = logging.getLogger(__name__)

_QUEUE: Final = 1024
"""Clients that wait. Whoever finds no place there comes again after a second, then after three."""
_KEPT_FOR_US: Final = 16 * 1024
"""Bytes of a client that the kernel keeps until they are read. They are memory of our pod."""
KEPT_FOR_CLIENT: Final = 64 * 1024
"""Bytes that the kernel keeps until a client reads them."""
_LONGEST_START: Final = 1.0
"""Seconds after which the server is loaded even if the start is not over: a probe waits that long,
and a kubelet that is down can take hours."""
_CHECK: Final = 0.02


def listen(address: str) -> socket.socket:
    """Return a socket that listens on ``host:port``; ConfigError if nothing can.

    If the default address is in use, it is another port: nobody has chosen that one. It is logged.
    """
    try:
        host, port = values.parse_address(address)
    except ValueError as error:
        raise ConfigError(f"http-address {address!r} {error}") from error
    try:
        try:
            return _listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or address != Settings.http_address:
                raise
            found = _listen(host, 0)
            other = f"{host}:{found.getsockname()[1]}"
            log.warning("http address in use, serving on another", extra={"address": other})
            return found
    except (OSError, ValueError, TypeError) as error:  # a ValueError if the host cannot be a name
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"http-address {address!r}: cannot listen there: {reason}; "
            "choose another address, or off"
        ) from error


def certificate(settings: Settings) -> "Certificate | None":
    """Return the certificate, None without TLS; ConfigError if it is unusable or half of a pair."""
    certificate, key = settings.http_cert_file, settings.http_key_file
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("http-cert-file and http-key-file: TLS needs both, so set both or none")
    from deviceplugin._http.certificate import Certificate  # few need OpenSSL

    return Certificate(certificate, key)


def _listen(host: str, port: int) -> socket.socket:
    everywhere = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if everywhere:  # accept IPv4 too, whatever the system's default
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KEPT_FOR_US)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KEPT_FOR_CLIENT)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the end is not held back
        listener.bind((host, port))
        listener.listen(_QUEUE)
    except BaseException:
        listener.close()
        raise
    return listener


class Listener:
    """Listens at once, and serves once the start is over. ``run`` is its thread.

    ``make`` returns the server for a listening socket, and may import what nothing else needs.
    ``started`` returns whether the start is over. ConfigError if nothing can listen there.
    """

    def __init__(
        self,
        address: str,
        make: Callable[[socket.socket], "HttpServer"],
        *,
        started: Callable[[], bool],
        clock: Clock = MONOTONIC,
    ) -> None:
        self._socket = listen(address)
        self.port: int = self._socket.getsockname()[1]
        self._make = make
        self._started = started
        self._waiter = Waiter(clock)
        self._lock = threading.Lock()
        self._server: HttpServer | None = None

    def run(self) -> None:
        """Serve until stopped, and close the socket. It raises if the server cannot be loaded."""
        with self._socket:
            self._waiter.until(self._started, _LONGEST_START, every=_CHECK)
            server = None if self._waiter.is_over() else self._make(self._socket)
            with self._lock:
                self._server = server
            if server is not None and not self._waiter.is_over():
                server.run()

    def stop(self) -> None:
        self._waiter.end()
        with self._lock:
            if self._server is not None:
                self._server.stop()
        with suppress(OSError):  # closed already
            self._socket.shutdown(socket.SHUT_RDWR)
