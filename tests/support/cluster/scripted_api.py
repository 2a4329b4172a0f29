"""A server that answers as a test tells it, as an API server may and sometimes should not."""

import json
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from typing_extensions import override


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """One answer."""

    status: int = 200
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | bytes | None = None
    """The body, if it is not a Status with ``message``."""
    raw: bytes | None = None
    """All that is sent, in place of an answer by HTTP."""
    parts: Iterable[bytes] = ()
    """The body in parts, sent one after the other; the connection ends with the last."""

    @classmethod
    def of(cls, body: object) -> "Answer":
        """Return an answer with ``body`` as JSON."""
        return cls(text=json.dumps(body))


@dataclass
class Script:
    """What the server was asked, and what it is to answer."""

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque)
    """To the next requests; those beyond are answered by ``otherwise``."""
    otherwise: Callable[[Asked], Answer] = lambda _asked: Answer(404, "not found")
    silent: Event | None = None
    """If it is there, answers wait for it."""
    asked: list[Asked] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)
    """The addresses that requests came from."""

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if self.silent is not None:
            self.silent.wait(10)
        return self.answers.popleft() if self.answers else self.otherwise(asked)


_S = TypeVar("_S", bound=Script)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that have hung up are part of the tests."""


def _handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            script.connections.add(self.client_address)
            address = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = script.answer(
                Asked(
                    self.command,
                    unquote(address.path),
                    dict(parse_qsl(address.query)),
                    json.loads(body) if body else None,
                    dict(self.headers),
                )
            )
            if answer.raw is not None:
                self.close_connection = True
                self.wfile.write(answer.raw)
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.parts:
                self.close_connection = True
                self.send_header("Connection", "close")
                self.end_headers()
                for part in answer.parts:
                    self.wfile.write(part)
                return
            status = json.dumps({"kind": "Status", "message": answer.message})
            text = status if answer.text is None else answer.text
            body = text.encode() if isinstance(text, str) else text
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output clean."""

    return Handler


@contextmanager
def running(script: _S, context: ssl.SSLContext | None = None) -> Iterator[_S]:
    """Serve ``script`` on loopback, over TLS with a ``context``."""
    with _Server(("127.0.0.1", 0), _handler(script)) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        script.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield script
        finally:
            if script.silent is not None:
                script.silent.set()
            server.shutdown()
            thread.join()
