"""Changing the protocol while a process runs, without a kubelet and without DRA itself."""

import logging
import math
import threading

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._app.dra import Dra
from deviceplugin._app.protocol_switch import ProtocolSwitch
from deviceplugin._attribution.ownership import Claim, Mode, Ownership
from deviceplugin._attribution.podresources import Holdings
from deviceplugin._attribution.poll_schedule import Key
from deviceplugin._inventory.published import Catalogue, Resource
from deviceplugin._telemetry.metrics import Metrics
from deviceplugin.errors import ConfigError, KubeletUnavailableError
from held_clock import HeldClock
from patience import PATIENCE, eventually
from scripted_plugin import ScriptedPlugin

NAME, OTHER = "x.io/dev", "x.io/other"
A, B = (NAME, "a"), (OTHER, "b")
CLAIM = Claim("default", "one", "uid-1")
CONFIRM = 2.0


class Side(Dra):
    """DRA that does what a test says."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.wrong = ""
        self.idle = self.leading = True

    @override
    def advertise(self, resource: Resource) -> None:
        self.did.append(f"advertise {resource.name}")

    @override
    def withdraw(self, resource: Resource) -> None:
        self.did.append(f"withdraw {resource.name}")

    @override
    def start(self) -> None:
        self.did.append("start")

    @override
    def stop(self) -> None:
        self.did.append("stop")

    @override
    def finish(self) -> None:
        self.did.append("finish")

    @override
    def problem(self) -> str:
        return self.wrong

    @override
    def trouble(self) -> str:
        return self.wrong

    @property
    @override
    def leads(self) -> bool:
        return self.leading

    @override
    def remark(self) -> str:
        return ""

    @override
    def poke(self) -> None:
        self.did.append("poke")

    @property
    @override
    def is_idle(self) -> bool:
        return self.idle


class Node:
    """A process with two resources; the kubelet has been sent ``sent`` and would give out these."""

    def __init__(self, mode: Mode = "device-plugin", *, target: Mode | None = None) -> None:
        self.clock = HeldClock()
        self.catalogue = Catalogue()
        self.ownership = Ownership(mode, resources=self.catalogue.resources, clock=self.clock)
        self.side = Side()
        self.sent = {NAME, OTHER}
        self.allocatable: set[Key] | KubeletUnavailableError = {A, B}
        self.discovered = True
        self.shared: set[str] = set()
        self.polls = 0
        self.made: list[Side | Exception] = [self.side]
        self.events = Metrics().events
        self.switch = ProtocolSwitch(
            target=target or mode,
            dra=self.side if mode == "dra" else None,
            make=self.make,
            ownership=self.ownership,
            catalogue=self.catalogue,
            up_to_date=lambda name: name in self.sent,
            shared=lambda: self.shared,
            allocatable=self.ask,
            discovered=lambda: self.discovered,
            poll_soon=self.poll,
            events=self.events,
            clock=self.clock,
        )
        for key in (A, B):
            resource = self.catalogue.claim(key[0], ScriptedPlugin())
            assert resource
            resource.publish([dp.Device(key[1])])
            self.catalogue.advertise(resource)
        self.observe()

    def make(self) -> Side:
        made = self.made[0] if len(self.made) == 1 else self.made.pop(0)
        if isinstance(made, Exception):
            raise made
        return made

    def ask(self) -> set[Key]:
        if isinstance(self.allocatable, Exception):
            raise self.allocatable
        return self.allocatable

    def poll(self) -> None:
        self.polls += 1

    def observe(self, times: int = 1) -> None:
        """The kubelet says that no pod holds anything."""
        for _ in range(times):
            self.clock.advance(CONFIRM)
            self.ownership.observe(Holdings(frozenset()), (1, 1, 1))

    def step(self) -> float:
        return self.switch._try()

    def mode(self) -> Mode:
        return self.ownership.mode

    def dra(self) -> Dra | None:
        return self.switch.dra

    def free(self) -> set[Key]:
        """What a claim can get."""
        return {
            (name, device_id)
            for name, resource in self.catalogue.resources().items()
            for device_id, state in self.ownership.offered(resource).items()
            if state.offered and not state.taint
        }


@pytest.fixture
def node() -> Node:
    return Node()


def test_without_a_switch_nothing_is_done_and_nothing_is_made(node: Node) -> None:
    assert math.inf == node.step()
    assert ([], "device-plugin", None) == (node.side.did, node.mode(), node.dra())


def test_dra_begins_to_offer_what_the_kubelet_has_acknowledged(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node.switch.to("dra")
    assert 1.0 == node.step()
    assert (["start", f"advertise {NAME}", f"advertise {OTHER}"], 1) == (node.side.did, node.polls)
    node.observe(2)
    assert set() == node.free()
    node.allocatable = {B}
    node.step()
    node.observe(2)
    assert {A} == node.free()
    node.allocatable = set()
    node.step()
    node.observe(2)
    assert math.inf == node.step()
    assert {A, B} == node.free()
    assert ["switching protocol", "protocol switched"] == [r.getMessage() for r in caplog.records]
    assert ["dra", "dra"] == [vars(record)["protocol"] for record in caplog.records]


def test_a_list_that_was_not_sent_is_not_acknowledged_until_the_resource_is_withdrawn(
    node: Node,
) -> None:
    node.sent, node.allocatable = {OTHER}, set()
    node.switch.to("dra")
    for sent in ({OTHER}, set[str]()):
        node.sent = sent
        node.step()
        node.observe(2)
        assert {B} == node.free()
    node.catalogue.withdraw(node.catalogue.resources()[NAME])
    node.step()
    node.observe(2)
    assert math.inf == node.step()


def test_a_kubelet_that_does_not_answer_is_asked_again_and_that_is_said_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.allocatable = KubeletUnavailableError("no such socket")
    node.switch.to("dra")
    assert [1.0, 1.0] == [node.step(), node.step()]
    assert "dra" == node.mode()
    (record,) = caplog.records
    assert ("protocol not switched yet", "dra", "no such socket") == (
        record.getMessage(),
        vars(record)["protocol"],
        vars(record)["error"],
    )


def test_the_device_plugin_goes_on_as_long_as_dra_could_not_offer_anything(node: Node) -> None:
    node.side.wrong = "waiting for the kubelet"
    node.switch.to("dra")
    assert (1.0, "device-plugin") == (node.step(), node.mode())
    node.switch.to("device-plugin")
    assert math.inf == node.step()
    assert ["finish", "stop"] == node.side.did[-2:]
    node.side.wrong = ""
    node.switch.to("dra")
    node.step()
    assert "dra" == node.mode()


def test_dra_that_cannot_be_started_is_tried_again_later(node: Node) -> None:
    node.made = [ConfigError("no token"), RuntimeError("a defect"), node.side]
    node.switch.to("dra")
    assert [10.0, 10.0, 1.0] == [node.step(), node.step(), node.step()]
    assert "dra" == node.mode()


def test_the_device_plugin_offers_what_is_in_no_slice_and_dra_ends_with_its_last_claim() -> None:
    node = Node("dra")
    node.ownership.prepare(CLAIM, [A])
    node.ownership.driver_runs(runs=True)
    node.switch.to("device-plugin")
    assert 1.0 == node.step()
    assert {"b": "still offered through DRA"} == node.ownership.withheld(OTHER, ["b"])
    node.ownership.published([])
    assert ({}, "held by claim default/one") == (
        node.ownership.withheld(OTHER, ["b"]),
        node.ownership.withheld(NAME, ["a"])["a"],
    )
    node.side.idle = False
    node.ownership.unprepare(CLAIM.uid)
    assert 1.0 == node.step()
    assert node.dra() is not None
    assert node.ownership.concerns_dra(NAME)  # no new registration as devices become free
    node.side.idle = True
    assert math.inf == node.step()
    assert not node.ownership.concerns_dra(NAME)
    assert (["finish", "stop"], None) == (node.side.did[-2:], node.dra())


def test_what_was_published_before_the_start_is_withdrawn_once_all_is_discovered() -> None:
    node = Node("dra", target="device-plugin")
    node.discovered = False
    assert (1.0, "dra") == (node.step(), node.mode())
    node.discovered = True
    node.step()
    assert "device-plugin" == node.mode()


@pytest.mark.parametrize(
    ("mode", "did"),
    [
        ("dra", ["start", f"advertise {NAME}", f"advertise {OTHER}", "stop"]),
        ("device-plugin", []),
    ],
)
def test_its_thread_starts_dra_and_stops_it_at_the_end(mode: Mode, did: list[str]) -> None:
    node = Node(mode)
    node.switch.stop()
    node.switch.run()
    assert did == node.side.did


def test_its_thread_follows_the_target_until_it_is_stopped(node: Node) -> None:
    thread = threading.Thread(target=node.switch.run)
    thread.start()
    node.switch.to("dra")
    eventually(lambda: "dra" == node.mode(), "the switch")
    node.switch.stop()
    thread.join(PATIENCE)
    assert "stop" == node.side.did[-1]


def test_after_a_start_dra_offers_nothing_that_an_older_process_offers_otherwise() -> None:
    node = Node("dra")
    node.shared, node.side.leading = {NAME, OTHER}, False
    assert (1.0, False, []) == (node.step(), node.switch.may_offer, node.switch.troubles())
    node.side.leading = True
    assert (1.0, False) == (node.step(), node.switch.may_offer)
    said = [f"DRA: another process offers {NAME}, {OTHER} by the device plugin"]
    assert (said, said, []) == (
        node.switch.troubles(),
        node.switch.remarks(),
        node.switch.problems(),
    )
    node.shared = set()
    assert (1.0, True, set(), []) == (
        node.step(),
        node.switch.may_offer,
        node.free(),
        node.switch.troubles(),
    )
    assert node.ownership.concerns_pods(NAME), "or nothing tells the kubelet that it has none"
    node.allocatable = set()
    node.step()
    node.observe(2)
    assert (math.inf, {A, B}) == (node.step(), node.free())
    assert not node.ownership.concerns_pods(NAME)


def test_a_switch_to_dra_waits_for_other_processes_of_the_device_plugin(node: Node) -> None:
    node.shared = {NAME}
    node.switch.to("dra")
    assert (1.0, "device-plugin") == (node.step(), node.mode())
    node.shared = set()
    assert (1.0, "dra", []) == (node.step(), node.mode(), node.switch.troubles())


def test_the_device_plugin_waits_until_this_process_can_withdraw_the_slices() -> None:
    node = Node("dra", target="device-plugin")
    node.side.leading = False
    assert (1.0, "dra") == (node.step(), node.mode())
    node.side.leading = True
    assert (1.0, "device-plugin") == (node.step(), node.mode())
