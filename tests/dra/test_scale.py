"""What the drivers of many nodes ask of one API server: no more than there are changes.

``DRA_NODES=1000`` takes more nodes than a run of all tests has time for, and ``-rP`` prints the
figures of the page about the criteria of DRA.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from deviceplugin._dra.slices import publisher
from dra.many_nodes import Figures, Node, Nodes
from manifests.kustomize import overlay, render

COUNT: Final = int(os.environ.get("DRA_NODES", "60"))
HOUR: Final = 3600.0
pytestmark = pytest.mark.timeout(300 + 2 * COUNT)


def say(what: str, figures: Figures) -> None:
    """Print a line of the page."""
    print(f"{what}, {figures}")  # noqa: T201


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Nodes with two devices each, whose slices are published."""
    with Nodes(COUNT, "gary", "gerd") as running:
        figures = Figures(running)
        running.start()
        say("all started at once", figures)
        # A list for the watch, and one more after the registration, for kubelets delete slices.
        assert {"list": 2 * COUNT, "watch": COUNT, "create": COUNT} == figures.by_verb()
        assert 2 * COUNT == len(list(running.devices()))
        yield running


@pytest.mark.slow
def test_at_rest_a_node_has_one_watch_and_asks_for_it_some_eight_times_an_hour(
    nodes: Nodes,
) -> None:
    figures = Figures(nodes)
    for _ in range(60):
        for one in nodes.all:
            one.publisher.poke()
        nodes.clock.run(HOUR / 60, step=0.25)
    say("an hour at rest", figures)
    assert {"watch"} == figures.by_verb().keys()
    assert figures.most() <= 13
    assert 6 * COUNT <= len(figures.sent) <= 10 * COUNT
    assert {1} == {*nodes.open_watches.values()}


def test_after_a_restart_of_the_server_nodes_do_not_come_back_together(nodes: Nodes) -> None:
    figures = Figures(nodes)
    nodes.restart_server(0.0)
    nodes.clock.run(60, step=0.1)
    say("the server restarted at once", figures)
    found = figures.by_verb()
    # A watch whose version the new server does not know, a list, and the next watch.
    assert {"list": COUNT, "watch": 2 * COUNT} == found
    assert figures.peak() <= 1.2 * COUNT
    assert {1} == {*nodes.open_watches.values()}


def test_a_server_that_is_away_for_ten_minutes_is_one_line_in_the_log(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    figures = Figures(nodes)
    nodes.restart_server(600)
    troubled = [one for one in nodes.all if one.publisher.problem()]
    assert nodes.all == troubled
    attempts = figures.by_verb()
    say("ten minutes away, until then", figures)
    assert {"refused"} == attempts.keys()
    assert figures.most() <= 6 + 600 / 30

    back = Figures(nodes)
    nodes.clock.run(120, step=0.1)
    say("ten minutes away, after that", back)
    assert {"list": COUNT, "watch": 2 * COUNT} == back.by_verb()
    assert back.peak() <= 0.5 * COUNT
    assert [] == [one for one in nodes.all if one.publisher.problem()]
    ours = [one for one in caplog.records if one.name == publisher.log.name]  # not another test's
    lines = Counter(one.message for one in ours if one.levelno >= logging.WARNING)
    assert {"slices not published": COUNT} == lines


def test_a_rolling_upgrade_writes_nothing_and_what_is_deleted_everywhere_is_created_once(
    nodes: Nodes,
) -> None:
    figures = Figures(nodes)
    nodes.one_by_one(Node.restart, 600)
    nodes.clock.run(10)
    say("a rolling upgrade in ten minutes", figures)
    found = figures.by_verb()
    assert {"list", "watch"} == found.keys()
    assert 2 * COUNT == found["list"]
    # One for the new process, and at most three as ever.
    assert figures.most() <= 2 + 1 + 3

    figures = Figures(nodes)
    for one in nodes.cluster.list("ResourceSlice"):
        nodes.cluster.delete("ResourceSlice", one["metadata"]["name"])
    nodes.clock.run(10, step=0.1)
    say("all slices deleted", figures)
    assert COUNT == figures.by_verb()["create"]
    assert figures.by_verb().keys() <= {"create", "watch"}
    assert 2 * COUNT == len(list(nodes.devices()))


def test_a_change_on_each_node_is_a_request_of_each_and_a_busy_server_gets_them_spread(
    nodes: Nodes,
) -> None:
    def change(taint: str, seconds: float, what: str) -> Figures:
        figures = Figures(nodes)
        for one in nodes.all:
            one.change("gary", taint)
        nodes.clock.run(seconds, step=0.1)
        say(what, figures)
        return figures

    figures = change("held", 10, "a device failed on each")
    assert COUNT == figures.by_verb()["update"]
    assert figures.by_verb().keys() <= {"update", "watch"}

    nodes.cluster.faults.overload(COUNT, matches=lambda wanted: wanted.verb == "update")
    figures = change("unhealthy", 30, "a device failed on each, and all were refused once")
    writes = [one for one in figures.sent if one.verb == "update"]
    assert {429: COUNT, 200: COUNT} == Counter(one.code for one in writes)
    again = Counter(int(one.at) for one in writes if one.code == 200)
    assert max(again.values()) <= 0.8 * COUNT
    assert COUNT == sum("taints" in device for _, device in nodes.devices())


def test_a_driver_asks_for_all_that_the_role_of_the_component_allows(tmp_path: Path) -> None:
    (role,) = (o for o in render(overlay(tmp_path, "gopher", "dra")) if o["kind"] == "ClusterRole")
    (rule,) = (rule for rule in role["rules"] if rule["resources"] == ["resourceslices"])
    with Nodes(1, "gary") as nodes:
        figures = Figures(nodes)
        nodes.start()
        (one,) = nodes.all
        one.change("gary", "unhealthy")
        nodes.clock.run(5, step=0.1)
        one.publisher.offers = dict
        one.publisher.poke()
        nodes.clock.run(5, step=0.1)
        assert [] == list(nodes.devices())
    assert set(rule["verbs"]) == figures.by_verb().keys()
