import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deviceplugin._http import listener as _listener
from deviceplugin._http import server
from deviceplugin._http.listener import Listener
from deviceplugin._http.server import HttpServer
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin_testing.fixture import Kubelet
from http_server import View, ask
from patience import PATIENCE, eventually
from scripted_plugin import ScriptedPlugin


class Loading:
    """Makes the server, and counts how often."""

    def __init__(self) -> None:
        self.times = 0
        self.started = False

    def make(self, listening: socket.socket) -> HttpServer:
        self.times += 1
        return HttpServer(listening, View(), Metrics())


@contextmanager
def running(listener: Listener) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=listener.run, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        listener.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_client_that_comes_before_the_server_is_loaded_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_listener, "_LONGEST_START", PATIENCE)
    loading = Loading()
    listener = Listener("127.0.0.1:0", loading.make, started=lambda: loading.started)
    with running(listener), socket.create_connection(("127.0.0.1", listener.port)) as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert 0 == loading.times
        loading.started = True
        assert client.makefile().readline().startswith("HTTP/1.0 200")


def test_a_start_that_does_not_end_keeps_nobody_from_asking_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_listener, "_LONGEST_START", 0.1)
    listener = Listener("127.0.0.1:0", Loading().make, started=lambda: False)
    with running(listener):
        assert 200 == ask(listener.port, "/healthz")[0]


def test_one_that_is_stopped_during_the_start_loads_nothing_and_leaves_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_listener, "_LONGEST_START", PATIENCE)
    loading = Loading()
    listener = Listener("127.0.0.1:0", loading.make, started=lambda: False)
    with running(listener):
        pass
    assert 0 == loading.times
    again = Listener(f"127.0.0.1:{listener.port}", loading.make, started=lambda: True)
    with running(again):
        assert 200 == ask(again.port, "/healthz")[0]


def test_one_that_is_stopped_while_the_server_is_loaded_does_not_serve() -> None:
    made, let_go = threading.Event(), threading.Event()
    loading = Loading()

    def make(listening: socket.socket) -> HttpServer:
        made.set()
        let_go.wait(PATIENCE)
        return loading.make(listening)

    listener = Listener("127.0.0.1:0", make, started=lambda: True)
    with running(listener):
        assert made.wait(PATIENCE)
        listener.stop()
        let_go.set()


def test_a_server_that_cannot_be_loaded_is_not_lost() -> None:
    def make(_listening: socket.socket) -> HttpServer:
        raise ImportError("no module named 'http'")

    listener = Listener("127.0.0.1:0", make, started=lambda: True)
    with pytest.raises(ImportError, match="no module named 'http'"):
        listener.run()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", listener.port))


def test_a_plugin_that_cannot_load_its_server_ends_and_says_why(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(server, "HttpServer")  # as if the import failed
    with (
        pytest.raises(ImportError, match="cannot import name 'HttpServer'"),
        kubelet.running(ScriptedPlugin("a"), http_address="127.0.0.1:0"),
    ):
        eventually(lambda: "fatal error, stopping" in caplog.text, "the error to be logged")
