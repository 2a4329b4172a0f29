"""Long lists from an API server that is busy, forgetful or slow."""

import io
import os
import termios
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from typing_extensions import override

from cluster.scripted_api import Answer, Script
from deviceplugin._platform.waiting import Waiter
from deviceplugin.apiserver import ApiServer, GoneError, UnavailableError
from deviceplugin_cli.fleet._progress import Progress
from deviceplugin_cli.fleet._question import Reader
from fleets.objects import NODES, node, page
from held_clock import HeldClock

BUSY = Answer(429, "busy", {"Retry-After": "20"})


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


def read(
    script: Script, waiter: Waiter | None = None, progress: Progress | None = None
) -> list[str]:
    reader = Reader(ApiServer(script.url), progress or Progress(io.StringIO()), waiter)
    return reader.read(NODES, "nodes", lambda one: str(one["metadata"]["name"]))


@contextmanager
def reading(script: Script) -> Iterator[tuple[HeldClock, Future[list[str]]]]:
    """Read in a thread of its own, by a clock that the test holds."""
    clock = HeldClock()
    with ThreadPoolExecutor(1) as pool:
        yield clock, pool.submit(read, script, Waiter(clock))


def test_a_list_comes_in_pages_and_soon_a_terminal_shows_how_far_it_is(
    script: Script,
) -> None:
    out, clock = Terminal(), HeldClock()
    progress = Progress(out, clock)
    progress.show("nodes", 500, 5000)
    progress.end()
    assert "" == out.getvalue()
    clock.advance(0.5)
    script.answers += [page([node("a"), node("b")], "t", 1), page([node("c")])]
    assert ["a", "b", "c"] == read(script, progress=progress)
    progress.end()
    progress.end()
    assert [{"limit": "500"}, {"limit": "500", "continue": "t"}] == [
        asked.query for asked in script.asked
    ]
    clear = "\r\x1b[K"
    assert f"{clear}reading nodes: 2 of 3{clear}reading nodes: 3{clear}" == out.getvalue()
    progress.found = lambda: "7 of 8 example.com/gpu healthy" + 300 * "x"
    progress.show("nodes", 500, None)
    shown = out.getvalue().rpartition(clear)[2]
    assert shown.startswith("reading nodes: 500: 7 of 8 example.com/gpu healthyxx")
    assert 79 == len(shown)


def test_a_line_that_is_replaced_fits_its_terminal_wherever_the_output_goes() -> None:
    master, slave = os.openpty()
    clock = HeldClock()
    with open(slave, "w") as out:  # noqa: PTH123
        progress = Progress(out, clock)
        progress.found = lambda: "x" * 300
        clock.advance(1)
        progress.show("nodes", 1, None)
        usual = os.read(master, 1000)
        termios.tcsetwinsize(slave, (24, 40))
        progress.show("nodes", 1, None)
        assert [79, 39] == [len(one) - len("\r\x1b[K") for one in (usual, os.read(master, 1000))]
    os.close(master)


def test_a_list_that_is_forgotten_half_way_is_started_again_and_nothing_counts_twice(
    script: Script,
) -> None:
    gone = Answer(410, "too old")
    script.answers += [page([node("a")], "t", 1), gone, page([node("a")], "t"), page([node("b")])]
    assert ["a", "b"] == read(script)
    script.otherwise = lambda _: gone
    with pytest.raises(GoneError):
        read(script)


def test_a_busy_server_is_given_the_time_that_it_asks_for_and_left_alone_if_it_stays_so(
    script: Script,
) -> None:
    script.answers += [BUSY, Answer(503), page([node("a")])]
    with reading(script) as (clock, found):
        assert 20 == clock.skip_wait()
        assert 0.5 <= clock.skip_wait() <= 2
        assert ["a"] == found.result()
    script.asked.clear()
    script.otherwise = lambda _: Answer(503, "busy")
    with reading(script) as (clock, found):
        for _ in range(3):
            clock.skip_wait()
        with pytest.raises(UnavailableError) as raised:
            found.result()
    assert (4, 503) == (len(script.asked), raised.value.status)


def test_a_connection_that_breaks_amid_a_list_is_made_again_and_one_that_breaks_at_once_is_not(
    script: Script,
) -> None:
    broken = Answer(headers={"Content-Length": "100"}, parts=[b"{"])
    script.answers += [page([node("a")], "t"), broken, page([node("b")]), broken]
    with reading(script) as (clock, found):
        clock.skip_wait()
        assert ["a", "b"] == found.result()
    with pytest.raises(UnavailableError):
        read(script)
    assert 4 == len(script.asked)


def test_elsewhere_there_is_a_line_each_ten_seconds() -> None:
    out, clock = io.StringIO(), HeldClock()
    progress = Progress(out, clock)
    for count in range(0, 2500, 100):
        progress.show("nodes", count, None)
        clock.advance(1)
    progress.end()
    said = ["deviceplugin fleet: reading nodes: 1000", "deviceplugin fleet: reading nodes: 2000"]
    assert said == out.getvalue().splitlines()
