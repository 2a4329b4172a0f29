"""Answering: a thread for each client whose request is complete, within limits."""

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from deviceplugin._http.listener import KEPT_FOR_CLIENT
from deviceplugin._platform.clock import MONOTONIC

log = logging.getLogger(__name__)

MAX_CLIENTS: Final = 32
"""Most clients that are answered at a time."""
_MORE: Final = 8
"""Threads beyond these for probes, and until a client that was cut off has noticed."""
_MAX_HELD: Final = 4 * 1024**2
"""Most bytes of answers that wait to be read, if there is more than one."""
_ANSWER_TIME: Final = 15.0
"""Most seconds from the end of the request to that of the answer."""


class Job(NamedTuple):
    """A request that is answered in a thread of its own; if urgent, even if many others are."""

    make: Callable[[], tuple[bytes, bytes]]
    """Returns the status with the headers, and the body."""
    urgent: bool


@dataclass(eq=False)
class Client:
    """A connection."""

    socket: socket.socket
    deadline: float
    is_secure: bool = True
    """Whether it is beyond the TLS handshake, if there is one."""
    head: bytearray = field(default_factory=bytearray)
    body: bytes | None = None
    """Its answer, while that is sent and long enough for the client to keep us waiting."""
    is_over: bool = False
    """Whether there is nothing more for it: it was refused, or cut off."""

    def cut_off(self) -> None:
        """End the connection, also under a thread that uses it."""
        self.is_over = True
        with suppress(OSError):
            # Not SSLSocket's: after that one, another thread would send without TLS.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Answering:
    """The clients that are being answered. All but the threads are of one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[Client, None] = {}
        """The oldest first."""

    def __len__(self) -> int:
        return len(self._clients)

    def cut_off_late(self, now: float) -> list[float]:
        """Cut off who took too long, and return the deadlines of the others."""
        with self._lock:
            clients = [client for client in self._clients if not client.is_over]
            for client in clients:
                if client.deadline <= now:
                    client.cut_off()
        return [client.deadline for client in clients if not client.is_over]

    def has_thread(self, job: Job) -> bool:
        """Return whether there is a thread for ``job``; a client may be cut off for it."""
        number = len(self._clients)
        if number < MAX_CLIENTS:
            return True
        return number < MAX_CLIENTS + _MORE and (self.cut_off_reader() or job.urgent)

    def cut_off_reader(self) -> bool:
        """Cut off who has read a long answer for the longest; return whether there is one."""
        with self._lock:
            readers = (one for one in self._clients if one.body is not None and not one.is_over)
            oldest = next(readers, None)
            if oldest:
                oldest.cut_off()
        return oldest is not None

    def start(self, client: Client, job: Job) -> None:
        """Answer ``client`` in a thread of its own, and close its connection."""
        client.deadline = MONOTONIC.now() + _ANSWER_TIME
        with self._lock:
            self._clients[client] = None
        try:
            run = partial(self._serve, client, job)
            threading.Thread(target=run, name="http-client", daemon=True).start()
        except RuntimeError:  # the node has no thread left
            self._finish(client)

    def _serve(self, client: Client, job: Job) -> None:
        """Answer one request; the thread of a client."""
        try:
            head, body = job.make()
            if len(body) > KEPT_FOR_CLIENT:  # else the kernel takes all of it
                self._hold(client, body)
            client.socket.settimeout(None)  # until it is cut off
            client.socket.sendall(head)
            client.socket.sendall(body)
            client.socket.settimeout(0)
            end(client.socket)
        except Exception as error:  # at the top of a thread
            log.debug("HTTP client failed", extra={"error": str(error)})
        finally:
            self._finish(client)

    def _hold(self, client: Client, body: bytes) -> None:
        """Note that ``client`` reads ``body``; cut off the oldest if all of them hold too much."""
        with self._lock:
            client.body = body
            readers = [one for one in self._clients if one.body is not None and not one.is_over]
            while _held(readers) > _MAX_HELD and readers[0] is not client:
                readers.pop(0).cut_off()

    def _finish(self, client: Client) -> None:
        with self._lock:
            del self._clients[client]
            client.socket.close()


def _held(readers: Iterable[Client]) -> int:
    """Return the size of what ``readers`` hold; many can share one answer."""
    return sum({id(one.body): len(one.body or b"") for one in readers}.values())


def end(connection: socket.socket) -> None:
    """Say that nothing more is sent, and do not wait for an answer to that."""
    with suppress(OSError, ValueError):
        if unwrap := getattr(connection, "unwrap", None):  # TLS
            unwrap()
    socket.socket.shutdown(connection, socket.SHUT_WR)
