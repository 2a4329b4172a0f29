"""How many Events there are, and when they are tried again; with a clock of the test's own."""

import itertools
import logging
import threading

import pytest

from deviceplugin.apiserver import InvalidError, UnavailableError
from deviceplugin.tools.events import _watch
from deviceplugin.tools.events._notice import Fact, Notice
from deviceplugin.tools.events._watch import Sender, Watch
from held_clock import HeldClock, are_within
from patience import PATIENCE, eventually

R = "example.com/camera"


class Node:
    """A watch and a sender, an API that fails as it is told, and time."""

    def __init__(self) -> None:
        self.clock = HeldClock()
        self.error: Exception | None = None
        self.tried: list[float] = []
        self.created: list[Notice] = []
        self.watch = Watch(300)
        self.sender = Sender(self.watch, self.post, self.clock)

    @property
    def now(self) -> float:
        return self.clock.now()

    def post(self, notice: Notice) -> None:
        self.tried.append(self.now)
        if self.error is not None:
            raise self.error
        self.created.append(notice)

    def see(self, *facts: Fact) -> None:
        """Let the plugin say ``facts``, and the sender do what it does until it waits."""
        self.watch.observe(facts, self.now)
        while self.sender.step() == 0:
            assert len(self.tried) < 10000

    def run(self, seconds: int, facts: "list[Fact]") -> None:
        """Look every 10 s."""
        end = self.now + seconds
        while self.now < end:
            self.clock.advance(10)
            self.see(*facts)


@pytest.fixture
def node() -> Node:
    return Node()


def cameras(number: int, *ill: int) -> list[Fact]:
    return [Fact(R, f"cam{n}", n not in ill, "ill" if n in ill else "", "") for n in range(number)]


def test_many_devices_that_fail_one_by_one_are_few_events_and_without_news_there_is_none(
    node: Node,
) -> None:
    node.run(3600, cameras(200))
    assert [] == node.tried
    assert 3600 == node.sender.step()
    began = node.now
    for number in range(1, 201):
        node.run(10, cameras(200, *range(number)))
    node.run(60, cameras(200, *range(200)))
    assert 200 == sum(len(notice.facts) for notice in node.created), "all are told"
    assert len(node.created) <= _watch.BURST + (node.now - began) / _watch.REFILL


def test_what_flaps_for_an_hour_stays_below_the_limit(node: Node) -> None:
    node.see(*cameras(8))
    for step in range(360):
        node.run(10, cameras(8, *(n for n in range(8) if (step + n) % (n + 2) == 0)))
    assert 24 < len(node.created) <= _watch.BURST + 60
    for device, good in itertools.product((f"cam{n}" for n in range(8)), (True, False)):
        told = [n for n in node.created if n.good is good and device in [f.device for f in n.facts]]
        assert len(told) <= 12


def test_many_resources_wait_for_their_turn(node: Node) -> None:
    facts = [Fact(f"example.com/r{n}", "a", good=True) for n in range(30)]
    node.see(*facts)
    ill = [fact._replace(good=False) for fact in facts]
    node.clock.advance(10)
    node.see(*ill)
    assert _watch.BURST == len(node.created)
    node.run(30 * 60, ill)
    assert 30 == len({notice.facts[0].resource for notice in node.created}) == len(node.created)


def test_a_cluster_that_is_away_is_asked_ever_less_and_then_told_what_is(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.see(*cameras(3))
    node.error = UnavailableError("connection refused")
    node.run(3600, cameras(3, 0, 1))
    waits = [later - now for now, later in itertools.pairwise(node.tried)]
    assert 12 < len(node.tried) < 40
    assert waits[-1] >= _watch.LAST_WAIT / 2
    node.run(10, cameras(3, 1))
    node.error = None
    with caplog.at_level(logging.INFO):
        node.run(600, cameras(3, 1))
    assert [["cam1"]] == [[fact.device for fact in notice.facts] for notice in node.created]
    events = [record.getMessage() for record in caplog.records]
    assert 1 == events.count("event creation failed, retrying")
    assert 1 == events.count("event creation recovered")


def test_what_the_cluster_asks_for_is_waited(node: Node) -> None:
    node.error = UnavailableError("too many", after=120)
    node.see(*cameras(1, 0))
    node.run(110, cameras(1, 0))
    assert [0.0] == node.tried
    node.error = None
    node.run(10, cameras(1, 0))
    assert [0.0, 120.0] == node.tried
    assert 1 == len(node.created)


def test_nodes_that_fail_together_do_not_come_back_together() -> None:
    waits = set()
    for _ in range(20):
        node = Node()
        node.error = UnavailableError("connection refused")
        node.watch.observe(cameras(1, 0), 0)
        waits.add(node.sender.step())
    assert len(waits) > 10
    assert all(0.5 <= wait <= 1 for wait in waits)


def test_an_event_that_is_refused_is_not_in_the_way_of_others(node: Node) -> None:
    node.error = InvalidError("422")
    node.see(*cameras(1, 0))
    assert (1, 1) == (len(node.tried), node.sender.refused)
    node.error = None
    node.run(600, [*cameras(1, 0), Fact("example.com/other", "a", good=False)])
    assert ["example.com/other"] == [notice.facts[0].resource for notice in node.created]


def test_its_thread_waits_as_long_as_there_is_nothing_to_do_or_until_there_is_news(
    node: Node,
) -> None:
    node.error = UnavailableError("connection refused")
    node.watch.observe(cameras(1, 0), 0)
    thread = threading.Thread(target=node.sender.run)
    thread.start()
    try:
        waits = [node.clock.skip_wait() for _ in range(3)]
        assert [True] * 3 == are_within(waits, [1, 2, 4])
        node.error = None
        node.clock.skip_wait()
        eventually(lambda: [1] == [len(notice.facts) for notice in node.created], "the first")
        node.watch.observe(cameras(2, 0, 1), node.now)
        node.sender.wake()
        eventually(lambda: 2 == len(node.created), "the second")
    finally:
        node.sender.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()
