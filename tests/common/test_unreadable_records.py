"""Claims whose records cannot be read: what the kubelet names for them is given to nobody."""

import logging
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin._attribution.claim_holders import ClaimedPlace, UnreadableRecords
from deviceplugin._attribution.ownership import Claim, Ownership
from deviceplugin._attribution.podresources import ClaimedDevice, Holdings
from deviceplugin._inventory.published import Resource
from scripted_plugin import ScriptedPlugin

DRIVER, RESOURCE = "gopher.example.com", "example.com/gopher"
ONE, TWO = Claim("default", "one", "uid-1"), Claim("default", "two", "uid-2")
GARY, GINA = (RESOURCE, "gary"), (RESOURCE, "gina")


class Node:
    """Ownership with a claim's record that cannot be read, as long as ``files`` has one."""

    def __init__(self) -> None:
        self.files = [Path("uid-1.json.bad")]
        self.recorded: set[ClaimedPlace] = set()
        self.broken = False
        self.pods = frozenset[tuple[str, str]]()
        self.resource = Resource(RESOURCE, ScriptedPlugin())
        self.resource.publish([dp.Device("gary"), dp.Device("gina")])
        self.ownership = Ownership("dra", resources=lambda: {RESOURCE: self.resource})
        self.unrecorded = UnreadableRecords(
            DRIVER,
            files=self.found,
            recorded=lambda: self.recorded,
            places_of=lambda key: [(DRIVER, "pool", one) for one in (key[1], key[1][:4])],
        )
        self.ownership.restore({}, unreadable=self.unrecorded)

    def found(self) -> list[Path]:
        if self.broken:
            raise PermissionError
        return self.files

    def kubelet_says(
        self, *devices: str, complete: bool = True, claim: Claim = ONE, again: bool = False
    ) -> None:
        claimed = frozenset(
            ClaimedDevice(driver, "pool", name, claim.name, claim.namespace, "pod", "main")
            for name in devices
            for driver in (DRIVER, "other.example.com")
        )
        if not again:
            self.pods = frozenset({("default", "pod")} if complete else ())
        found = Holdings(frozenset(), self.pods, complete=complete, claimed=claimed)
        self.ownership.observe(found, (0, 0, 0))

    def refusal(self, claim: Claim, key: tuple[str, str]) -> str:
        try:
            self.ownership.prepare(claim, [key])
        except dp.AllocationError as error:
            return str(error)
        self.ownership.unprepare(claim.uid)
        return ""

    def taints(self) -> dict[str, str]:
        return {id_: one.taint for id_, one in self.ownership.offered(self.resource).items()}


HELD = "held by claim default/one, whose record cannot be read"


def test_what_the_kubelet_names_is_given_to_nobody_but_its_claim() -> None:
    node = Node()
    node.kubelet_says("gary")
    assert f"gary is {HELD}" == node.refusal(TWO, GARY)
    assert ("", "") == (node.refusal(ONE, GARY), node.refusal(TWO, GINA))
    assert {"gary": "held", "gina": ""} == node.taints()
    with (
        pytest.raises(dp.AllocationError, match=HELD),
        node.ownership.allocating(RESOURCE, ["gary"]),
    ):
        raise NotImplementedError
    node.ownership.switch("device-plugin")
    node.ownership.published([])
    assert {"gary": HELD} == node.ownership.withheld(RESOURCE, ["gary", "gina"])


def test_nothing_is_given_before_the_kubelet_has_named_its_claims() -> None:
    node = Node()
    expected = "not known yet: which claims have it, because the record of one cannot be read"
    assert f"gary is {expected}" == node.refusal(TWO, GARY)
    node.kubelet_says("gary", complete=False)
    assert f"gina is {expected}" == node.refusal(TWO, GINA)
    assert f"gary is {HELD}" == node.refusal(TWO, GARY)
    assert node.ownership.wanted


def test_a_device_is_free_when_two_complete_lists_do_not_name_it() -> None:
    node = Node()
    node.kubelet_says("gary")
    node.kubelet_says(complete=False)
    node.kubelet_says(complete=False)
    node.kubelet_says()
    assert f"gary is {HELD}" == node.refusal(TWO, GARY)
    node.kubelet_says("gary")
    node.kubelet_says()
    node.kubelet_says(again=True)  # other pods were asked for, and this list is the same
    assert f"gary is {HELD}" == node.refusal(TWO, GARY)
    node.kubelet_says()
    assert "" == node.refusal(TWO, GARY)
    assert not node.unrecorded


def test_a_further_record_that_is_lost_is_waited_for_again() -> None:
    node = Node()
    node.kubelet_says()
    assert "" == node.refusal(TWO, GARY)
    node.files.append(Path("uid-2.json.bad"))
    node.ownership.restore({}, unreadable=node.unrecorded)
    assert "not known yet" in node.refusal(TWO, GARY)
    node.kubelet_says("gary")
    assert f"gary is {HELD}" == node.refusal(TWO, GARY)
    node.files.clear()
    node.kubelet_says("gary")
    assert "" == node.refusal(TWO, GARY), "all files are gone"
    node.files.append(Path("uid-3.json.bad"))
    node.unrecorded.refresh()
    assert "not known yet" in node.refusal(TWO, GINA)


def test_devices_of_claims_with_a_record_are_not_concerned() -> None:
    node = Node()
    node.recorded.add(((DRIVER, "pool", "gary"), TWO[:2]))
    node.kubelet_says("gary", claim=TWO)
    assert "" == node.refusal(TWO, GARY)


def test_all_shares_of_a_device_are_withheld_because_it_is_unknown_which_the_claim_has() -> None:
    node = Node()
    node.resource.publish([dp.Device(f"gary{n}", share_of="gary") for n in range(2)])
    node.recorded.add(((DRIVER, "pool", "gary"), TWO[:2]))
    node.kubelet_says("gary")
    for number in range(2):
        share = RESOURCE, f"gary{number}"
        assert f"gary{number} is {HELD}" == node.refusal(TWO, share)
        assert "" == node.refusal(ONE, share)
    assert {"gary0": "held", "gary1": "held"} == node.taints()


def test_a_directory_that_cannot_be_read_may_have_such_records() -> None:
    node = Node()
    node.files.clear()
    node.broken = True
    node.kubelet_says("gary")
    assert f"gary is {HELD}" == node.refusal(TWO, GARY)


def test_what_is_withheld_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    node, calls = Node(), []
    node.ownership.subscribe(lambda: calls.append(1))
    for _ in range(3):
        node.kubelet_says("gary")
    assert 1 == len(calls)
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "devices of a claim without a record withheld" == record.message
    assert f"gary of pool pool: {HELD}" == record.problem  # type: ignore[attr-defined]


def test_without_such_records_nothing_is_asked() -> None:
    ownership = Ownership()
    assert {} == ownership.withheld(RESOURCE, ["gary"])
    assert not ownership.wanted
