"""How devices that can be given out in parts are counted and shown."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import deviceplugin as dp
from deviceplugin._inventory.divided import (
    Piece,
    Profile,
    divide,
    listed,
    of_devices,
    profile_of,
    total,
)
from deviceplugin.checks import Node
from deviceplugin.tools._node_devices import profile_in_slice
from deviceplugin.tools.devices import _cli as devices_command
from deviceplugin.tools.doctor.checks import _plugin
from deviceplugin.tools.events._notice import read_facts
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.fixture import Node as Running
from drivers.cakes import RESOURCE, Cakes, Kitchen
from patience import PATIENCE, eventually
from scripted_plugin import ScriptedPlugin

CAKE = {"quarters": 4}
HALF, QUARTER, RED, BLUE = ({"quarters": 2}, {"quarters": 1}, ["red"], ["blue", "green"])


def pieces(*given: tuple[str, Mapping[str, int], Mapping[str, Any]]) -> list[Piece]:
    return [
        Piece(f"{profile}@{number}", profile, consumes, **more)
        for number, (profile, consumes, more) in enumerate(given)
    ]


WHOLE: Any = ("whole", CAKE, {})
HALVES: Any = [("half", HALF, {})] * 2
QUARTERS: Any = [("quarter", QUARTER, {})] * 4
HELD = {"held": True}


@pytest.mark.parametrize(
    ("given", "expected", "blocked"),
    [
        (
            [WHOLE, *HALVES, *QUARTERS],
            "whole: 0 held, 1 possible; half: 0 made, 2 possible; quarter: 0 made, 4 possible",
            0,
        ),
        (
            [WHOLE, *HALVES, ("quarter", QUARTER, HELD), *QUARTERS],
            "whole: 0 held, 0 possible; half: 0 made, 1 possible; quarter: 1 made, 3 possible",
            1,
        ),
        (
            [("whole", CAKE, HELD), *HALVES],
            "whole: 1 held, 0 possible; half: 0 made, 0 possible",
            2,
        ),
        (
            [("half", HALF, {"usable": False}), *HALVES[:1], ("strange", {"forks": 1}, {})],
            "half: 0 made, 1 possible; strange: 0 made, 0 possible",
            2,
        ),
        (
            [
                ("half", HALF, {**HELD, "groups": RED}),
                ("half", HALF, {"groups": RED}),
                ("quarter", QUARTER, {"groups": BLUE}),
                ("quarter", QUARTER, {}),
            ],
            "half: 1 made, 1 possible; quarter: 0 made, 0 possible",
            2,
        ),
        # More is held than there is, such as by somebody else.
        ([("whole", CAKE, HELD), *[("half", HALF, HELD)] * 2, *QUARTERS],
         "whole: 1 held, 0 possible; half: 2 made, 0 possible; quarter: 0 made, 0 possible", 4),
    ],
)  # fmt: skip
def test_what_is_made_and_possible_is_counted_by_profile(
    given: Sequence[Any], expected: str, blocked: int
) -> None:
    found = divide(CAKE, pieces(*given))
    assert expected == listed(found.profiles)
    assert blocked == len(found.blocked)


def test_numbers_of_several_pieces_of_hardware_are_added() -> None:
    one, other = divide(CAKE, pieces(*HALVES)), {"half": Profile(1, 0, 1, 0), "x": Profile(2)}
    assert {"half": Profile(1, 2, 1, 2), "x": Profile(2)} == total([one, other])


def test_what_has_vanished_does_not_say_how_much_there_is() -> None:
    gone, there = dp.Counters("a", {"quarters": 4}), dp.Counters("a", {"quarters": 1})
    unhealthy = dp.Health.unhealthy("gone")
    devices = [
        dp.Device("plain"),
        dp.Device("old", health=unhealthy, part=dp.Part(gone, QUARTER)),
        *(dp.Device(f"new{n}", part=dp.Part(there, QUARTER)) for n in range(2)),
        dp.Device("older", health=unhealthy, part=dp.Part(gone, QUARTER)),
    ]
    (found,) = of_devices(devices, (), {}).values()
    assert (1, 1) == (found.left["quarters"], found.profiles["part"].possible)


def test_a_profile_is_what_drivers_call_it() -> None:
    assert ("1g", "cpx", "part") == (
        profile_of({"profile": "1g", "partitionProfile": "cpx"}),
        profile_of({"profile": "", "partitionProfile": "cpx"}),
        profile_of({}),
    )
    assert "whole" == profile_of({"profile": "1g"}, on_demand=False)
    ours = {"gpu.example.com/profile": {"string": "1g"}, "partitionProfile": {"int": 1}}
    assert "part" == profile_in_slice({"resource": {"string": "example.com/cake/part"}})
    assert ("1g", "whole") == (profile_in_slice(ours), profile_in_slice({"profile": {"int": 1}}))


class Labelled(Cakes):
    """Says of its parts which profile they have."""

    def device(self, name: str, part: dp.Part) -> dp.Device:
        profile = name.partition("/")[2].partition("@")[0]
        return replace(super().device(name, part), attributes={"profile": profile or "none"})


class Shown:
    """A plugin of an apple cake, of which parts are made, and of a plum cake, in every tool."""

    def __init__(self, kubelet: Kubelet, running: Running) -> None:
        self.kubelet = kubelet
        self.url = f"http://127.0.0.1:{running.host.http_port}"
        self._node = running

    def get(self, path: str) -> str:
        with urlopen(f"{self.url}{path}", timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def devices(self, capsys: pytest.CaptureFixture[str], *words: str) -> str:
        socket = f"--pod-resources-socket={self.kubelet.simulated.pod_resources_socket}"
        assert 0 == devices_command.main([socket, f"--plugin={self.url}", *words])
        return capsys.readouterr().out

    def node(self) -> Node:
        settings = replace(self.kubelet.settings(), http_address=self.url.removeprefix("http://"))
        return Node(root=Path("/"), settings=settings, timeout=PATIENCE)


@pytest.fixture
def shown(kubelet: Kubelet) -> Iterator[Shown]:
    plugin = Labelled(Kitchen("apple", "plum"))
    with kubelet.running(plugin, http_address="127.0.0.1:0") as node:
        node.wait_for(RESOURCE, {"apple", "plum"})
        eventually(lambda: node.host.http_port, "the port")
        plugin.made = {"apple/half@2": "cut-1", "apple/quarter@0": ""}
        yield Shown(kubelet, node)


APPLE = "whole: 0 held, 0 possible; half: 1 made, 0 possible; quarter: 1 made, 1 possible"
PLUM = "whole: 0 held, 1 possible; half: 0 made, 2 possible; quarter: 0 made, 4 possible"


def test_the_page_has_what_is_made_and_counts_what_is_possible(shown: Shown) -> None:
    text = shown.get("/")
    assert f"apple: {APPLE}<br>plum: {PLUM}" in text
    there = {"apple", "plum", "apple/half@2", "apple/quarter@0"}
    assert there == {*re.findall(r'<th scope="row">([^<]+)', text)}
    assert "4 devices · 4 healthy" in text
    assert "0 held · 3 free" in text


def test_the_json_has_all_parts_with_their_numbers(shown: Shown) -> None:
    (resource,) = json.loads(shown.get("/devices"))["resources"]
    apple = resource["parts"]["apple"]
    assert {"quarters": 1, "quarter-0": 0, "quarter-1": 1, "quarter-2": 0, "quarter-3": 0} == (
        apple["left"]
    )
    assert {"made": 1, "free": 0, "blocked": 1, "possible": 0} == apple["profiles"]["half"]
    made = {one["id"]: one["made"] for one in resource["devices"] if "made" in one}
    assert {"apple/half@2": "cut-1", "apple/quarter@0": ""} == made
    assert 14 == len(resource["devices"])


def test_the_command_lists_what_is_there_and_counts_the_rest(
    shown: Shown, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shown.devices(capsys)
    rows = [line.split()[1:3] for line in out.partition("\n\n")[0].splitlines()[1:]]
    assert [
        ["apple", "blocked"],
        ["apple/half@2", "made"],
        ["apple/quarter@0", "made"],
        ["plum", "free"],
    ] == rows
    assert f"{RESOURCE}: 1 blocked, 1 free, 2 made\napple: {APPLE}\nplum: {PLUM}\n" in out
    found = json.loads(shown.devices(capsys, "--output=json"))
    assert [14, 2] == [len(found["devices"]), len(found["parts"])]
    assert 3 == found["parts"][1]["profiles"]["quarter"]["free"] - 1
    (half,) = [one for one in found["devices"] if one["id"] == "apple/half@0"]
    assert (True, "spare") == (half["blocked"], half["part"])


def test_metrics_count_parts_by_profile_and_do_not_take_them_for_devices(shown: Shown) -> None:
    text = shown.get("/metrics")
    for line in (
        'parts{profile="quarter",resource="example.com/cake",state="free"} 5.0',
        'parts{profile="quarter",resource="example.com/cake",state="made"} 1.0',
        'parts{profile="half",resource="example.com/cake",state="blocked"} 1.0',
        'parts_possible{profile="half",resource="example.com/cake"} 2.0',
        'devices_allocatable{resource="example.com/cake"} 2.0',
        'devices_free{resource="example.com/cake"} 1.0',
    ):
        assert f"deviceplugin_{line}\n" in text


def test_the_doctor_says_what_is_possible_and_misses_no_part_at_the_kubelet(shown: Shown) -> None:
    found = [(one.looked_at, one.found) for one in _plugin.parts(shown.node())]
    assert [(f"{RESOURCE} apple", APPLE), (f"{RESOURCE} plum", PLUM)] == found
    (finding,) = _plugin.registrations(shown.node())
    assert "ok" == finding.verdict.value


def test_nothing_is_reported_of_parts_that_nobody_has(shown: Shown) -> None:
    facts = {fact.device for fact in read_facts(shown.url, PATIENCE)}
    assert {"", "apple", "plum", "apple/half@2", "apple/quarter@0"} == facts


def test_a_node_without_parts_says_nothing_of_any(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    with kubelet.running(ScriptedPlugin("a"), http_address="127.0.0.1:0") as node:
        eventually(lambda: node.host.http_port, "the port")
        shown = Shown(kubelet, node)
        for path in ("/", "/devices", "/metrics"):
            assert "possible" not in shown.get(path).replace("parts_possible ", "")
        assert "parts" not in shown.devices(capsys, "--output=json")
        assert ["no device has parts"] == [one.found for one in _plugin.parts(shown.node())]
    (finding,) = _plugin.parts(shown.node())
    assert "no plugin answers here" == finding.found
