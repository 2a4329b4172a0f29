"""Long lists from an API server that is busy, forgetful or slow."""

import io
from threading import Thread

import pytest
from typing_extensions import override

from cluster.scripted_api import Answer, Script
from deviceplugin._platform.waiting import Waiter
from deviceplugin.apiserver import ApiServer, GoneError, UnavailableError
from deviceplugin_cli.fleet._question import Progress, Reader
from fleets.objects import NODES, node, page
from held_clock import HeldClock

BUSY = Answer(429, "busy", {"Retry-After": "20"})


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


class Reading:
    """A read in a thread of its own, by a clock that the test holds."""

    def __init__(self, script: Script) -> None:
        self.clock = HeldClock()
        progress = Progress(io.StringIO(), self.clock)
        self._reader = Reader(ApiServer(script.url), progress, Waiter(self.clock))
        self.found: list[str] = []
        self._thread = Thread(target=self._read)

    def _read(self) -> None:
        self.found = self._reader.read(NODES, "nodes", lambda one: str(one["metadata"]["name"]))

    def start(self) -> None:
        self._thread.start()

    def join(self) -> list[str]:
        self._thread.join()
        return self.found


def read(script: Script) -> list[str]:
    reader = Reader(ApiServer(script.url), Progress(io.StringIO()))
    return reader.read(NODES, "nodes", lambda one: str(one["metadata"]["name"]))


def test_a_list_comes_in_pages(script: Script) -> None:
    script.answers += [page([node("a"), node("b")], "t", 1), page([node("c")])]
    assert ["a", "b", "c"] == read(script)
    assert [{"limit": "500"}, {"limit": "500", "continue": "t"}] == [
        asked.query for asked in script.asked
    ]


def test_a_list_that_is_forgotten_half_way_is_started_again_and_nothing_counts_twice(
    script: Script,
) -> None:
    gone = Answer(410, "too old")
    script.answers += [page([node("a")], "t", 1), gone, page([node("a")], "t"), page([node("b")])]
    assert ["a", "b"] == read(script)
    script.otherwise = lambda _: gone
    with pytest.raises(GoneError):
        read(script)


def test_a_busy_server_is_given_the_time_that_it_asks_for(script: Script) -> None:
    script.answers += [BUSY, Answer(503), page([node("a")])]
    reading = Reading(script)
    reading.start()
    assert 20 == reading.clock.skip_wait()
    assert 0.5 <= reading.clock.skip_wait() <= 2
    assert ["a"] == reading.join()


def test_a_server_that_stays_busy_is_left_alone(script: Script) -> None:
    script.otherwise = lambda _: Answer(503, "busy")
    clock, raised = HeldClock(), list[UnavailableError]()
    reader = Reader(ApiServer(script.url), Progress(io.StringIO(), clock), Waiter(clock))

    def attempt() -> None:
        try:
            reader.read(NODES, "nodes", str)
        except UnavailableError as error:
            raised.append(error)

    thread = Thread(target=attempt)
    thread.start()
    for _ in range(3):
        clock.skip_wait()
    thread.join()
    assert (4, 503) == (len(script.asked), raised[0].status)


def test_a_connection_that_breaks_amid_a_list_is_made_again(script: Script) -> None:
    broken = Answer(headers={"Content-Length": "100"}, parts=[b"{"])
    script.answers += [page([node("a")], "t"), broken, page([node("b")])]
    reading = Reading(script)
    reading.start()
    reading.clock.skip_wait()
    assert ["a", "b"] == reading.join()


def test_a_connection_that_breaks_at_once_is_not(script: Script) -> None:
    script.answers.append(Answer(headers={"Content-Length": "100"}, parts=[b"{"]))
    with pytest.raises(UnavailableError):
        read(script)
    assert 1 == len(script.asked)


def test_a_terminal_shows_how_far_it_is_after_a_second() -> None:
    out, clock = Terminal(), HeldClock()
    progress = Progress(out, clock)
    progress.show("nodes", 500, 5000)
    progress.end()
    assert not out.getvalue()
    clock.advance(1)
    progress.show("nodes", 1000, 5000)
    progress.show("pods", 7, None)
    progress.end()
    progress.end()
    clear = "\r\x1b[K"
    assert f"{clear}reading nodes: 1000 of 5000{clear}reading pods: 7{clear}" == out.getvalue()


def test_elsewhere_there_is_a_line_each_ten_seconds() -> None:
    out, clock = io.StringIO(), HeldClock()
    progress = Progress(out, clock)
    for count in range(0, 2500, 100):
        progress.show("nodes", count, None)
        clock.advance(1)
    progress.end()
    said = ["deviceplugin fleet: reading nodes: 1000", "deviceplugin fleet: reading nodes: 2000"]
    assert said == out.getvalue().splitlines()
