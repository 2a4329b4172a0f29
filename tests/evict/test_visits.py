"""Visiting the plugins of many nodes: when, how many at a time, and what a slow one costs."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from typing_extensions import override

from deviceplugin.tools._plugin_pods import FORGOTTEN, Plugin, Visits
from held_clock import HeldClock
from patience import eventually

ONE = {"n1": Plugin("n1", "http://198.51.100.1:9494", "True a")}


class AtOnce(ThreadPoolExecutor):
    """Runs everything before it returns."""

    @override
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except ZeroDivisionError as error:
            future.set_exception(error)
        return future


class Rounds:
    """Visits, and the times at which they were."""

    def __init__(self) -> None:
        self.clock = HeldClock()
        self.made: list[str] = []
        self.at: list[float] = []
        self.idle = 0.0
        self.takes = 0.0
        self.visits = Visits(self.make, AtOnce(), self.clock)

    def make(self, node: str) -> Any:
        self.made.append(node)
        return self.visit

    def visit(self, _plugin: Plugin) -> float:
        self.at.append(self.clock.now())
        self.clock.advance(self.takes)
        return self.idle

    def run(self, seconds: int, plugins: dict[str, Plugin]) -> list[float]:
        self.at.clear()
        start = self.clock.now()
        while self.clock.now() < start + seconds:
            self.visits.step(plugins)
            self.clock.advance(1)
        return [moment - start for moment in self.at]


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


def test_a_plugin_is_visited_each_time_unless_there_is_nothing_to_be_done(rounds: Rounds) -> None:
    assert [0, 1, 2] == rounds.run(3, ONE)
    rounds.idle = 10
    assert [0, 10] == rounds.run(12, ONE)


def test_a_pod_that_changes_is_visited_at_once(rounds: Rounds) -> None:
    rounds.idle = 300
    assert [0] == rounds.run(10, ONE)
    assert [0] == rounds.run(10, {"n1": Plugin("n1", "http://198.51.100.1:9494", "False a")})
    assert [0] == rounds.run(10, {"n1": Plugin("n1", "http://198.51.100.2:9494", "False a")})
    assert ["n1"] == rounds.made


def test_a_plugin_that_takes_long_is_visited_seldom(rounds: Rounds) -> None:
    rounds.takes = 2.5
    assert 3 == len(rounds.run(10, ONE))
    rounds.takes = 3
    assert [0, 48] == rounds.run(60, ONE)


def test_a_node_is_remembered_for_an_hour_without_a_plugin_and_no_longer(rounds: Rounds) -> None:
    rounds.run(1, ONE)
    for expected, away in ((["n1"], FORGOTTEN - 1), (["n1", "n1"], FORGOTTEN)):
        rounds.clock.advance(away)
        rounds.visits.step({})
        rounds.run(1, ONE)
        assert expected == rounds.made


def test_a_mistake_of_ours_ends_the_process(rounds: Rounds) -> None:
    rounds.visits = Visits(lambda _node: lambda _plugin: 1 / 0, AtOnce(), rounds.clock)
    rounds.visits.step(ONE)
    with pytest.raises(ZeroDivisionError):
        rounds.visits.step(ONE)


@pytest.fixture
def two_threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_plugin_that_hangs_is_not_visited_twice_at_once_and_holds_up_nobody(
    two_threads: ThreadPoolExecutor,
) -> None:
    nodes = {name: Plugin(name, f"http://{name}") for name in ("slow", "b", "c")}
    visited: Counter[str] = Counter()
    end = threading.Event()

    def visit(plugin: Plugin) -> float:
        visited[plugin.node] += 1
        if plugin.node == "slow":
            end.wait()
        return 0.0

    visits = Visits(lambda _node: visit, two_threads)

    def others() -> bool:
        visits.step(nodes)
        return min(visited["b"], visited["c"]) > 10

    try:
        eventually(others, "the others to be visited")
        assert 1 == visited["slow"]
    finally:
        end.set()
