"""Metrics, probes and the inventory over HTTP. Nothing on the device path depends on it.

It is imported after the start (``listener.py``): the libraries take time and memory.
"""

import errno
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from itertools import islice
from typing import Any, Final, Protocol, cast

from typing_extensions import override

from deviceplugin._http.devices_report import Report
from deviceplugin._http.page import render
from deviceplugin._http.single_flight import Shared
from deviceplugin._platform import open_files
from deviceplugin._platform.boot import boot_id
from deviceplugin._telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_TEXT: Final = "text/plain; charset=utf-8"
_CLIENT_TIMEOUT: Final = 10
"""Most seconds that a client may be silent on a connection."""
_CLIENT_DEADLINE: Final = 15.0
"""Most seconds that a client may take in total."""
MAX_CLIENTS: Final = 32
"""Most clients at a time, if there are enough open files for them."""
_FEWEST: Final = 2
"""Clients that are accepted even if open files are scarce: a probe must get through."""
_PATIENCE: Final = 0.5
"""Seconds that the next client waits for another to end, before slow ones are disconnected."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NEVER: Final = 24 * 3600.0
"""Seconds between wake-ups of the server loop, which are useless here."""
_INDEX: Final = "/\n/metrics\n/healthz\n/readyz\n/devices\n"


_ENCODER: Final = json.JSONEncoder(default=str, separators=(",\n", ": "))
"""Writes a line for each value, without indentation, because the fast encoder has none."""
_CHUNK: Final = 50
"""Devices that are encoded before other threads may run."""

_KUBELET: Final = "kube-probe/"
"""Beginning of the header ``User-Agent`` of a kubelet's probes."""

_Answer = tuple[int, str, bytes]
"""Status, content type and body."""


class View(Protocol):
    """The state that the server reports."""

    def alive(self) -> str:
        """Return why the process should be restarted, or an empty string."""

    def ready(self) -> str:
        """Return why devices cannot be allocated, or an empty string."""

    def reports(self) -> Sequence[Report]:
        """Return all resources and their devices."""

    def shortfalls(self) -> Sequence[str]:
        """Return what plugins should offer and do not, a message for each."""


class Server:
    """The HTTP server of ``listener``, a socket that listens. ``run`` is its thread.

    ``probed`` is called before each request of a kubelet's probes is answered.
    """

    def __init__(
        self,
        listener: socket.socket,
        view: View,
        metrics: Metrics,
        *,
        probed: Callable[[], None] = lambda: None,
    ) -> None:
        routes: Mapping[str, Callable[[str], _Answer]] = {
            "/": _shared(lambda: _page(view, metrics)),
            "/metrics": Shared(lambda accept: _metrics(metrics, accept)),
            "/healthz": lambda _: _probe(view.alive()),
            "/readyz": lambda _: _probe(view.ready()),
            "/devices": _shared(lambda: _devices(view.reports(), view.shortfalls())),
        }
        self._server = _Listener(listener, _handler(routes, probed))
        self.port: int = self._server.server_address[1]

    def run(self) -> None:
        """Serve until stopped."""
        with self._server:
            self._server.serve_forever(poll_interval=_NEVER)

    def stop(self) -> None:
        """Make ``run`` return."""
        # shutdown() waits for the loop, which wakes up when its socket is shut down.
        threading.Thread(target=self._server.shutdown, daemon=True).start()
        with suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, handler: type[BaseHTTPRequestHandler]) -> None:
        self._ended = threading.Condition()
        """Notified when a client ends."""
        self._clients: dict[socket.socket, None] = {}
        self._waiting: set[socket.socket] = set()
        """Clients that wait for an answer of ours, so they are not slow themselves."""
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()  # the one that is made in there
        self.socket = listener

    @override
    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:  # trying again at once would be an endless loop
                self._disconnect_slow()
                with self._ended:
                    self._ended.wait(_PATIENCE)
            raise

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        # Further clients wait in the backlog: unlimited threads and descriptors would kill us.
        if not self._wait_for_room():
            self._disconnect_slow()  # behind them, a probe would time out
            if not self._wait_for_room():
                self.shutdown_request(request)
                return
        self._clients[request] = None
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the node has no thread left
            self._end(request)
            self.shutdown_request(request)

    def _wait_for_room(self) -> bool:
        with self._ended:
            return self._ended.wait_for(self._has_room, _PATIENCE)

    def _has_room(self) -> bool:
        clients = len(self._clients)
        enough = clients < _FEWEST or open_files.spare() >= open_files.RESERVE
        return enough and clients < MAX_CLIENTS

    def _disconnect_slow(self) -> None:
        for client in set(self._clients) - self._waiting:
            _disconnect(client)

    @override
    def process_request_thread(self, request: Any, client_address: Any) -> None:
        deadline = threading.Timer(_CLIENT_DEADLINE, _disconnect, args=[request])
        deadline.daemon = True
        try:
            deadline.start()
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._end(request)

    @contextmanager
    def working_for(self, client: socket.socket) -> Iterator[None]:
        """Do not count ``client`` as slow in the context, while its answer is prepared."""
        self._waiting.add(client)
        try:
            yield
        finally:
            self._waiting.discard(client)

    def _end(self, request: socket.socket) -> None:
        with self._ended:
            del self._clients[request]
            self._ended.notify_all()

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("HTTP client failed", extra={"error": str(sys.exc_info()[1])})


def _disconnect(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _handler(
    routes: Mapping[str, Callable[[str], _Answer]], probed: Callable[[], None]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _CLIENT_TIMEOUT

        @override
        def handle_one_request(self) -> None:
            begin = cast("BufferedReader", self.rfile).peek(1)[:1]  # empty if the client is gone
            if begin and not begin.isalpha():
                # Such as TLS, in which the end of a line might never come.
                self.requestline = self.request_version = self.command = ""
                self.close_connection = True
                self.send_error(400, "Not an HTTP request: this port has no TLS")
            else:
                super().handle_one_request()

        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            accept = self.headers.get("Accept", "")
            if self.headers.get("User-Agent", "").startswith(_KUBELET):
                probed()
            with cast("_Listener", self.server).working_for(self.connection):
                status, kind, body = route(accept) if route else (404, _TEXT, _INDEX.encode())
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        @override
        def log_message(self, format: str, *args: object) -> None:
            log.debug(format, *args)

    return Handler


def _shared(make: Callable[[], _Answer]) -> Callable[[str], _Answer]:
    """Return a route whose answer does not depend on the ``Accept`` header."""
    shared = Shared(lambda _: make())
    return lambda _: shared()


def _metrics(metrics: Metrics, accept: str) -> _Answer:
    return 200, *metrics.expose(accept)


def _probe(problem: str) -> _Answer:
    return (
        (503, _TEXT, f"{problem}\n".encode(errors="replace")) if problem else (200, _TEXT, b"ok\n")
    )


def _devices(reports: Iterable[Report], shortfalls: Sequence[str]) -> _Answer:
    """Return all reports as JSON, encoded in chunks so that an Allocate need not wait for it."""
    resources = (
        f'{_ENCODER.encode(report.as_json())[:-1]},\n"devices": [{_encoded_devices(report)}]}}'
        for report in reports
    )
    more = {"shortfalls": shortfalls, "boot": boot_id()}
    text = f'{{"resources": [{",".join(resources)}],\n{_ENCODER.encode(more)[1:]}\n'
    return 200, "application/json", text.encode()


def _encoded_devices(report: Report) -> str:
    devices = report.devices_as_json()
    encoded = []
    while chunk := list(islice(devices, _CHUNK)):
        encoded.append(_ENCODER.encode(chunk)[1:-1])
        time.sleep(0)  # let another thread run
    return ",\n".join(encoded)


def _page(view: View, metrics: Metrics) -> _Answer:
    page = render(
        view.reports(),
        metrics.events.latest(),
        name=socket.gethostname(),
        problem=view.ready(),
        now=time.time(),
    )
    return 200, "text/html; charset=utf-8", page
