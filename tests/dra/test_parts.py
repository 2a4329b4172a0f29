"""Parts that are made for claims, on a node that everything can happen to."""

import functools
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import deviceplugin as dp
from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claims import locks
from deviceplugin._dra.claims.locks import HardwareCalls
from deviceplugin._dra.claims.record import Record
from deviceplugin._dra.serving.instances import FileLock
from deviceplugin._inventory.published import Resource
from deviceplugin._platform.clock import MONOTONIC
from drivers.cakes import RESOURCE, CakeNode, Cakes, piece
from drivers.driver_node import DriverNode, cdi_name, gopher, result
from full_disk import full_disk
from patience import PATIENCE, eventually


@pytest.fixture
def node(tmp_path: Path) -> CakeNode:
    return CakeNode(tmp_path)


def env(node: DriverNode, request: str = "one") -> dict[str, str]:
    """Return the variables of a request of the only prepared claim."""
    (name,) = node.cdi_files()
    devices = json.loads((node.cdi_dir / name).read_text())["devices"]
    (edits,) = (one["containerEdits"] for one in devices if one["name"].endswith(f"-{request}"))
    return dict(one.split("=", 1) for one in edits["env"])


HALF, OTHER = "cake/half@0", "cake/half@2"


def fails(text: str) -> Callable[[], object]:
    def fail() -> None:
        raise dp.AllocationError(text)

    return fail


# Made, given, removed.


def test_a_part_is_made_for_a_claim_and_removed_with_it(
    node: CakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    seen: list[object] = []
    node.cakes.faults["make"] = lambda: seen.append((node.written_parts(), dict(node.cakes.made)))
    claim = node.allocate("one", piece(HALF), result("gary", "two"))
    (part, gary) = node.prepare(claim)
    assert (HALF, "gary") == (part.id, gary.id)
    assert [({HALF: ""}, {HALF: ""})] == seen, "the intent comes before the act"
    assert ({HALF: "cut-1"}, {HALF: "cut-1"}) == (node.written_parts(), node.cakes.made)
    assert {"CAKE": HALF, "CUT": "cut-1"} == env(node)
    node.unprepare(claim)
    assert node.is_empty()
    assert [("make", HALF), ("unmake", HALF, "cut-1")] == node.kitchen.calls
    fields = {"claim": str(claim), "resource": RESOURCE, "device": HALF, "identity": "cut-1"}
    for event in ("part made", "part removed"):
        (logged,) = (one for one in caplog.records if one.message == event)
        assert fields.items() <= vars(logged).items()
    _, text = node.metrics.expose("")
    for line in (
        'deviceplugin_part_calls_total{code="OK",driver="gopher.example.com",method="make"} 1.0',
        'deviceplugin_part_calls_total{code="OK",driver="gopher.example.com",method="remove"} 1.0',
    ):
        assert line.encode() in text


def test_a_claim_without_parts_has_nothing_to_do_with_them(node: CakeNode) -> None:
    told: list[object] = []
    node.more = {"makers": SimpleNamespace(set=told.append, maker=node.maker)}
    node.restart()
    claim = node.allocate("one", result("gary"), piece("cake", "two"))
    node.prepare(claim)
    (record,) = node.claims_dir.glob("*.json")
    assert all("part" not in one for one in json.loads(record.read_text())["devices"])
    node.unprepare(claim)
    assert ([], []) == (told, node.kitchen.calls)
    assert b"deviceplugin_part_calls_total{" not in node.metrics.expose("")[1]


def test_a_claim_has_several_parts_and_each_its_own_identity(node: CakeNode) -> None:
    claim = node.allocate("one", piece(HALF), piece("cake/quarter@3", "two"))
    node.prepare(claim)
    assert {HALF: "cut-1", "cake/quarter@3": "cut-2"} == node.written_parts()
    other = node.allocate("two", piece(OTHER))
    assert "cake/half@2 is without room" in node.refusal(other)
    node.prepare(node.allocate("three", piece("cake/quarter@2")))
    node.unprepare(claim)
    assert {"cake/quarter@2": "cut-3"} == node.kitchen.cut


def test_claims_that_race_for_parts_never_get_more_than_there_is(node: CakeNode) -> None:
    wanted = [HALF, "cake/quarter@0", "cake/quarter@1", "cake", OTHER, HALF]
    claims = [node.allocate(f"n{n}", piece(device)) for n, device in enumerate(wanted)]

    def together(do: Callable[[Claim], object]) -> None:
        threads = [threading.Thread(target=do, args=[one]) for one in claims * 2]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    answers: list[object] = []
    together(lambda claim: answers.extend(node.prepare_all(claim).values()))
    assert "overlap" not in str(answers)
    assert node.kitchen.cut == node.written_parts()
    assert len(node.recorded()) == len(node.ownership.claims()) > 0
    together(node.unprepare_all)
    assert node.is_empty()


def test_a_claim_that_is_allocated_again_keeps_its_part_until_it_is_released(
    node: CakeNode,
) -> None:
    claim = node.allocate("one", piece("cake/quarter@0"))
    node.prepare(claim)
    node.allocate("one", piece(OTHER))
    node.prepare(claim)
    assert {"cake/quarter@0": "cut-1", OTHER: "cut-2"} == node.kitchen.cut == node.written_parts()
    assert "1 of 4 are free" in node.refusal(node.allocate("two", piece(HALF)))
    node.restart()
    node.unprepare(claim)
    assert node.is_empty()


def test_other_parameters_or_a_lost_answer_make_no_other_part(node: CakeNode) -> None:
    claim = node.allocate("one", piece(HALF))
    given = node.prepare(claim)
    assert given == node.prepare(claim)
    node.allocate("one", piece(HALF, "renamed"))
    (again,) = node.prepare(claim)
    assert ("renamed", (cdi_name(claim, "renamed"),)) == (again.request, again.cdi_names)
    assert {HALF: "cut-1"} == node.kitchen.cut == node.written_parts()


@pytest.mark.parametrize("is_made", [True, False])
def test_nothing_is_made_for_an_administrator(node: CakeNode, *, is_made: bool) -> None:
    if is_made:
        node.prepare(node.allocate("user", piece(HALF)))
    before = [*node.kitchen.calls]
    admin = node.allocate("admin", piece(HALF, adminAccess=True))
    if is_made:
        node.prepare(admin)
    else:
        assert f"{HALF} is not made: that is not done for an admin" == node.refusal(admin)
    node.unprepare(admin)
    assert before == node.kitchen.calls


# What a plugin does wrong.


class Strange(Cakes):
    """Returns what it is told from make_part."""

    answer: Callable[[dp.Device], Any] = staticmethod(lambda part: part)

    def make_part(self, part: dp.Device) -> dp.Device:
        return self.answer(super().make_part(part))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda _: None, "None is no Device"),
        (lambda part: replace(part, id="other"), f"other of {RESOURCE} instead of {HALF}"),
        (lambda part: replace(part, resource="x.io/y"), f"{HALF} of x.io/y instead of {HALF}"),
        (lambda part: replace(part, part=None), "its identity None must be a string"),
        (
            lambda part: replace(part, part=replace(part.part, identity="")),
            "its identity '' must be a string that is not empty",
        ),
        (
            lambda part: replace(part, nodes=[dp.DeviceNode("relative")]),
            f"device {HALF}: device node path 'relative' is not absolute",
        ),
    ],
)
def test_what_make_part_returns_is_checked_and_removed_if_it_is_wrong(
    node: CakeNode, answer: Callable[[dp.Device], Any], problem: str
) -> None:
    strange = Strange(node.kitchen)
    strange.answer = answer
    node.cakes = strange
    node.resources[RESOURCE] = Resource(RESOURCE, strange)
    node.discover()
    claim = node.allocate("one", piece(HALF))
    assert "make_part() returned what cannot be used: " in (said := node.refusal(claim))
    assert problem in said
    assert [("make", HALF), ("unmake", HALF, "")] == node.kitchen.calls
    assert node.is_empty()


def test_what_it_takes_of_counters_is_not_decided_by_make_part(node: CakeNode) -> None:
    strange = Strange(node.kitchen)

    def take_nothing(part: dp.Device) -> dp.Device:
        assert part.part is not None
        return replace(part, part=replace(part.part, consumes={"quarters": 0}))

    strange.answer = take_nothing
    node.cakes = strange
    node.resources[RESOURCE] = Resource(RESOURCE, strange)
    node.discover()
    node.prepare(node.allocate("one", piece(HALF)))
    assert "2 of 4 are free" in node.refusal(node.allocate("two", piece("cake")))


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("make", dp.AllocationError("busy")),
        ("make", ValueError("odd")),
        ("made", ValueError("odd")),
        ("made", dp.DevicePluginError("half-made")),
    ],
)
def test_a_part_that_cannot_be_made_is_removed_and_made_at_the_next_attempt(
    node: CakeNode, caplog: pytest.LogCaptureFixture, fault: str, error: Exception
) -> None:
    def fail() -> None:
        raise error

    node.cakes.faults[fault] = fail
    claim = node.allocate("one", piece(HALF))
    for _ in range(2):
        assert str(error) in node.refusal(claim)
        assert node.is_empty()
    (logged,) = (one for one in caplog.records if one.message == "part not made")
    assert (HALF, bool(logged.exc_info)) == (vars(logged)["device"], type(error) is ValueError)
    node.cakes.faults = {}
    node.prepare(claim)
    assert [*node.kitchen.cut.items()] == [*node.written_parts().items()]


def test_of_two_parts_the_first_is_removed_if_the_second_cannot_be_made(node: CakeNode) -> None:
    claim = node.allocate("one", piece(HALF), piece(OTHER, "two"))
    node.kitchen.strange = {OTHER: "x"}
    assert f"somebody else has cut {OTHER}" == node.refusal(claim)
    assert (node.is_empty(), {OTHER: "x"}) == (True, node.kitchen.strange)
    assert [("unmake", HALF, "cut-1")] == [one for one in node.kitchen.calls if one[0] == "unmake"]


def test_after_a_hook_that_refuses_the_part_is_removed_again(node: CakeNode) -> None:
    node.plugin.errors = {"allocate": dp.AllocationError("no")}
    claim = node.allocate("one", piece(HALF), result("gary", "two"))
    assert "no" == node.refusal(claim)
    assert node.is_empty()


def test_a_disk_that_is_full_by_then_leaves_no_part(node: CakeNode) -> None:
    claim = node.allocate("one", piece(HALF))
    with full_disk():
        assert "File too large" in node.refusal(claim)
    assert (node.is_empty(), []) == (True, node.kitchen.calls), "without a record nothing is made"
    room = full_disk()
    node.cakes.faults["made"] = room.__enter__
    try:
        assert "File too large" in node.refusal(claim)
    finally:
        room.__exit__(None, None, None)
    assert (node.is_empty(), 2) == (True, len(node.kitchen.calls))


def test_a_part_that_cannot_be_removed_stays_withheld_until_it_can(
    node: CakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    claim = node.allocate("one", piece(HALF))
    node.prepare(claim)
    other = node.allocate("two", piece("cake/quarter@1"))
    node.cakes.faults["unmake"] = fails("a process has it open")
    for _ in range(3):
        assert "a process has it open" == str(node.unprepare_all(claim)["uid-one"])
        assert "cake/quarter@1 is without room" in node.refusal(other)
        assert [] == node.cdi_files()
        node.restart()
    assert 1 == [one.message for one in caplog.records].count("part not removed") // 3
    node.cakes.faults = {}
    node.unprepare(claim)
    assert node.is_empty()
    node.prepare(other)


def test_what_a_failed_prepare_cannot_remove_the_next_one_gets(node: CakeNode) -> None:
    node.cakes.faults = {"made": lambda: 1 / 0, "unmake": fails("stuck")}
    claim = node.allocate("one", piece(HALF))
    assert "division by zero" in node.refusal(claim)
    assert ({HALF: ""}, {HALF: "cut-1"}) == (node.written_parts(), node.kitchen.cut)
    assert "cake is without room" in node.refusal(node.allocate("two", piece("cake")))
    node.cakes.faults = {}
    node.restart()
    node.prepare(claim)
    assert {HALF: "cut-1"} == node.written_parts() == node.kitchen.cut


# Hooks that hang.


class Hanging:
    """A fault that hangs until it is released."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(PATIENCE)

    def under_way(self, calls: HardwareCalls) -> threading.Thread:
        """Return the thread that waits for it, as a hook for the hardware x."""
        call = functools.partial(calls.call, "x", "make_part", self, seconds=PATIENCE)
        thread = threading.Thread(target=call)
        thread.start()
        assert self.begun.wait(PATIENCE)
        return thread


def test_a_part_that_is_made_too_late_is_kept_from_others_and_then_given_or_removed(
    node: CakeNode,
) -> None:
    hanging = node.cakes.faults["make"] = Hanging()
    node.cakes.part_timeout = 0.05
    claim = node.allocate("one", piece(HALF))
    said = eventually(lambda: [node.refusal(claim)] * hanging.begun.is_set(), "the hook")
    assert "make_part() did not return within" in said[0]
    assert ({HALF: ""}, {}) == (node.written_parts(), node.kitchen.cut)
    still = f"an earlier call for parts of {RESOURCE} cake is still under way"
    assert still == node.refusal(claim)
    assert still == str(node.unprepare_all(claim)["uid-one"])
    other = node.allocate("two", piece("cake/quarter@3"))
    assert still == node.refusal(other), "one at a time of each cake"
    hanging.may_end.set()
    eventually(lambda: node.kitchen.cut, "the late part")
    node.cakes.faults, node.cakes.part_timeout = {}, PATIENCE
    node.prepare(claim)
    assert {HALF: "cut-1"} == node.written_parts() == node.kitchen.cut
    node.unprepare(claim)
    assert {} == node.kitchen.cut


def test_a_hook_never_begins_once_nobody_waits_for_it() -> None:
    calls = HardwareCalls(None, MONOTONIC)
    first, late = Hanging(), list[str]()
    thread = first.under_way(calls)
    with pytest.raises(dp.AllocationError, match="still under way"):
        calls.call("x", "make_part", late.append, "late", seconds=0.01)
    calls.call("y", "make_part", late.append, "other", seconds=PATIENCE)
    first.may_end.set()
    calls.call("x", "make_part", late.append, "next", seconds=PATIENCE)
    thread.join()
    assert ["other", "next"] == late
    calls.close()
    with pytest.raises(dp.DevicePluginError, match="the plugin is stopping"):
        calls.call("x", "make_part", late.append, "after", seconds=PATIENCE)
    with pytest.raises(dp.DevicePluginError, match="the plugin is stopping"):
        calls.call("x", "make_part", late.append, "again", seconds=PATIENCE)
    assert ["other", "next"] == late


def test_nobody_waits_for_hardware_whose_hook_hangs() -> None:
    calls, hanging, refused = (
        HardwareCalls(None, MONOTONIC),
        Hanging(),
        list[dp.DevicePluginError](),
    )

    def call(hook: Callable[[], object], seconds: float) -> None:
        try:
            calls.call("x", "make_part", hook, seconds=seconds)
        except dp.DevicePluginError as error:
            refused.append(error)

    def begun() -> bool:
        call(hanging, 0.05)
        return hanging.begun.is_set()

    eventually(begun, "the hook")
    before = len(refused)
    waiting = threading.Thread(target=call, args=(lambda: None, 10 * PATIENCE), daemon=True)
    waiting.start()
    eventually(lambda: len(refused) > before, "a refusal")
    assert "an earlier call for parts of x is still under way" == str(refused[-1])
    hanging.may_end.set()
    calls.call("y", "make_part", str, seconds=PATIENCE)
    eventually(lambda: not calls._turns["x"].locked(), "the end of the hook")
    calls.call("x", "make_part", str, seconds=PATIENCE)


def test_a_hook_whose_thread_comes_too_late_is_not_called() -> None:
    turn, called = threading.Lock(), list[str]()
    assert turn.acquire()
    call = locks._Call(called.append, turn, None)
    call.give_up()
    call("late")
    assert ([], False) == (called, turn.locked())


def test_two_processes_never_make_parts_of_one_thing_at_a_time(tmp_path: Path) -> None:
    def lock(hardware: str) -> FileLock:
        return FileLock(tmp_path / hardware)

    one, other = HardwareCalls(lock, MONOTONIC), HardwareCalls(lock, MONOTONIC)
    hanging, made = Hanging(), list[str]()
    thread = hanging.under_way(one)
    with pytest.raises(dp.AllocationError, match="another process is busy with parts of x"):
        other.call("x", "make_part", made.append, "x", seconds=0.1)
    other.call("y", "make_part", made.append, "y", seconds=PATIENCE)
    hanging.may_end.set()
    other.call("x", "make_part", made.append, "x", seconds=PATIENCE)
    thread.join()
    assert ["y", "x"] == made
    waiting = lock("x")
    assert waiting.take()
    other.close()
    with pytest.raises(dp.AllocationError, match="another process"):
        other.call("x", "make_part", made.append, "x", seconds=PATIENCE)
    waiting.release()


def test_a_lock_that_cannot_be_made_is_said_and_nothing_is_begun(tmp_path: Path) -> None:
    called = list[str]()
    calls = HardwareCalls(lambda name: FileLock(tmp_path / "none" / name), MONOTONIC)
    for _ in range(2):
        with pytest.raises(dp.AllocationError, match="none/x: No such file"):
            calls.call("x", "make_part", called.append, "x", seconds=PATIENCE)
    assert [] == called


def test_without_time_nothing_is_made_and_nothing_is_removed(node: CakeNode) -> None:
    claim = node.allocate("one", piece(HALF))
    with pytest.raises(dp.AllocationError, match="no time is left in this call"):
        node.prepare(claim, seconds=0.0)
    assert [] == node.kitchen.calls


def test_no_claim_is_prepared_while_directories_are_lost_but_parts_are_removed(
    node: CakeNode,
) -> None:
    claim = node.allocate("one", piece(HALF))
    node.prepare(claim)
    node.unusable = "the directory is lost"
    assert node.unusable == node.refusal(node.allocate("two", piece(OTHER)))
    node.unprepare(claim)
    assert node.is_empty()


# After a restart, a reboot, and when others were there.


def test_after_a_reboot_a_part_is_made_again(node: CakeNode) -> None:
    claim = node.allocate("one", piece(HALF))
    node.prepare(claim)
    node.boot()
    assert {HALF: ""} == node.cakes.made, "what was made is gone"
    seen: list[object] = []
    node.cakes.faults["make"] = lambda: seen.append(node.written_parts())
    node.prepare(claim)
    assert ([{HALF: ""}], {HALF: "cut-2"}) == (seen, node.written_parts())
    node.boot()
    node.unprepare(claim)
    assert (True, ("unmake", HALF, "cut-2")) == (node.is_empty(), node.kitchen.calls[-1])


def test_what_somebody_else_made_in_its_place_is_left_alone(node: CakeNode) -> None:
    claim = node.allocate("one", piece(HALF))
    node.prepare(claim)
    node.kitchen.cut = {HALF: "foreign"}
    node.restart()
    node.unprepare(claim)
    assert ({HALF: "foreign"}, []) == (node.kitchen.cut, node.recorded())
    node.discover()
    assert "without room" in node.refusal(node.allocate("two", piece("cake/quarter@0")))
    node.prepare(node.allocate("three", piece(OTHER)))


def test_a_claim_is_released_although_its_hardware_is_gone(node: CakeNode) -> None:
    claim = node.allocate("one", piece(HALF))
    node.prepare(claim)
    node.kitchen.cakes = []
    node.restart()
    node.unprepare(claim)
    assert ("unmake", HALF, "cut-1") == node.kitchen.calls[-1]
    assert node.is_empty()


def test_a_part_whose_hardware_is_in_no_resource_is_its_plugins_to_remove(node: CakeNode) -> None:
    claim = node.allocate("one", piece(HALF))
    node.prepare(claim)
    del node.resources[RESOURCE]
    node.cakes.faults["unmake"] = fails("the oven does not answer")
    assert "the oven does not answer" in str(node.unprepare_all(claim)["uid-one"])
    assert {HALF: "cut-1"} == node.written_parts()
    node.cakes.faults = {}
    node.unprepare(claim)
    assert node.is_empty()


@pytest.mark.parametrize("is_plugin", [True, False])
def test_of_a_plugin_that_makes_no_parts_any_more_claims_are_released_with_a_warning(
    node: CakeNode, caplog: pytest.LogCaptureFixture, *, is_plugin: bool
) -> None:
    claim = node.allocate("one", piece(HALF))
    node.prepare(claim)
    del node.resources[RESOURCE]
    node.discovered = False
    said = str(node.unprepare_all(claim)["uid-one"])
    assert f"{HALF} is not known yet: devices are still being discovered" == said
    node.discovered = True
    node.makes_parts = False
    if is_plugin:
        node.resources[RESOURCE] = Resource(RESOURCE, node.plugin)
    node.unprepare(claim)
    assert [] == node.recorded()
    (logged,) = [one for one in caplog.records if "no plugin makes" in vars(one).get("error", "")]
    assert ("part not removed", HALF) == (logged.message, vars(logged)["device"])


# Records.


def test_an_older_release_reads_a_record_of_a_part_and_a_newer_one_those_without(
    node: CakeNode,
) -> None:
    node.prepare(node.allocate("one", piece(HALF)))
    (record,) = node.claims_dir.glob("*.json")
    written = json.loads(record.read_text())
    (device,) = written["devices"]
    assert {
        "of": "cake",
        "consumes": {"quarter-0": 1, "quarter-1": 1, "quarters": 2},
        "groups": [],
        "identity": "cut-1",
    } == device.pop("part")
    assert {*device} == {
        *("resource", "id", "request", "pool", "name", "admin", "share", "cdi_names")
    }
    found = Record.read(written)
    assert ({}, {(RESOURCE, HALF)}) == (dict(found.parts), {*found.held})


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"of": 1, "consumes": {}, "groups": [], "identity": ""},
        {"of": "a", "consumes": {"b": "1"}, "groups": [], "identity": ""},
        {"of": "a", "consumes": {"b": -1}, "groups": [], "identity": ""},
        {"of": "a", "consumes": [], "groups": [1], "identity": ""},
        {"of": "a", "consumes": {}, "groups": [], "identity": None},
    ],
)
def test_a_record_of_a_strange_part_is_none(node: CakeNode, part: dict[str, Any]) -> None:
    node.prepare(node.allocate("one", piece(HALF)))
    (record,) = node.claims_dir.glob("*.json")
    written = json.loads(record.read_text())
    written["devices"][0]["part"] = part
    with pytest.raises(ValueError, match="not a record"):
        Record.read(written)


def test_the_record_of_a_part_withholds_its_counters_before_anything_is_discovered(
    node: CakeNode,
) -> None:
    node.prepare(node.allocate("one", piece(HALF)))
    node.restart()
    others = [one for one in node.resources[RESOURCE].devices.values() if one.id != HALF]
    node.resources[RESOURCE].publish(others)
    assert "without room" in node.refusal(node.allocate("two", piece("cake/quarter@0")))
    assert "without room" in node.refusal(node.allocate("three", piece("cake")))


def test_gophers_and_cakes_share_a_claim(node: CakeNode) -> None:
    node.resource.publish([gopher("gary"), gopher("gerd")])
    claim = node.allocate("one", piece(HALF), result("gary"))
    assert [HALF, "gary"] == [one.id for one in node.prepare(claim)]
    assert {"CAKE": HALF, "CUT": "cut-1"} == env(node)
