"""Events, as people read them and as the API server takes them."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cluster.event_api import invalid
from deviceplugin.tools.events._notice import Fact, Notice, as_event, read_facts
from deviceplugin.tools.events._watch import Watch

R = "example.com/camera"
NAMED = "c0 (ill), c1 (ill), c2 (ill), c3 (ill), c4 (ill)"
NOW = datetime(2026, 11, 21, 6, 0, 1, 500, tzinfo=UTC)


def ill(*names: str, reason: str = "too hot") -> tuple[Fact, ...]:
    return tuple(Fact(R, name, good=False, reason=reason, since="then") for name in names)


def well(*names: str) -> tuple[Fact, ...]:
    return tuple(Fact(R, name, good=True, since="then") for name in names)


MANY = ill(*(f"c{n}" for n in range(1000)), reason="ill")


@pytest.mark.parametrize(
    ("facts", "numbers", "reason", "message"),
    [
        (ill("c"), (1, 8), "DeviceUnhealthy", "c is unhealthy: too hot (1 of 8 unhealthy)"),
        (well("c"), (0, 8), "DeviceHealthy", "c is healthy again (0 of 8 unhealthy)"),
        (
            *(ill("c"), (2, 8, 29), "DeviceUnhealthy"),
            "c is unhealthy: too hot (2 of 8 unhealthy; 29 changes)",
        ),
        (
            *(well("c", "d"), (0, 8, 2), "DeviceHealthy"),
            "2 devices are healthy again: c, d (0 of 8 unhealthy)",
        ),
        (
            *(MANY, (1000, 1000, 1000), "DeviceUnhealthy"),
            f"1,000 devices are unhealthy: {NAMED} and 995 more (1,000 of 1,000 unhealthy)",
        ),
        (
            *((Fact(R, "", good=False, reason="waiting"),), (), "DevicesNotRegistered"),
            "not registered with the kubelet: waiting",
        ),
        (
            *((Fact(R, "", good=False, reason="c.yaml:2: x", about="entries"),), ()),
            *("InvalidEntry", "invalid entry skipped: c.yaml:2: x"),
        ),
        (
            *((Fact(R, "", good=True, about="entries"),), (), "EntriesValid"),
            "all entries are valid again",
        ),
        (
            *((Fact(R, "", good=True),), (), "DevicesRegistered"),
            "the kubelet is watching it again",
        ),
    ],
)
def test_a_message_says_what_and_why(
    facts: tuple[Fact, ...], numbers: tuple[int, ...], reason: str, message: str
) -> None:
    notice = Notice(facts, *numbers)
    assert (reason, f"{R}: {message}") == (notice.reason, notice.message)
    assert ("Normal" if notice.good else "Warning") == notice.kind


def test_an_event_is_one_that_kubernetes_takes_and_shows_at_the_node() -> None:
    event = as_event(Notice(facts=ill("cam0")), "worker-3", NOW)
    assert "" == invalid(event)
    node = {"apiVersion": "v1", "kind": "Node", "name": "worker-3", "uid": "worker-3"}
    assert node == event["involvedObject"]
    assert ["2026-11-21T06:00:01Z"] * 2 == [event["firstTimestamp"], event["lastTimestamp"]]


@pytest.mark.parametrize("text", ["ä" * 5000, "\ud800" * 300, "a\nb\t c" * 300, "\x00" * 2000])
def test_an_event_is_valid_whatever_plugins_say(text: str) -> None:
    facts = tuple(Fact("é" * 400, f"{text}{n}", good=False, reason=text) for n in range(9))
    event = as_event(Notice(facts=facts), "n" * 253, NOW)
    assert "" == invalid(event)
    assert not {"\n", "\t"} & set(event["message"])


def name(notice: Notice, node: str = "n") -> str:
    return str(as_event(notice, node, NOW)["metadata"]["name"])


def test_the_same_news_has_the_same_name_and_other_news_another() -> None:
    one = Notice(facts=ill("cam0"), unhealthy=1, devices=8)
    again = as_event(one._replace(changes=3), "n", datetime(2026, 11, 22, tzinfo=UTC))
    assert name(one) == again["metadata"]["name"]
    others = [
        name(one, "m"),
        name(one._replace(facts=ill("cam1"))),
        name(one._replace(facts=ill("cam0", "cam1"))),
        name(one._replace(facts=(ill("cam0")[0]._replace(since="later"),))),
        name(one._replace(facts=(ill("cam0")[0]._replace(good=True),))),
    ]
    assert 6 == len({name(one), *others})


def test_the_name_of_an_event_is_one_for_kubernetes_however_long_the_nodes_is() -> None:
    node = "a" * 229 + ".example.com"
    assert name(Notice(facts=well("cam0")), node).startswith("a" * 229 + ".")
    assert ".." not in name(Notice(facts=well("cam0")), node)


STALE = {"since": "then", "node": "/dev/bus/usb/001/005", "uid": "u1"}
NODES = ", ".join(f"c{n} (/dev/bus/usb/001/005)" for n in range(5))
MESSAGE = f"{R}: the pod has device nodes that are gone, restart it: {NODES} and 1 more"


@pytest.mark.parametrize(
    ("pods", "uids"), [(["a"], ["u1"]), (["a", "b"], [None, None]), ([""], []), ([], [])]
)
def test_a_pod_with_a_device_node_that_is_gone_has_an_event_of_its_own(
    tmp_path: Path, pods: Sequence[str], uids: Sequence[str | None]
) -> None:
    holders = [{"namespace": "jobs", "pod": pod, "container": "main"} for pod in pods] * 2
    device = {"healthy": False, "reason": "stale: so", "holders": holders, "stale": STALE}
    devices = [device | {"id": f"c{n}"} for n in range(6)]
    page = {"resources": [{"name": R, "problem": "", "devices": devices}]}
    file = tmp_path / "devices.json"
    file.write_text(json.dumps(page))
    watch = Watch(300, all_news=True)
    watch.observe(read_facts(str(file), 1), 0)
    notices = [one for one in news(watch) if one.facts[0].pod]
    found = [as_event(one, "n1", NOW) for one in notices]
    assert {invalid(event) for event in found} <= {""}
    assert [("DeviceNodeStale", MESSAGE, "jobs")] * len(uids) == [
        (event["reason"], event["message"], event["metadata"]["namespace"]) for event in found
    ]
    involved = [event["involvedObject"] for event in found]
    assert [*uids] == [one.get("uid") for one in involved]
    assert len(uids) == len({event["metadata"]["name"] for event in found})


def test_a_pod_that_has_its_node_back_or_has_ended_has_no_other_event() -> None:
    stale = Fact(R, "c", good=False, since="then", pod=("jobs", "a", "u1"))
    watch = Watch(300, all_news=True)
    watch.observe([*well("c"), stale], 0)
    assert ["DeviceNodeStale"] == [one.reason for one in news(watch)]
    watch.observe(well("c"), 400)
    assert [] == news(watch)


def news(watch: Watch) -> list[Notice]:
    """Return all news, which have been reported then."""
    found = []
    while notice := watch.news(0):
        found.append(notice)
        watch.reported(notice, 0)
    return found
