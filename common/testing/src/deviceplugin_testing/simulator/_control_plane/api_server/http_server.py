"""The API server over HTTP, on a port of its own."""

import contextlib
import json
import socket
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

from typing_extensions import override

from deviceplugin_testing.simulator._control_plane.api_server.answering import (
    Answer,
    Answering,
    Asked,
)
from deviceplugin_testing.simulator._control_plane.api_server.request import Watching

_JSON: Final = "application/json"


class ApiHttpServer:
    """Serves what ``answering`` answers at ``url``, which stays the same from start to start."""

    def __init__(self, answering: Answering, tls: ssl.SSLContext | None) -> None:
        self.answering = answering
        self.tls = tls
        """The certificate for new connections, or None for plain HTTP."""
        self.crashes: list[BaseException] = []
        """Errors that are the server's own fault."""
        self._address = ("127.0.0.1", 0)
        self._server: _Server | None = None
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """The address; it has a port once the server was started."""
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{self._address[0]}:{self._address[1]}"

    def start(self) -> None:
        self._server = _Server(self._address, self)
        self._address = ("127.0.0.1", self._server.server_port)
        self._thread = Thread(
            target=self._server.serve_forever, args=(0.02,), name="simulated-api-server"
        )
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections, and cut those that there are. Does nothing if it is stopped."""
        if self._server is None or self._thread is None:
            return
        server, self._server = self._server, None
        server.shutdown()
        self._thread.join()
        server.server_close()
        self.answering.cut_watches()
        server.cut()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], api: ApiHttpServer) -> None:
        super().__init__(address, _Connection)
        self.api = api
        self._sockets: set[socket.socket] = set()

    @override
    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self.api.tls is not None:  # with the handshake in the connection's own thread
            connection = self.api.tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        with self.api.answering.state:
            self._sockets.add(connection)
        return connection, address

    @override
    def shutdown_request(self, request: Any) -> None:
        with self.api.answering.state:
            self._sockets.discard(request)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Keep errors of our own; clients may hang up, or not know the certificate."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            self.api.crashes.append(error)

    def cut(self) -> None:
        with self.api.answering.state:
            sockets = [*self._sockets]
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the client is gone
            self.close_connection = True
            return
        asked = Asked(self.command, self.path, self.headers.get, body)
        answer = self.server.api.answering.answer(asked)
        if isinstance(answer, Watching):
            self._stream(answer)
        elif isinstance(answer, Answer):
            self._send(answer)
        else:
            self.close_connection = True
            answer(self)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def _send(self, answer: Answer) -> None:
        media, text = _JSON, json.dumps(answer.body)
        if isinstance(answer.body, str):
            media, text = "text/plain", answer.body
        body = text.encode()
        self.send_response(answer.code)
        for name, value in {"Content-Type": media, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, watching: Watching) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", _JSON)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in watching.events():
            text = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
        if not watching.is_cut():
            self.wfile.write(b"0\r\n\r\n")
