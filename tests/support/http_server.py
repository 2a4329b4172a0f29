"""A plugin's HTTP server without a plugin, and its client."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from email.message import Message
from http.client import HTTPConnection, HTTPSConnection

from deviceplugin._http.access import Access
from deviceplugin._http.certificate import Certificate
from deviceplugin._http.devices_report import Report
from deviceplugin._http.listener import listen
from deviceplugin._http.server import HttpServer
from deviceplugin._telemetry.metrics import Metrics
from patience import PATIENCE


class View:
    """What there is to tell, as a test wants it."""

    def __init__(self) -> None:
        self.death = ""
        self.waiting = ""
        self.odd: list[str] = []
        self.resources: list[Report] = []
        self.short: list[str] = []

    def alive(self) -> str:
        return self.death

    def ready(self) -> str:
        return self.waiting

    def remarks(self) -> list[str]:
        return self.odd

    def reports(self) -> list[Report]:
        return self.resources

    def notes(self) -> dict[str, object]:
        return {"shortfalls": self.short}


@contextmanager
def serving(
    address: str = "127.0.0.1:0",
    host: View | None = None,
    metrics: Metrics | None = None,
    *,
    access: Access | None = None,
    certificate: Certificate | None = None,
    probed: Callable[[], None] = lambda: None,
    of: Callable[[socket.socket], socket.socket] = lambda listening: listening,
) -> Iterator[HttpServer]:
    """Serve in a thread; ``of`` may replace the listening socket."""
    server = HttpServer(
        of(listen(address)),
        host or View(),
        metrics or Metrics(),
        access=access,
        certificate=certificate,
        probed=probed,
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def ask(
    port: int,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> tuple[int, str, Message]:
    """Return status, body and headers of the answer."""
    connection = (
        HTTPSConnection(host, port, timeout=PATIENCE, context=tls)
        if tls
        else HTTPConnection(host, port, timeout=PATIENCE)
    )
    with closing(connection):
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
