"""Clients of the HTTP server that send too much, too slowly, or what they should not."""

import selectors
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import slow_clients
from deviceplugin._http import answering, connections
from deviceplugin._http.answering import MAX_CLIENTS
from deviceplugin._http.connections import MAX_HEAD
from deviceplugin._http.server import Shared
from deviceplugin._platform import open_files
from deviceplugin._platform.clock import MONOTONIC
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.fixture import Kubelet
from http_server import View, serving
from patience import PATIENCE, eventually
from plugin_process import Process, started

_LINE = b"GET /healthz HTTP/1.1\r\n"
_HOST = b"Host: 127.0.0.1\r\n"


def connect(port: int, timeout: float = PATIENCE) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout)


def answer(port: int, *sent: bytes, timeout: float = PATIENCE) -> bytes:
    """Everything that is answered to ``sent``, each of which is sent alone."""
    with connect(port, timeout) as client:
        for each in sent:
            client.sendall(each)
        return client.makefile("rb").read()


def status(port: int, *sent: bytes, timeout: float = PATIENCE) -> int:
    return int(answer(port, *sent, timeout=timeout).split(b" ", 2)[1])


def padded(size: int) -> bytes:
    """Return a request of ``size`` bytes."""
    rest = size - len(_LINE + _HOST + b"X: \r\n\r\n")
    return _LINE + _HOST + b"X: " + b"a" * rest + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (padded(MAX_HEAD), 200),
        (padded(MAX_HEAD + 1), 431),
        (_LINE + b"X: " + b"a" * 1024**2, 431),
        (_LINE + _HOST + b"a:\r\n" * 98 + b"\r\n", 200),
        (_LINE + _HOST + b"a:\r\n" * 99 + b"\r\n", 431),
        (b"GET /" + b"a" * MAX_HEAD, 414),
        (b"G" * MAX_HEAD, 414),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1 again\r\n" + _HOST + b"\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\n\r\n", 400),
        (_LINE + b"\r\n", 400),
        (_LINE + _HOST * 2 + b"\r\n", 400),
        (_LINE + b"nothing\r\n" + _HOST + b"\r\n", 400),
        (b"GET /healthz HTTP/1.0\n\n", 200),
        (_LINE + b"Host:\r\n 127.0.0.1\r\n\r\n", 200),
        (_LINE + _HOST + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
        (_LINE + _HOST + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n", 413),
        (_LINE + _HOST + b"Content-Length: 0\r\nExpect: 100-continue\r\n\r\n", 200),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        # What begins no request is refused without waiting for a line.
        *((sent, 400) for sent in (b"\x16\x03\x01\x02\x00\x01", b"\0", b"\xff", b"{}")),
        (_LINE + _HOST + b"X: \xff\x00\x80\r\n\r\n", 200),
    ],
)
def test_a_request_is_a_line_and_headers_of_16_kib_in_all(sent: bytes, expected: int) -> None:
    with serving() as server:
        got = answer(server.port, sent)
        assert expected == int(got.split(b" ", 2)[1])
        assert b"\r\nConnection: close\r\n" in got
        advice = b"use https:// if the plugin has http-cert-file, else http://\n"
        assert (not sent[:1].isalpha()) == got.endswith(advice)
        assert 200 == status(server.port, padded(100))


def test_no_answer_names_versions_and_all_have_the_headers_of_the_page() -> None:
    sent = [_LINE + _HOST, b"GET / HTTP/1.0\r\n", b"GET /none HTTP/1.0\r\n", b"PUT / HTTP/1.0\r\n"]
    with serving() as server:
        for each in sent:
            head = answer(server.port, each + b"\r\n").split(b"\r\n\r\n")[0].decode()
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
            expected = {
                "Server": "deviceplugin",
                "X-Content-Type-Options": "nosniff",
                "Connection": "close",
                "Cache-Control": "no-store",
            }
            assert expected == {name: fields[name] for name in expected}
            assert "default-src 'none'" in fields["Content-Security-Policy"]


def test_a_request_that_comes_byte_by_byte_is_answered_and_what_follows_is_not_read() -> None:
    whole = _LINE + _HOST + b"\r\n"
    with serving() as server:
        assert 200 == status(server.port, *(whole[i : i + 1] for i in range(len(whole))))
        assert 1 == answer(server.port, whole * 3).count(b"HTTP/1.0 200 OK")


def test_a_request_that_does_not_end_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_REQUEST_TIME", 0.1)
    with serving() as server:
        assert b"" == answer(server.port, _LINE)


def test_an_answer_that_is_not_read_is_dropped_in_time() -> None:
    with serving(metrics=long_answer()) as server, connect(server.port) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"HTTP/1.0 200" == client.recv(12)
        (late,) = server._connections._answering._clients
        assert late.deadline <= MONOTONIC.now() + answering._ANSWER_TIME
        late.deadline = 0.0
        connect(server.port).close()  # so that the server looks at its clock
        eventually(lambda: threads_of_clients() == 0, "its thread to end")


def test_who_comes_where_nobody_can_give_way_is_turned_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as server:
        monkeypatch.setattr(connections, "_FEWEST", 0)
        monkeypatch.setattr(open_files, "spare", lambda: 0)
        with connect(server.port) as client:  # and asks nothing: what is sent could reset it
            assert b"" == client.recv(1)
        monkeypatch.undo()
        assert 200 == status(server.port, padded(100))


def test_at_the_limit_the_oldest_that_has_not_asked_gives_way_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_REQUEST_TIME", 24 * 3600.0)
    with serving() as server, ExitStack() as stack:
        waiting = server._connections._waiting
        slow = [stack.enter_context(connect(server.port)) for _ in range(connections._MAX_WAITING)]
        slow[0].sendall(b"G")
        eventually(lambda: any(one.head for one in [*waiting]), "its byte to be read")
        assert 200 == status(server.port, padded(100))
        assert b"" == slow[0].recv(1)
        slow[1].sendall(padded(100))
        assert b"HTTP/1.0 200" == slow[1].recv(12)


def test_who_begins_to_send_while_it_gives_way_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, usual = threading.Event(), selectors.PollSelector.select
    looks.set()

    def select(poll: selectors.PollSelector, timeout: float | None = None) -> Any:
        assert looks.wait(PATIENCE)
        return usual(poll, timeout)

    monkeypatch.setattr(selectors.PollSelector, "select", select)
    with serving() as server, ExitStack() as stack:
        waiting = server._connections._waiting
        slow = [stack.enter_context(connect(server.port)) for _ in range(connections._MAX_WAITING)]
        eventually(lambda: connections._MAX_WAITING == len(waiting), "all of them")
        oldest, *_, latest = waiting
        looks.clear()
        slow[-1].sendall(b"G")
        eventually(lambda: latest.head, "the end of a look")
        slow[0].sendall(b"G")  # seen together with the newcomer
        newcomer = stack.enter_context(connect(server.port))
        looks.set()
        newcomer.sendall(padded(100))
        assert b"HTTP/1.0 200" == newcomer.recv(12)
        assert oldest not in waiting
        assert not oldest.head


def test_who_does_not_read_gives_way_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_ANSWER_TIME", 24 * 3600.0)
    with serving(metrics=long_answer()) as server, ExitStack() as stack:
        for _ in range(MAX_CLIENTS + 4):
            client = stack.enter_context(connect(server.port))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert 200 == status(server.port, padded(100))
            assert threads_of_clients() <= MAX_CLIENTS + answering._MORE


def test_with_few_open_files_a_slow_reader_gives_way_and_then_nobody_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answering, "_ANSWER_TIME", 24 * 3600.0)
    may_end = threading.Event()

    class Slow(View):
        def ready(self) -> str:
            may_end.wait(PATIENCE)
            return ""

    with serving(host=Slow(), metrics=long_answer()) as server, ExitStack() as stack:
        for path in (b"/metrics", b"/readyz"):
            client = stack.enter_context(connect(server.port))
            client.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path)
            if path == b"/metrics":
                assert b"HTTP/1.0 200" == client.recv(12)
        eventually(lambda: threads_of_clients() == 2, "both to be answered")
        monkeypatch.setattr(open_files, "spare", lambda: 0)
        assert 200 == status(server.port, padded(100))  # in place of the first
        eventually(lambda: threads_of_clients() == 1, "the reader to be cut off")
        slow = stack.enter_context(connect(server.port))
        slow.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        eventually(lambda: threads_of_clients() == 2, "both to wait")
        with suppress(ConnectionResetError):
            assert b"" == answer(server.port)
        may_end.set()
        assert b"HTTP/1.0 200" == slow.recv(12)


def test_answers_that_wait_to_be_read_hold_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_ANSWER_TIME", 24 * 3600.0)
    monkeypatch.setattr(answering, "_MAX_HELD", 3 * 1024**2)
    with serving(metrics=long_answer()) as server, ExitStack() as stack:
        for _ in range(5):  # of more than a MiB each
            client = stack.enter_context(connect(server.port))
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert b"HTTP/1.0 200" == client.recv(12)
        eventually(lambda: threads_of_clients() <= 2, "the oldest to be cut off")
        whole = answer(server.port, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert len(whole) > 1024**2


@pytest.mark.slow
@pytest.mark.parametrize("word", ["G", "GET /metrics HTTP/1.0\r\n\r\n"])
def test_hundreds_of_slow_clients_keep_no_probe_from_its_answer(
    kubelet: Kubelet, word: str
) -> None:
    with plugin(kubelet) as (_, port), flood(port, 300, word):
        for path in (b"/healthz", b"/readyz") * 3:
            assert any(probe(port, path) for _ in range(3))  # the third failure is a restart


def probe(port: int, path: bytes) -> bool:
    """Return whether a kubelet's probe succeeds."""
    try:
        return 200 == status(port, b"GET %s HTTP/1.0\r\n\r\n" % path, timeout=5)
    except (OSError, IndexError):
        return False


def test_32_clients_with_full_headers_take_less_than_10_mib_of_a_plugin(kubelet: Kubelet) -> None:
    with plugin(kubelet) as (process, port):
        answer(port, b"GET /metrics HTTP/1.0\r\n\r\n")  # which loads what it needs
        before = peak(process.process.pid)
        send_full_headers(port)
        assert peak(process.process.pid) - before < 10 * 1024


@contextmanager
def plugin(kubelet: Kubelet) -> Iterator[tuple[Process, int]]:
    port = free_port()
    with started(kubelet.simulated.plugin_dir, f"--http-address=127.0.0.1:{port}") as process:
        eventually(lambda: probe(port, b"/readyz"), "the plugin")
        yield process, port


def long_answer() -> Metrics:
    """Return metrics that are longer than what the kernel keeps for a client."""
    metrics = Metrics()
    for number in range(8000):
        metrics.registrations.labels(f"x.io/{'a' * 60}{number}").inc()
    return metrics


def threads_of_clients() -> int:
    return sum(thread.name == "http-client" for thread in threading.enumerate())


def peak(pid: int) -> int:
    """Return the most memory that the process has had, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def send_full_headers(port: int) -> None:
    """Have as many clients as there can be send as much as they can, and end only then."""
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(port)) for _ in range(MAX_CLIENTS)]
        for client in clients:
            client.sendall(_LINE + _HOST)
        for number in range(98):
            for client in clients:
                try:
                    client.sendall(b"X-%d: " % number + b"a" * 65000 + b"\r\n")
                except OSError:  # it has been refused
                    continue
        assert probe(port, b"/healthz")


@contextmanager
def flood(port: int, number: int, word: str) -> Iterator[None]:
    """Hold ``number`` connections that send ``word`` and read nothing; replace those that end."""
    program = str(Path(slow_clients.__file__))
    words = [sys.executable, program, str(port), str(number), word]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as clients:
        assert clients.stdout is not None
        assert clients.stdout.readline()  # all have connected
        try:
            yield
        finally:
            clients.kill()


# Single flight.


class Answer:
    """The number of a making, and what was asked."""

    def __init__(self, number: int, question: str) -> None:
        self.number = number
        self.question = question


class Maker:
    """Makes answers, each of which waits until it may be given."""

    def __init__(self, failures: int = 0) -> None:
        self.made = 0
        self.failures = failures
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, question: str) -> Answer:
        self.made += 1
        number = self.made
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        if number <= self.failures:
            raise LookupError(number)
        return Answer(number, question)


def ask_while_it_is_made(maker: Maker, questions: list[str]) -> list[Future[Answer]]:
    """Ask the first, and all the others once that is being made; return the answers."""
    shared = Shared(maker)
    with ThreadPoolExecutor(len(questions)) as pool:
        answers = [pool.submit(shared, questions[0])]
        assert maker.begun.wait(PATIENCE)
        answers += [pool.submit(shared, question) for question in questions[1:]]
        eventually(lambda: len(questions) == shared._asking, "all to ask", every=0.001)
        maker.may_end.set()
    assert shared._made is None
    return answers


def test_those_who_ask_while_an_answer_is_made_share_the_next_one() -> None:
    maker = Maker()
    answers = [answer.result() for answer in ask_while_it_is_made(maker, [""] * 20)]
    assert [1] + [2] * 19 == [answer.number for answer in answers]
    assert 2 == maker.made


def test_nobody_gets_the_answer_to_another_question() -> None:
    questions = ["a", "b", "c", "b", "a"]
    answers = [answer.result() for answer in ask_while_it_is_made(Maker(), questions)]
    assert questions == [answer.question for answer in answers]


def test_an_answer_that_cannot_be_made_is_tried_by_the_next_who_asked() -> None:
    first, *others = ask_while_it_is_made(Maker(failures=2), [""] * 5)
    with pytest.raises(LookupError):
        first.result()
    failed = [answer for answer in others if answer.exception()]
    assert [LookupError] == [type(answer.exception()) for answer in failed]
    assert {3} == {answer.result().number for answer in others if answer not in failed}


def test_no_answer_is_kept_when_nobody_asks() -> None:
    maker = Maker()
    maker.may_end.set()
    shared = Shared(maker)
    kept = weakref.ref(shared())
    assert kept() is None
    assert [2, 3] == [shared().number for _ in range(2)]
