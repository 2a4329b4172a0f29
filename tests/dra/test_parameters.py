"""Claims that say something about their devices, from the claim to the plugin and to the record."""

from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._config.documents.faults import MOST
from deviceplugin._dra.naming import pool_name
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.hooks import reason_of
from drivers.driver_node import DRIVER, NODE, RESOURCE, DriverNode, Gophers, gopher, result


@dataclass(frozen=True)
class GopherParameters:
    greeting: str = "hello"
    """What they say."""
    volume: int = 1

    def __post_init__(self) -> None:
        if self.greeting == "crash":
            raise KeyError("greeting")


class Talkative(Gophers):
    """Gophers that take parameters."""

    parameters = GopherParameters

    def __init__(self) -> None:
        super().__init__()
        self.given: list[GopherParameters] = []

    @override
    def allocate_with(
        self, devices: Sequence[dp.Device], parameters: GopherParameters
    ) -> dp.Allocation:
        self.given.append(parameters)
        return self.allocate(devices) + dp.Allocation(envs={"GREETING": parameters.greeting})


class TalkativeNode(DriverNode):
    def __init__(self, path: Path, *names: str) -> None:
        super().__init__(path)
        self.talkative = Talkative()
        self.resources[RESOURCE] = Resource(RESOURCE, self.talkative)
        self.resources[RESOURCE].publish([gopher(name) for name in names])

    def greetings(self, claim: Claim) -> list[str]:
        """Return the greetings in the containers of ``claim``, by request."""
        document: Any = self.records.all()[claim.uid].document
        edits = [one["containerEdits"] for one in document["devices"]]
        return [text.partition("=")[2] for one in edits for text in one["env"] if "GREET" in text]


@pytest.fixture
def node(tmp_path: Path) -> TalkativeNode:
    return TalkativeNode(tmp_path, "gary", "gerd", "gina")


def say(*requests: str, source: str = "FromClaim", **parameters: object) -> dict[str, Any]:
    body = {"apiVersion": f"{DRIVER}/v1", "kind": "GopherParameters", **parameters}
    found = {"source": source, "opaque": {"driver": DRIVER, "parameters": body}}
    return {**found, **({"requests": list(requests)} if requests else {})}


def test_a_plugin_gets_the_parameters_of_the_claim_or_the_defaults(node: TalkativeNode) -> None:
    claim = node.allocate("one", result("gary"), config=[say(greeting="hi", volume=11)])
    node.prepare(claim)
    assert ["hi"] == node.greetings(claim)
    claim = node.allocate("two", result("gerd"))
    node.prepare(claim)
    assert [GopherParameters("hi", 11), GopherParameters()] == node.talkative.given
    (used,) = node.records.all()[claim.uid].parameters
    assert (None, {"greeting": "hello", "volume": 1}) == (used.given, used.used)


def test_each_request_has_its_own_parameters(node: TalkativeNode) -> None:
    claim = node.allocate(
        "one",
        result("gary", "a"),
        result("gerd", "b"),
        result("gina", "b"),
        config=[say("b", greeting="b"), say(source="FromClass", greeting="class")],
    )
    node.prepare(claim)
    assert ["class", "b"] == node.greetings(claim)


def test_a_configuration_replaces_the_weaker_one_and_is_not_merged_with_it(
    node: TalkativeNode,
) -> None:
    config = [say(source="FromClass", greeting="class", volume=9), say(greeting="mine")]
    node.prepare(node.allocate("one", result("gary"), config=config))
    assert [GopherParameters("mine", 1)] == node.talkative.given


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            say(greting="hi"),
            "in the claim itself: parameters.greting: unknown key: did you mean 'greeting'?",
        ),
        (
            say(source="FromClass", volume="loud"),
            "in its class: parameters.volume: 'loud' is not a whole number",
        ),
        (
            say(kind="ParrotParameters"),
            "in the claim itself: parameters.kind: 'ParrotParameters' is not GopherParameters",
        ),
        (
            say(apiVersion="v1"),
            f"in the claim itself: parameters.apiVersion: 'v1' is not {DRIVER}/v1",
        ),
        (
            {"opaque": {"driver": DRIVER, "parameters": [1]}},
            "in the claim itself: parameters: a list is not a mapping with keys",
        ),
        (say(greeting="crash"), "KeyError: 'greeting' (tests/dra/test_parameters.py:"),
    ],
)
def test_what_is_wrong_is_refused_with_claim_request_and_key(
    node: TalkativeNode, config: Any, expected: str
) -> None:
    claim = node.allocate("one", result("gary"), config=[config])
    text = node.refusal(claim)
    assert text.startswith("claim default/one: request one: "), text
    assert expected in text
    # Nothing is lost, and nothing is kept from others.
    assert ([], [], {}) == (node.recorded(), node.cdi_files(), node.ownership.claims())
    assert [] == node.talkative.given
    node.prepare(node.allocate("two", result("gary")))


def test_also_a_configuration_that_another_one_replaces_must_be_right(node: TalkativeNode) -> None:
    config = [say(source="FromClass", volume="loud"), say(volume=2)]
    claim = node.allocate("one", result("gary"), config=config)
    assert "in its class: parameters.volume: 'loud'" in node.refusal(claim)


def test_many_faults_are_a_short_message(node: TalkativeNode) -> None:
    unknown: Any = {f"key{number}": number for number in range(2_000)}
    claim = node.allocate("one", result("gary"), config=[say(**unknown)])
    text = node.refusal(claim)
    assert text.startswith("claim default/one: request one: in the claim itself: parameters.key0: ")
    assert MOST == text.count("unknown key")
    assert text.endswith(f"; {2_000 - MOST} more")
    assert len(reason_of(dp.AllocationError(text))) <= 400


@pytest.mark.parametrize("number", [10**18, 10**4000, -(10**18), 1e309, True, "1e3", [1]])
def test_a_number_is_a_whole_one_of_64_bits(node: TalkativeNode, number: object) -> None:
    claim = node.allocate("one", result("gary"), config=[say(volume=number)])
    text = node.refusal(claim)
    assert "is not a whole number" in text or "has more than 18 digits" in text


def test_a_plugin_that_takes_no_parameters_refuses_them(tmp_path: Path) -> None:
    node = DriverNode(tmp_path, gopher("gary"))
    claim = node.allocate("one", result("gary"), config=[say(greeting="hi")])
    assert (
        f"claim default/one: request one: it has parameters for driver {DRIVER}, from the claim "
        f"itself, but {RESOURCE} takes none: remove them"
    ) == node.refusal(claim)
    assert ([], {}) == (node.recorded(), node.ownership.claims())


def test_plugins_of_one_driver_have_different_parameters(node: TalkativeNode) -> None:
    other = Resource("example.com/marmot", Gophers())
    other.publish([gopher("mary")])
    node.resources[other.name] = other
    pool = pool_name(NODE, other.name)
    claim = node.allocate(
        "one", result("gary", "a"), result("mary", "b", pool), config=[say("a", greeting="a")]
    )
    node.prepare(claim)
    assert ["a"] == node.greetings(claim)
    both = node.allocate(
        "two", result("gerd", "a"), result("mary", "b", pool), config=[say(greeting="a")]
    )
    assert f"request b: it has parameters for driver {DRIVER}" in node.refusal(both)


# Once more.


def test_a_claim_that_was_allocated_again_with_other_parameters_is_asked_for_again(
    node: TalkativeNode,
) -> None:
    node.prepare(node.allocate("one", result("gary"), config=[say(greeting="hi")]))
    claim = node.allocate("one", result("gary"), config=[say(greeting="ho")])
    node.prepare(claim)
    assert ["ho"] == node.greetings(claim)


@pytest.mark.parametrize(
    ("asked", "fields", "expected"),
    [
        pytest.param(
            {"volume": 3},
            [("greeting", str, "good evening"), ("volume", int, 1), ("pitch", int, 440)],
            ("hello", 3, 440),
            id="with the defaults of then, and of now for a new one",
        ),
        pytest.param(
            {"greeting": "hi"},
            [("greeting", str, "hello")],
            ("hi",),
            id="and are read from the claim again if the plugin no longer has all",
        ),
    ],
)
def test_after_a_reboot_the_parameters_are_those_of_the_first_time(
    node: TalkativeNode,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
    fields: list[Any],
    expected: tuple[Any, ...],
) -> None:
    claim = node.allocate("one", result("gary"), config=[say(**asked)])
    node.prepare(claim)
    newer = make_dataclass("GopherParameters", fields, frozen=True)
    monkeypatch.setattr(Talkative, "parameters", newer)
    node.boot()
    node.prepare(claim)
    node.prepare(node.allocate("two", result("gerd")))
    assert [newer(*expected), newer()] == node.talkative.given[1:]


def test_a_process_killed_while_it_asked_asks_the_same_again(node: TalkativeNode) -> None:
    claim = node.allocate("one", result("gary"), config=[say(greeting="hi")])
    node.prepare(claim)
    record = node.records.all()[claim.uid]
    node.records.write(replace(record, state="preparing", document=None))
    node.restart()
    node.prepare(claim)
    assert [GopherParameters("hi")] * 2 == node.talkative.given
