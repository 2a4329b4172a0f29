"""An API server that takes Events as the real one does, and fails as it is told."""

import json
import ssl
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import kubernetes_validate
from typing_extensions import override

PATH = "/api/v1/namespaces/default/events"


@dataclass(frozen=True)
class Answer:
    """One answer in place of the usual one."""

    status: int
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None
    """The body, if it is no Status."""


@dataclass
class Api:
    """What the server was asked, and what it is to answer."""

    url: str = ""
    failures: deque[Answer] = field(default_factory=deque)
    """Answers to the next requests."""
    silent: Event | None = None
    """If it is there, answers wait for it."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What was created, by name."""

    def messages(self) -> list[str]:
        return [event["message"] for event in self.events.values()]

    def answer(self, path: str, body: bytes) -> Answer:
        event = json.loads(body)
        self.asked.append(event)
        if self.silent is not None:
            self.silent.wait(10)
        if self.failures:
            return self.failures.popleft()
        if path != PATH:
            return Answer(404, "the server could not find the requested resource")
        if problem := invalid(event):
            return Answer(422, problem)
        name = event["metadata"]["name"]
        if name in self.events:
            return Answer(409, f'events "{name}" already exists')
        self.events[name] = event
        return Answer(201)


def invalid(event: Mapping[str, Any]) -> str:
    """Return what a real API server would have against ``event``."""
    for version in ("1.26", "1.37"):
        try:
            kubernetes_validate.validate(event, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            return str(error.message)
    if event["metadata"]["namespace"] != "default":
        return "involvedObject.namespace: does not match event.namespace"
    if len(event["message"].encode()) > 1024:
        return "message: can have at most 1024 bytes"
    if len(event["metadata"]["name"]) > 253:
        return "metadata.name: must be no more than 253 characters"
    return ""


@contextmanager
def running(api: Api, context: ssl.SSLContext | None = None) -> Iterator[Api]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            api.headers.append(dict(self.headers))
            said = api.answer(
                self.path, self.rfile.read(int(self.headers.get("Content-Length", 0)))
            )
            status = json.dumps({"kind": "Status", "message": said.message})
            body = (status if said.text is None else said.text).encode()
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output clean."""

    class Server(ThreadingHTTPServer):
        @override
        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that have hung up are part of the tests."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        api.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield api
        finally:
            if api.silent is not None:
                api.silent.set()
            server.shutdown()
            thread.join()
