"""Whether the plugin's own sockets answer, and what ``/healthz`` makes of it."""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from deviceplugin._kubelet import liveness
from deviceplugin._kubelet.liveness import Liveness
from deviceplugin._kubelet.server import ResourceServer
from deviceplugin._kubelet.service import Context, Servicer
from deviceplugin._platform import event_loop, open_files
from deviceplugin._telemetry.events import Events
from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.fixture import Kubelet, Node
from held_clock import HeldClock
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin

DEAD = r"^/p/{} has not answered since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"


class Socket:
    """One that answers or does not, as a test wants it."""

    def __init__(self, name: str) -> None:
        self.path = Path("/p", name)
        self.gone = False
        self.well = True
        self.asked = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def answers(self, timeout: float) -> bool:
        assert timeout > 0
        self.asked += 1
        self.meanwhile()
        return self.well


class Sockets:
    """Some of them, the check of their liveness, and its clock."""

    def __init__(self, *names: str) -> None:
        self.clock = HeldClock()
        self.by_name = {name: Socket(name) for name in names}
        self.events = Events()
        self.liveness = Liveness(lambda: dict(self.by_name), self.events, self.clock)

    def after(self, seconds: float, rounds: int = 1) -> str:
        """Ask in each of ``rounds`` after as many seconds, and return what is wrong."""
        for _ in range(rounds):
            self.clock.advance(seconds)
            self.liveness.ask()
        return self.liveness.problem()


@pytest.fixture
def sockets() -> Sockets:
    found = Sockets("a", "b")
    assert "" == found.after(60)
    return found


# What counts as death.


def test_a_socket_that_was_silent_for_long_and_often_is_dead_until_it_answers(
    sockets: Sockets,
) -> None:
    sockets.by_name["a"].well = False
    assert "" == sockets.after(60, rounds=5)
    problem = sockets.after(60)
    assert re.match(DEAD.format("a"), problem)
    assert sockets.after(60, rounds=9) == problem  # since when does not change
    sockets.by_name["a"].well = True
    assert "" == sockets.after(60)


@pytest.mark.parametrize(
    ("seconds", "rounds"), [(3600, 4), (1, 100)], ids=["a machine was suspended", "in no time"]
)
def test_neither_a_long_silence_nor_many_questions_alone_are_enough(
    sockets: Sockets, seconds: int, rounds: int
) -> None:
    sockets.by_name["a"].well = False
    assert "" == sockets.after(seconds, rounds)


def test_where_none_ever_answered_a_restart_mends_nothing() -> None:
    sockets = Sockets("a")
    sockets.by_name["a"].well = False
    assert "" == sockets.after(60, rounds=60)


def test_a_socket_that_goes_or_is_replaced_meanwhile_is_not_blamed(sockets: Sockets) -> None:
    def replace() -> None:
        sockets.by_name["a"] = Socket("a2")

    one, other = sockets.by_name["a"], sockets.by_name["b"]
    one.well, one.meanwhile = False, replace
    other.well, other.gone = False, True
    assert "" == sockets.after(60)
    assert not sockets.liveness._silent
    assert "" == sockets.after(60, rounds=60)


def test_new_sockets_of_a_resource_that_are_silent_too_do_not_begin_anew(sockets: Sockets) -> None:
    problem = ""
    for number in range(7):
        sockets.by_name["a"] = Socket(f"a{number}")
        sockets.by_name["a"].well = False
        problem = sockets.after(60)
    assert re.match(DEAD.format("a6"), problem)
    del sockets.by_name["a"]
    assert "" == sockets.after(60), "the resource is withdrawn"


def test_nobody_is_asked_without_open_files_to_do_so(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets.by_name["a"].well = False
    before = sockets.by_name["a"].asked
    monkeypatch.setattr(open_files, "spare", lambda: 0)
    assert "" == sockets.after(60, rounds=60)
    assert before == sockets.by_name["a"].asked


# Who is asked, and what is told.


def test_many_sockets_take_turns_and_wait_while_a_silent_one_is_asked_in_every_round() -> None:
    sockets = Sockets(*(f"r{number:02}" for number in range(20)))
    sockets.after(60)
    assert 8 == sum(socket.asked for socket in sockets.by_name.values())
    sockets.after(60, rounds=9)
    assert {socket.asked >= 3 for socket in sockets.by_name.values()} == {True}
    sockets.by_name["r01"].well = False
    sockets.after(60, rounds=4)
    before = {name: socket.asked for name, socket in sockets.by_name.items()}
    assert sockets.after(60, rounds=6)
    asked = {name: socket.asked - before[name] for name, socket in sockets.by_name.items()}
    assert {"r01": 6} == {name: count for name, count in asked.items() if count}


def test_silence_is_told_once_and_its_end_too(
    sockets: Sockets, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sockets.by_name["a"].well = False
    sockets.after(60, rounds=9)
    sockets.by_name["a"].well = True
    sockets.after(60)
    told = ["plugin socket not responding", "plugin socket responding again"]
    assert told == caplog.messages
    assert told == [event.event for event in reversed(sockets.events.latest())]


def test_a_round_that_breaks_ends_nothing(
    sockets: Sockets, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([RuntimeError("can't start new thread")] * 3)

    def fail() -> None:
        for failure in failures:
            raise failure

    sockets.by_name["b"].meanwhile = fail
    thread = threading.Thread(target=sockets.liveness.run)
    thread.start()
    before = sockets.by_name["b"].asked
    assert [60.0] * 6 == [sockets.clock.skip_wait() for _ in range(6)]
    assert sockets.by_name["b"].asked > before + 4
    sockets.liveness.stop()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert ["plugin socket check failed"] == caplog.messages


# Real servers.


def server(node: Node) -> ResourceServer:
    (endpoint,) = node.host._endpoints.running()
    assert endpoint.server is not None
    return endpoint.server


@contextmanager
def blocked() -> Iterator[None]:
    """Block the event loop, so that nothing is answered."""
    begun, release = threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        release.wait(PATIENCE)

    with ThreadPoolExecutor(1) as calling:
        over = calling.submit(event_loop.call, block(), PATIENCE)
        assert begun.wait(PATIENCE)
        try:
            yield
        finally:
            release.set()
            over.result()


@pytest.mark.parametrize("http_address", ["127.0.0.1:0", "off"])
def test_a_server_answers_until_it_stops_and_is_asked_where_somebody_can_ask_for_health(
    kubelet: Kubelet, http_address: str
) -> None:
    with kubelet.running(ScriptedPlugin("a"), http_address=http_address) as node:
        node.wait_for(RESOURCE, {"a"})
        served = server(node)
        assert served.answers(PATIENCE)
        actors = [name for name, *_ in node.host._group._actors]
        assert ("off" != http_address) == ("liveness" in actors)
    assert not served.answers(PATIENCE)


def test_a_server_that_is_late_but_begins_calls_is_alive(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = threading.Event()
    answer = Servicer.GetDevicePluginOptions

    async def hang(self: Servicer, request: pb.Empty, context: Context) -> pb.DevicePluginOptions:
        answered = await answer(self, request, context)
        await asyncio.sleep(PATIENCE if late.is_set() else 0)
        return answered

    monkeypatch.setattr(Servicer, "GetDevicePluginOptions", hang)
    with kubelet.running(ScriptedPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        late.set()
        assert server(node).answers(1.0)


def test_a_refusal_is_an_answer(kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_self: object, _request: object, context: Context) -> None:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")

    monkeypatch.setattr(Servicer, "GetDevicePluginOptions", refuse)
    with kubelet.running(ScriptedPlugin("a")) as node:
        servers = node.host._endpoints.servers
        eventually(
            lambda: [one for one in servers().values() if one.answers(PATIENCE)], "a refusal"
        )


def test_the_process_is_not_alive_while_its_socket_is_dead(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "_TIMEOUT", 0.1)
    clock = HeldClock()
    with kubelet.running(ScriptedPlugin("a")) as node:
        node.wait_for(RESOURCE, {"a"})
        ours = node.host._liveness
        ours._clock = clock
        ours.ask()
        with blocked():
            for _ in range(5):
                assert "" == node.host.alive()
                ours.ask()
                clock.advance(60.0)
            assert node.host.alive().startswith(f"{server(node).path} has not answered since 2")
            assert "" == node.host.ready()  # the kubelet has not noticed yet
        monkeypatch.setattr(liveness, "_TIMEOUT", PATIENCE)
        ours.ask()
        assert "" == node.host.alive()
