"""The clients of the HTTP server, within limits that no client can exceed.

One thread accepts, does the TLS handshakes and reads, for all clients. Only a client whose request
is complete gets a thread. So clients that send slowly, or nothing, cost a descriptor each, and the
oldest of them gives way to a new one at once. Those that read their answer slowly do too.
"""

import errno
import logging
import re
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from deviceplugin._http.answering import Answering, Client, Job, end
from deviceplugin._platform import open_files
from deviceplugin._platform.clock import MONOTONIC

log = logging.getLogger(__name__)

MAX_HEAD: Final = 16 * 1024
"""Most bytes of a request: its line and its headers."""
_MAX_WAITING: Final = 32
"""Most clients that have not sent their request yet."""
_FEWEST: Final = 2
"""Clients that are accepted even if open files are scarce: a probe must get through."""
_REQUEST_TIME: Final = 10.0
"""Most seconds from the connection to the end of the request."""
_PAUSE: Final = 0.5
"""Seconds before the next client is accepted, after one could not be."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_END: Final = re.compile(rb"\n\r?\n")
_END_LENGTH: Final = 3


class Connections:
    """Answers the clients of ``listener``, a socket that listens. ``run`` is its thread.

    ``plan`` returns a whole answer, or how to make it, for the bytes of a request. These have no
    end if they are too many, or are cut if they do not begin as a request does. ``refusal`` is the
    answer if there is no thread. ``tls`` returns the context for a new connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        plan: Callable[[bytes], bytes | Job],
        *,
        refusal: bytes,
        tls: "Callable[[], ssl.SSLContext] | None" = None,
    ) -> None:
        self._listener = listener
        self._plan = plan
        self._refusal = refusal
        self._tls = tls
        self._poll = selectors.PollSelector()  # it takes no open file, unlike epoll
        self._over = threading.Event()
        self._waiting: dict[Client, None] = {}
        """Those that have not sent their request yet, the oldest first."""
        self._answering = Answering()

    def run(self) -> None:
        self._listener.settimeout(0)
        self._poll.register(self._listener, selectors.EVENT_READ)
        while not self._over.is_set():
            for key, _ in self._poll.select(self._next_deadline()):
                if key.data is None:
                    self._accept()
                elif key.data in self._waiting:  # and not dropped for another of these
                    self._attend(key.data)
        for client in [*self._waiting]:
            self._drop(client)
        self._listener.close()

    def stop(self) -> None:
        self._over.set()
        with suppress(OSError):  # closed already
            self._listener.shutdown(socket.SHUT_RDWR)

    def _next_deadline(self) -> float | None:
        """Drop who took too long, and return the seconds until the next one has."""
        now = MONOTONIC.now()
        while (client := next(iter(self._waiting), None)) and client.deadline <= now:
            self._drop(client)
        deadlines = self._answering.cut_off_late(now) + ([client.deadline] if client else [])
        return max(0.0, min(deadlines) - now) if deadlines else None

    def _accept(self) -> None:
        has_room = self._has_room() or self._make_room()
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:  # trying again at once would be an endless loop
                self._over.wait(_PAUSE)
            return
        with suppress(OSError):  # it has gone already
            if has_room:
                self._welcome(connection)
                return
        connection.close()

    def _has_room(self) -> bool:
        clients = len(self._waiting) + len(self._answering)
        enough = clients < _FEWEST or open_files.spare() >= open_files.RESERVE
        return enough and len(self._waiting) < _MAX_WAITING

    def _make_room(self) -> bool:
        oldest = next(iter(self._waiting), None)
        if oldest:
            self._drop(oldest)
        return oldest is not None or self._answering.cut_off_reader()

    def _welcome(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        if self._tls:
            connection = self._tls().wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        client = Client(connection, MONOTONIC.now() + _REQUEST_TIME, is_secure=not self._tls)
        self._poll.register(connection, selectors.EVENT_READ, client)
        self._waiting[client] = None
        self._attend(client)  # as a rule its request is there already

    def _attend(self, client: Client) -> None:
        try:
            self._advance(client)
        except OSError as error:
            if awaited := self._awaited(error):
                self._poll.modify(client.socket, awaited, client)
                return
            log.debug("HTTP client failed", extra={"error": str(error)})
            self._drop(client)

    def _awaited(self, error: OSError) -> int:
        """Return the event after which to go on, 0 if ``error`` is the end. It may load OpenSSL."""
        if not self._tls:
            return selectors.EVENT_READ if isinstance(error, BlockingIOError) else 0
        writes = isinstance(error, ssl.SSLWantWriteError)
        waits = writes or isinstance(error, BlockingIOError | ssl.SSLWantReadError)
        return waits and (selectors.EVENT_WRITE if writes else selectors.EVENT_READ)

    def _advance(self, client: Client) -> None:
        """Read what there is; OSError if there is no more now, or ever."""
        if client.is_over:  # nothing is closed that is not read, or it would lose the answer
            if not client.socket.recv(MAX_HEAD):
                self._drop(client)
            return
        if not client.is_secure and not self._shake_hands(client):
            return
        while chunk := client.socket.recv(MAX_HEAD - len(client.head)):
            before = max(0, len(client.head) - _END_LENGTH)
            client.head += chunk
            whole = len(client.head) == MAX_HEAD or _END.search(client.head, before)
            if whole or not client.head[:1].isalpha():  # there, a line might never end
                self._answer(client)
                return
        self._drop(client)

    def _shake_hands(self, client: Client) -> bool:
        """Return whether the client uses TLS; if not, it has been answered."""
        secured = client.socket
        assert isinstance(secured, ssl.SSLSocket)
        try:
            secured.do_handshake()
        except ssl.SSLError as error:
            if error.reason != "HTTP_REQUEST":
                raise
            self._poll.unregister(secured)  # it is answered without TLS, or it would not know why
            client.socket = socket.socket(fileno=secured.detach())
            self._poll.register(client.socket, selectors.EVENT_READ, client)
            client.head += b"\0"  # not what a request begins with
            self._answer(client)
            return False
        client.is_secure = True
        return True

    def _answer(self, client: Client) -> None:
        planned = self._plan(bytes(client.head))
        if isinstance(planned, Job):
            if self._answering.has_thread(planned):
                self._forget(client)
                self._answering.start(client, planned)
                return
            planned = self._refusal
        client.is_over = True
        client.socket.send(planned)
        end(client.socket)

    def _drop(self, client: Client) -> None:
        self._forget(client)
        client.socket.close()

    def _forget(self, client: Client) -> None:
        del self._waiting[client]
        self._poll.unregister(client.socket)
