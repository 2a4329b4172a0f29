"""What whoever reaches a port can send: to a plugin's server, and as a plugin's answer."""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from typing_extensions import override

from cluster.scripted_api import Answer, Script, running
from deviceplugin._http.listener import listen
from deviceplugin._http.server import HttpServer
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.tools._devices_page import NoAnswerError, ask
from deviceplugin.tools._plugin_pods import Plugin
from deviceplugin.tools.devices import _inventory
from deviceplugin.tools.devices._inventory import Inventory
from deviceplugin.tools.events._notice import as_event, read_facts
from deviceplugin.tools.events._watch import Watch
from deviceplugin.tools.evict._pods import Patience
from deviceplugin.tools.startup_taint._keeper import readiness
from fuzzing.samples import Sample, seeds
from fuzzing.target import Read, Target
from http_server import View
from patience import PATIENCE


class _Failures(logging.Handler):
    """Keeps what the server says of clients that made it fail."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        error = str(vars(record).get("error", ""))
        if not error.startswith("[Errno"):  # of a connection
            self.found += filter(None, [error])


@contextmanager
def _server_of_plugin(_folder: Path) -> Iterator[Read]:
    server = HttpServer(listen("127.0.0.1:0"), View(), Metrics())
    thread = threading.Thread(target=server.run)
    thread.start()
    failures, log = _Failures(), logging.getLogger("deviceplugin._http")
    log.addHandler(failures)
    log.setLevel(logging.DEBUG)

    def read(sample: Sample) -> None:
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
            answer = _answer(client, sample.content)
        assert len(answer) <= _MOST
        assert [] == failures.found

    try:
        yield read
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as client:
            assert b" 200 OK" in _answer(
                client, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
            )
    finally:
        log.setLevel(logging.NOTSET)
        log.removeHandler(failures)
        server.stop()
        thread.join(PATIENCE)


def _answer(client: socket.socket, content: bytes) -> bytes:
    """Send all of a request, and return the answer until the connection ends."""
    try:
        client.sendall(content)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(partial(client.recv, 65536), b""))
    except ConnectionError:  # it has seen enough
        return b""


@contextmanager
def _plugin(read: Callable[[str], object], _folder: Path) -> Iterator[Read]:
    """Have ``read`` ask a plugin that answers with the sample."""
    script = Script()

    def run(sample: Sample) -> None:
        script.otherwise = lambda _asked: Answer(text=sample.content)
        read(script.url)

    with running(script):
        yield run


def _evict(url: str) -> None:
    patience = Patience(lambda _resource: 600.0)
    Plugin("node", url).says(lambda page: patience.observe(page, 0.0))


def _startup_taint(url: str) -> None:
    readiness(Plugin("node", url))


def _devices(url: str) -> None:
    inventory = Inventory()
    ask(url, inventory.add_plugin, PATIENCE)
    list(_inventory.table(inventory, 2))
    json.dumps(_inventory.document(inventory))


def _events(url: str) -> None:
    watch = Watch(300.0, all_news=True)
    watch.observe(read_facts(url, PATIENCE), 0.0)
    while notice := watch.news(0.0):
        event = as_event(notice, "node", _NOW)
        assert len(event["message"].encode()) <= 1024
        watch.reported(notice, 0.0)


_NOW: Final = datetime(2026, 11, 26, tzinfo=UTC)
_LISTED: Final = {
    "id": "a",
    "healthy": False,
    "reason": "too hot",
    "since": "2026-11-22T00:00:00+00:00",
    "numa_nodes": [0],
    "attributes": {"a": 1},
    "capacity": {"b": "1Gi"},
    "holders": [
        {"namespace": "default", "pod": "b", "container": "main"},
        {"namespace": "default", "pod": "", "container": "", "claim": "c"},
    ],
}
_RESOURCE: Final = {
    "name": "example.com/a",
    "problem": "",
    "registered": True,
    "devices": [_LISTED],
}
_PAGE: Final = {"resources": [_RESOURCE, {**_RESOURCE, "name": "b.c/d"}], "shortfalls": ["e"]}
_MOST: Final = 65536
"""Bytes of an answer of a plugin without devices."""
_REQUESTS: Final = (
    b"GET /devices HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\nAuthorization: Bearer a\r\n\r\n",
    b"GET /metrics?a=b HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text\r\n\r\n",
    b"HEAD / HTTP/1.0\r\nUser-Agent: kube-probe/1\r\nConnection: keep-alive\r\n\r\n",
    b"POST /readyz HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\na",
)

TARGETS: Final = (
    Target("server of a plugin", seeds(*_REQUESTS), _server_of_plugin),
    *(
        Target(f"/devices, {name}", seeds(_PAGE), partial(_plugin, read), (NoAnswerError,))
        for name, read in (
            *(("evicting", _evict), ("listing", _devices), ("reporting", _events)),
            ("waiting", _startup_taint),
        )
    ),
)
