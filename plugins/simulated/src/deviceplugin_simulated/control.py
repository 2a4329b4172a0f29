"""A Unix socket to control a running plugin: a JSON object, and a reply.

A request is an event that happens now, or asks for a list.
"""

import atexit
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any, Final

from deviceplugin.kit.configuration import InvalidError, of_plain
from deviceplugin_simulated.life import Event, Life
from deviceplugin_simulated.script import Targets, read_order

LIST: Final = "list"
MAX_REQUEST: Final = 65536
"""Bytes."""
_MAX_PATTERNS: Final = 100
"""The most strings of a request that are not ids. Each is compared with all ids."""
_MAX_COMING: Final = 1000
"""The most pending events that clients have requested. Each keeps its ids in memory."""

log = logging.getLogger(__name__)
SUFFIX: Final = ".new"
"""The suffix of the socket's name until it can be used."""
CLIENTS: Final = 4
"""Clients that are served at the same time. Others wait in the socket's queue."""
LIMIT: Final = 5.0
"""Seconds that a client has in total, however slowly it sends or receives."""
_PAUSE: Final = 0.2
"""Seconds until the next attempt after accepting a client failed, as without descriptors."""


def read(request: bytes, targets: Targets, now: float) -> tuple[Sequence[Event], Sequence[str]]:
    """Return the events that ``request`` asks for, and the devices that the reply is about.

    A request is an entry of a timeline without ``at``: ``{"do": "unhealthy", "devices": "gpu-3"}``.
    The reply to ``{"do": "list"}`` says what is wrong with each device. Reading may be slow, so do
    not hold a lock meanwhile.

    Raises:
        ValueError: Why it is refused.
    """
    given = _parsed(request)
    if isinstance(given, dict) and given.get("do") == LIST:
        return (), targets.ids
    wanted = given.get("devices") if isinstance(given, dict) else None
    if isinstance(wanted, list) and len({*map(str, wanted)} - {*targets.ids}) > _MAX_PATTERNS:
        raise ValueError(f"request.devices: more than {_MAX_PATTERNS} that are not ids")
    root = of_plain(given, "request")
    try:
        events = read_order(root, targets, now)
    except InvalidError:
        raise ValueError("; ".join(root.faults.lines)) from None
    return events, events[0].ids


def _parsed(request: bytes) -> Any:
    if len(request) > MAX_REQUEST:
        raise ValueError(f"the request has more than {MAX_REQUEST} bytes")
    try:
        return json.loads(request)
    except RecursionError:
        raise ValueError("the request is nested too deeply") from None
    except ValueError:
        raise ValueError("this is not JSON") from None


def add(events: Sequence[Event], life: Life) -> None:
    """Add ``events`` to ``life``; ValueError if too much is pending."""
    if len(events) > 1 and life.coming >= _MAX_COMING:
        raise ValueError(f"{_MAX_COMING} faults have not ended yet: wait, or do not use 'for'")
    for event in events:
        life.add(event)


def reply(**fields: str | Mapping[str, str]) -> bytes:
    """Return a reply as JSON."""
    return json.dumps(fields).encode()


class Control:
    """The socket at ``path``. ``obey`` gets each request and returns the reply, both one line.

    Only the plugin's user and root can open the socket. Several threads call ``obey`` at the same
    time, so a slow client delays no other.
    """

    def __init__(self, path: Path, obey: Callable[[bytes], bytes]) -> None:
        self._path = path
        self._obey = obey

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Serve clients until the context ends. The socket replaces an older one."""
        with socket.socket(socket.AF_UNIX) as listener:
            identity = self._make(listener)
            atexit.register(self._remove, identity)
            try:
                with self._serving(listener):
                    yield
            finally:
                atexit.unregister(self._remove)
                self._remove(identity)

    @contextmanager
    def _serving(self, listener: socket.socket) -> Iterator[None]:
        ended, clients = Flag(), set[socket.socket]()
        threads = [
            Thread(target=self._work, args=(listener, ended, clients), name="control", daemon=True)
            for _ in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for one in (listener, *list(clients)):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # wakes the threads that wait for it
            for thread in threads:
                thread.join(LIMIT)

    def _make(self, listener: socket.socket) -> tuple[int, int]:
        if self._path.exists() and not self._path.is_socket():
            raise FileExistsError(f"{self._path}: exists, and is not a socket")
        new = Path(f"{self._path}{SUFFIX}")
        new.unlink(missing_ok=True)
        try:
            listener.bind(os.fspath(new))
        except OSError as error:
            raise OSError(f"{self._path}: {error.strerror}") from error
        new.chmod(0o600)
        listener.listen()
        new.rename(self._path)
        return _identity(self._path)

    def _remove(self, identity: tuple[int, int]) -> None:
        """Remove the socket, unless another process has replaced it."""
        with suppress(OSError):
            if _identity(self._path) == identity:
                self._path.unlink()

    def _work(self, listener: socket.socket, ended: Flag, clients: set[socket.socket]) -> None:
        """Serve one client after the other."""
        while not ended.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                ended.wait(_PAUSE)
                continue
            clients.add(client)
            try:
                if not ended.is_set():  # or it connected after the others were disconnected
                    self._serve(client)
            except OSError:  # a client that disconnects affects only itself
                pass
            except Exception:  # the top of a thread, which must go on to the next client
                log.exception("request failed")
            clients.discard(client)
            client.close()

    def _serve(self, client: socket.socket) -> None:
        end = time.monotonic() + LIMIT
        request = b""
        while b"\n" not in request and len(request) <= MAX_REQUEST:
            client.settimeout(_left(end))
            if not (more := client.recv(MAX_REQUEST)):
                break
            request += more
        reply = self._obey(request.partition(b"\n")[0])
        client.settimeout(_left(end))
        client.sendall(reply + b"\n")


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
