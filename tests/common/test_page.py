"""The page, as a browser without any trust in it reads it."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html.parser import HTMLParser

from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.podresources import Hold
from deviceplugin._http.devices_report import Report
from deviceplugin._http.page import MAX_DEVICES, MAX_RESOURCES, policy, render
from deviceplugin._telemetry.events import MAX_EVENTS, Event, Events
from scripted_plugin import sick

NOW = 1_000_000_000.0
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
_VOID = {"meta", "link"}
_IMPLIED = {"th"}
"""Header cells are ended by the next one, or by the end of their row."""


class Reader(HTMLParser):
    """Collects elements and texts, and checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.texts: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in {"td", "th"}:
            self.cells.append("")
        if tag not in _VOID:
            self.open.append(tag)

    @override
    def handle_endtag(self, tag: str) -> None:
        while tag not in _IMPLIED and self.open[-1] in _IMPLIED:
            self.open.pop()
        assert tag == self.open.pop()

    @override
    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def report(
    *devices: dp.Device,
    name: str = "x.io/dev",
    problem: str = "",
    registered: bool = True,
    holders: Mapping[str, Sequence[Hold]] | None = None,
    since: float = NOW,
) -> Report:
    return Report(
        name=name,
        plugin="Plugin",
        registered=registered,
        problem=problem,
        devices={device.id: device for device in devices},
        since={device.id: since for device in devices},
        holders=holders,
    )


def page(*reports: Report, events: Iterable[Event] = (), problem: str = "") -> Reader:
    text = render(reports, events, name="node1", problem=problem, now=NOW).decode()
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert [] == reader.open
    return reader


def cells(reader: Reader) -> list[list[str]]:
    """The rows of the tables but for their heads."""
    table = [cell.strip() for cell in reader.cells]
    rows = [table[at : at + 5] for at in range(0, len(table), 5)]
    return [row for row in rows if row[0] not in {"Device", "When"}]


def hold(device: str, pod: str, container: str = "main") -> Hold:
    return Hold("x.io/dev", device, "default", pod, container)


def test_what_holders_use_is_in_units_for_people() -> None:
    used = {"memory_used_bytes": 1.5 * 2**30, "utilization_ratio": 0.254, "fans_spinning": 2}
    one = report(dp.Device("a"), holders={"a": [hold("a", "door"), hold("a", "gate")]})
    reader = page(one._replace(usage={hold("a", "door")[:5]: used}))
    (row,) = cells(reader)
    shown = "memory used 1.50 GiButilization 25%fans spinning 2"
    assert f"default/doormain{shown}default/gatemain" == row[3]


def test_what_dra_offers_is_not_missing() -> None:
    offered = report(dp.Device("a"), dp.Device("b"), registered=False, holders={})
    texts = page(offered._replace(by_dra={"a", "b"})).texts
    assert "offered by DRA" in texts
    assert "2 devices · 2 healthy · 2 offered by DRA · 0 held · 2 free" in "".join(texts)


def test_a_device_is_told_with_its_health_and_holder() -> None:
    devices = [
        dp.Device("a", topology=dp.Topology((0, 1)), attributes={"model": "T1", "slot": "3"}),
        sick("b", "too hot"),
    ]
    holders = {"a": [hold("a", "door"), hold("a", "gate", "side")]}
    reader = page(report(*devices, holders=holders, since=NOW - 90))
    assert [
        ["b", "▲ unhealthytoo hot", "90 s ago", "", ""],
        ["amodel T1 · slot 3", "● healthy", "90 s ago", "default/doormaindefault/gateside", "0, 1"],
    ] == cells(reader)
    assert "2 devices · 1 healthy · 1 unhealthy · 1 held · 0 free" in "".join(reader.texts)
    assert {"registered", "1 of 2 unhealthy · node1"} <= set(reader.texts)
    expected = {"datetime": "2001-09-09T01:45:10Z", "title": "2001-09-09 01:45:10 UTC"}
    assert [expected] * 2 == [attributes for tag, attributes in reader.tags if tag == "time"]


def test_a_claim_is_named_with_its_pod_and_also_without_and_many_holders_are_counted() -> None:
    holders = {
        "a": [hold("a", "door")._replace(claim="c")],
        "b": [hold("b", "", "")._replace(claim="c")],
        "c": [hold("c", f"pod{number}") for number in range(6)],
    }
    found = [row[3] for row in cells(page(report(*map(dp.Device, holders), holders=holders)))]
    assert ["default/doormain · claim c", "default/cclaim"] == found[:2]
    assert found[2].endswith("default/pod3mainand 2 more")


def test_a_degraded_device_is_told_between_the_others_and_counts_as_healthy() -> None:
    worn = dp.Device("b", health=dp.Health.degraded("worn out"))
    reader = page(report(dp.Device("a"), worn, sick("c", "too hot"), since=NOW - 90))
    assert ["▲ unhealthytoo hot", "◆ degradedworn out", "● healthy"] == [
        row[1] for row in cells(reader)
    ]
    assert "3 devices · 2 healthy · 1 unhealthy · 1 degraded" in "".join(reader.texts)


def test_what_is_not_known_is_said_to_be_so_and_why_a_resource_is_not_registered() -> None:
    reader = page(report(dp.Device("a"), registered=False))
    assert [["a", "● healthy", "0 s ago", "unknown", ""]] == cells(reader)
    assert "1 device · 1 healthy · holders unknown" in "".join(reader.texts)
    assert {"not registered: nothing to offer", "1 device · node1"} <= set(reader.texts)
    assert "Not ready" not in reader.texts
    reader = page(report(problem="waiting for the kubelet"), problem="x.io/dev: waiting")
    assert {"not registered: waiting for the kubelet", "Not ready"} <= set(reader.texts)
    assert "x.io/dev: waiting" in "".join(reader.texts)


def test_times_are_told_as_ages() -> None:
    ages = {
        -5: "0 s ago",
        119: "119 s ago",
        120: "2 min ago",
        7199: "119 min ago",
        7200: "2 h ago",
        172_800: "2 d ago",
    }
    for age, text in ages.items():
        assert text == cells(page(report(dp.Device("a"), since=NOW - age)))[0][2]


def test_events_are_told_the_latest_first() -> None:
    events = Events()
    events.add("registered", resource="x.io/dev")
    events.add("device is unhealthy", resource="x.io/dev", device="a", detail="too hot")
    reader = page(events=events.latest())
    assert [
        ["device is unhealthy", "x.io/dev", "a", "too hot"],
        ["registered", "x.io/dev", "", ""],
    ] == [row[1:] for row in cells(reader)]


def test_only_the_last_events_are_kept_and_not_all_of_a_long_text() -> None:
    events = Events()
    for number in range(MAX_EVENTS + 1):
        events.add(str(number), device="x" * 1000, detail="x" * 1000)
    latest = events.latest()
    assert [str(number) for number in range(MAX_EVENTS, 0, -1)] == [e.event for e in latest]
    assert {(300, 300)} == {(len(event.device), len(event.detail)) for event in latest}


def test_nothing_that_is_told_is_taken_for_html() -> None:
    device = dp.Device(EVIL, health=dp.Health.unhealthy(EVIL), attributes={EVIL: EVIL})
    bare = page(report(dp.Device("a"), holders={}), events=[Event(NOW, "e", "r", "d", "t")])
    holders = {EVIL: [Hold(EVIL, EVIL, EVIL, EVIL, EVIL)]}
    reports = [report(device, name=EVIL, problem=EVIL, holders=holders)]
    events = [Event(NOW, EVIL, EVIL, EVIL, EVIL)]
    evil = Reader()
    evil.feed(render(reports, events, name=EVIL, problem=EVIL, now=NOW).decode())
    assert ["script"] == [tag for tag, _ in evil.tags if tag in {"script", "img"}]
    assert {tag for tag, _ in evil.tags} <= {tag for tag, _ in bare.tags} | {"small", "b", "div"}
    assert {name for _, attributes in evil.tags for name in attributes} <= {
        name for _, attributes in bare.tags for name in attributes
    }
    assert EVIL in evil.cells[5]


def test_long_texts_are_cut_and_what_is_no_unicode_is_replaced() -> None:
    reader = page(report(sick("a", "\udc80" + "x" * 10_000)))
    assert f"▲ unhealthy?{'x' * 299}…" == cells(reader)[0][1]


def test_of_many_devices_the_unhealthy_are_shown_and_the_others_counted() -> None:
    many = [dp.Device(f"d{number}") for number in range(MAX_DEVICES)]
    reader = page(report(*many, name="x.io/a"), report(*many[:9], sick("bad"), name="x.io/b"))
    rows = cells(reader)
    assert (MAX_DEVICES, "bad") == (len(rows), rows[0][0])
    text = "".join(reader.texts)
    assert ["10 devices more, not shown: see devices."] == re.findall(r"\d+ devices? more.*", text)


def test_of_many_resources_those_with_problems_are_shown_and_the_others_counted() -> None:
    fine = [report(name=f"x.io/r{number}") for number in range(MAX_RESOURCES)]
    reader = page(*fine, report(sick("a"), name="x.io/sick"), report(name="x.io/x", problem="no"))
    titles = [text for text in reader.texts if text.startswith("x.io/")]
    assert (MAX_RESOURCES, ["x.io/sick", "x.io/x"]) == (len(titles), titles[:2])
    assert "2 resources more, not shown: see devices." in "".join(reader.texts)


def test_nothing_is_loaded_from_elsewhere_and_nothing_but_the_own_script_may_run() -> None:
    text = render([report(dp.Device("a"))], [], name="n", problem="", now=NOW).decode()
    assert [] == re.findall(r"(?:https?:)?//\w", text)
    rules = dict(rule.strip().split(" ", 1) for rule in policy().split(";"))
    assert "'none'" == rules["default-src"]
    for kind in ("script", "style"):
        body = re.search(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert body
        digest = base64.b64encode(sha256(body[1].encode()).digest()).decode()
        assert f"'sha256-{digest}'" == rules[f"{kind}-src"]
    assert " style=" not in text
    assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in text
