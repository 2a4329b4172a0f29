"""When GPUs are unhealthy, why, and when they recover."""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

import deviceplugin as dp
from deviceplugin_gpu.health.gpu_health import Health
from deviceplugin_gpu.health.incidents import Record
from deviceplugin_gpu.health.xids import _TABLE, CATALOGUE, Action, Checks, known, parse_checks
from deviceplugin_gpu.plugin import GpuPlugin
from deviceplugin_gpu.snapshot import Gpu, Mig, Snapshot
from gpu.fake_nvml import Fleet
from gpu.rig import GpuRig, devices, unhealthy
from patience import PATIENCE, eventually

OFF_THE_BUS = "XID 79 (the GPU is off the PCIe bus): reboot the node"
SUSPECT = OFF_THE_BUS.replace(":", " on a GPU that is not known:")
TIMEOUT = "XID 109 (an application could not be switched away from): reset the GPU"
DECODER = "XID 68 (video decoder 0): restart the application"


class Node:
    """Three GPUs, the second with two MIG devices, and their health, with a clock of its own."""

    def __init__(self, path: Path | None = None, *, enable: str = "68", boot: str = "b") -> None:
        self.now = 1000.0
        self.snapshot = Snapshot(
            (
                Gpu(0, "g0"),
                Gpu(1, "g1", migs=(Mig("m0", 0, 1, 0), Mig("m1", 1, 2, 0))),
                Gpu(2, "g2"),
            )
        )
        self.path, self.boot = path, boot
        self.checks = parse_checks("", enable)[0]
        self.health = self.started()

    def started(self) -> Health:
        """Return the health as after a start of the plugin."""
        boot = Path("/none")
        if self.path is not None:
            boot = self.path.with_name("boot_id")
            boot.write_text(f"{self.boot}\n")
        record = Record(self.path, boot)
        self.health = Health(record=record, clock=lambda: self.now, wall=lambda: self.now + 5000)
        self.health.configure(self.checks, 60)
        self.look()
        return self.health

    def look(self, *, after: float = 0, **found: object) -> list[str]:
        """Let time pass, look at the GPUs, and return the reasons, empty for the well ones."""
        self.now += after
        self.health.observe(self.snapshot, **found)  # type: ignore[arg-type]
        return self.reasons()

    def reasons(self) -> list[str]:
        return [self.health.verdict(uuid).reason for uuid in ("g0", "g1", "g2")]

    def lose(self, number: int, problem: str = "GPU is lost") -> None:
        gpus = list(self.snapshot.gpus)
        gpus[number] = replace(gpus[number], problem=problem)
        self.snapshot = Snapshot(tuple(gpus))


def test_a_worn_gpu_is_degraded_only_as_long_as_it_can_be_used() -> None:
    node = Node()
    gpus = list(node.snapshot.gpus)
    gpus[1] = replace(gpus[1], wear=("old",), slowdown="slow")
    node.snapshot = Snapshot(tuple(gpus))
    assert ["", "", ""] == node.look()
    assert dp.Health.degraded("old") == node.health.verdict("m1").health
    node.look(after=60)
    assert dp.Health.degraded("old; slow") == node.health.verdict("g1").health
    node.lose(1)
    node.look()
    assert dp.Health.unhealthy("GPU is lost", "unreadable") == node.health.verdict("g1").health


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def kept(tmp_path: Path) -> Node:
    return Node(tmp_path / "health.json")


# Errors.


def test_an_xid_on_a_mig_device_concerns_its_gpu_and_all_its_mig_devices(node: Node) -> None:
    node.health.saw_xid("m1", 79)
    assert ["", OFF_THE_BUS, ""] == node.reasons()
    assert [OFF_THE_BUS] * 2 == [node.health.verdict(uuid).reason for uuid in ("m0", "m1")]
    assert dp.Health.unhealthy(OFF_THE_BUS, "xid_79") == node.health.verdict("m0").health
    assert dp.Health() == node.health.verdict("g0").health


def test_an_xid_of_an_instance_concerns_its_mig_devices_alone(kept: Node) -> None:
    def reasons() -> list[bool]:
        found = [kept.health.verdict("g1", mig) for mig in ("m0", "m1", "just made", "")]
        return [bool(one.reason) for one in found]

    kept.health.saw_xid("g1", 68, 2)
    assert [False, True, False, False] == reasons()
    since = kept.health.verdict("m1").since
    kept.look(after=30)
    kept.health.saw_xid("g1", 68, 1)
    kept.started()
    assert [True, True, False, False] == reasons()
    kept.look(after=40)
    assert [True, False, False, False] == reasons()
    kept.health.saw_xid("g1", 68)
    assert [True] * 4 == reasons()
    kept.look(after=60)
    assert [False] * 4 == reasons()
    assert since == 6000 < kept.health.verdict("m1").since


def test_an_xid_of_an_instance_that_takes_a_reset_or_is_not_known_concerns_all(node: Node) -> None:
    node.health.saw_xid("g1", 79, 1)
    assert OFF_THE_BUS == node.health.verdict("m1").reason == node.health.verdict("g1").reason
    node.health.saw_xid("g0", 68, 1)
    assert node.health.verdict("g0").reason


def test_an_xid_of_an_instance_that_is_gone_does_not_stay(node: Node) -> None:
    node.health.saw_xid("g1", 68, 1)
    before, one, after = node.snapshot.gpus
    node.snapshot = Snapshot((before, replace(one, migs=one.migs[1:]), after))
    node.look()
    node.snapshot = Snapshot((before, one, after))
    node.look()
    assert not node.health.verdict("m0").reason


def test_an_xid_that_does_not_count_is_counted_only(node: Node) -> None:
    node.health.saw_xid("g0", 13)
    node.health.saw_xid("g0", 13)
    assert ["", "", ""] == node.reasons()
    assert {("g0", 13): 2} == node.health.xids()


@pytest.mark.parametrize("uuid", ["", "elsewhere"])
def test_an_xid_of_nobody_makes_all_gpus_suspect(node: Node, uuid: str) -> None:
    node.health.saw_xid(uuid, 79)
    assert [SUSPECT] * 3 == node.reasons()
    assert {("", 79): 1} == node.health.xids()
    node.health.saw_xid("g1", 79)
    assert [SUSPECT, OFF_THE_BUS, SUSPECT] == node.reasons()


def test_an_xid_of_a_gpu_that_is_no_device_touches_no_other(node: Node) -> None:
    node.health.saw_xid("GPU-of-a-screen", 79)
    assert ["", "", ""] == node.reasons()
    assert {("GPU-of-a-screen", 79): 1} == node.health.xids()
    node.health.saw_xid("", 79)
    assert [SUSPECT] * 3 == node.look(), "it explains nothing either"


def test_a_gpu_that_is_away_explains_an_xid_of_nobody(node: Node) -> None:
    node.health.saw_xid("", 79)
    node.health.saw_xid("g2", 79)
    node.lose(1)
    assert ["", "GPU is lost", OFF_THE_BUS] == node.look()
    node.lose(1, "")
    assert ["", SUSPECT, OFF_THE_BUS] == node.look()
    assert ["", "", OFF_THE_BUS] == node.look(after=60)


def test_gpus_that_are_suspect_without_proof_wait_as_after_a_small_error(node: Node) -> None:
    node.health.saw_xid("", 79)
    assert 3 == len([*filter(None, node.look(after=59))])
    assert ["", "", ""] == node.look(after=1)


def test_the_worst_error_is_the_reason_and_the_first_the_time(node: Node) -> None:
    assert 6000 == node.health.verdict("g0").since
    for number, reason in ((109, TIMEOUT), (68, TIMEOUT), (79, OFF_THE_BUS)):
        node.now += 1
        node.health.saw_xid("g0", number)
        assert (reason, 6001) == (node.reasons()[0], node.health.verdict("g0").since)
    assert 6000 == node.health.verdict("g1").since


# Recovery.


def test_a_gpu_recovers_when_it_was_quiet_and_is_well(node: Node) -> None:
    node.health.saw_xid("g0", 68)
    assert [DECODER, "", ""] == node.look(after=59)
    node.health.saw_xid("g0", 68)
    assert [DECODER, "", ""] == node.look(after=59)
    node.now += 1
    assert [DECODER, "", ""] == node.reasons(), "time alone heals nothing"
    assert ["", "", ""] == node.look()


def test_a_gpu_with_a_problem_does_not_recover(node: Node) -> None:
    node.health.saw_xid("g0", 68)
    assert ["deaf", "", ""] == node.look(after=600, problems={"g0": "deaf"})
    assert [DECODER, "", ""] == node.look(needs_reset={"g0": True})
    assert ["", "", ""] == node.look()


def test_what_needs_a_reset_waits_twelve_times_as_long(node: Node) -> None:
    node.health.saw_xid("g0", 109)
    assert [TIMEOUT, "", ""] == node.look(after=719)
    assert ["", "", ""] == node.look(after=1)


@pytest.mark.parametrize("is_found", [True, False])
def test_a_gpu_that_was_away_and_is_back_has_been_reset(node: Node, *, is_found: bool) -> None:
    whole = node.snapshot
    node.health.saw_xid("g0", 79)
    if is_found:
        node.lose(0)
    else:
        node.snapshot = Snapshot(whole.gpus[1:])
    reason = "GPU is lost" if is_found else "not found by a discovery"
    assert [reason, "", ""] == node.look(after=10)
    assert ("unreadable" if is_found else "missing") == node.health.verdict("g0").cause
    node.snapshot = whole
    assert [OFF_THE_BUS, "", ""] == node.look(after=49)
    node.health.saw_xid("g0", 109)
    assert [TIMEOUT, "", ""] == node.look(after=100), "a further error waits long again"


@pytest.mark.parametrize("stopped", [False, True])
def test_a_counter_of_energy_that_began_anew_tells_a_reset(kept: Node, *, stopped: bool) -> None:
    kept.look(energy={"g0": 5000, "g1": 5000})
    for uuid in ("g0", "g1", "g2"):
        kept.health.saw_xid(uuid, 109)
    assert [TIMEOUT] * 3 == kept.look(energy={"g0": 5000, "g1": 5001, "g2": 5000})
    if stopped:
        kept.started()
    assert [TIMEOUT] * 3 == kept.look(after=59, energy={"g0": 10, "g1": 5001})
    assert ["", TIMEOUT, TIMEOUT] == kept.look(after=1, energy={"g0": 11, "g1": 5002, "g2": 5000})


def test_the_drivers_word_on_resets_is_taken(node: Node) -> None:
    node.health.saw_xid("g0", 109)
    assert [TIMEOUT, "", ""] == node.look(after=700, needs_reset={"g0": True})
    assert ["", "", ""] == node.look(needs_reset={"g0": False})
    needed = "the driver says that it needs a reset"
    assert ["", needed, ""] == node.look(needs_reset={"g1": True})
    assert "reset" == node.health.verdict("m0").cause
    assert ["", "", ""] == node.look()


# NVML.


def test_while_nvml_fails_nobody_is_well(node: Node) -> None:
    node.health.failed("Driver Not Loaded")
    assert ["Driver Not Loaded"] * 3 == node.reasons()
    assert "nvml" == node.health.verdict("m1").cause
    node.now += 10_000
    node.health.saw_xid("g0", 79)
    assert ["Driver Not Loaded"] * 3 == node.reasons()
    assert [OFF_THE_BUS, "", ""] == node.look()


# Settings and restarts.


def test_other_settings_heal_nothing_but_what_counts_no_more(node: Node) -> None:
    node.health.saw_xid("g0", 79)
    node.health.saw_xid("g1", 68)
    node.health.configure(Checks(), 60)
    assert [OFF_THE_BUS, "", ""] == node.reasons()
    node.health.configure(Checks(all_disabled=True), 60)
    assert ["", "", ""] == node.reasons()
    node.health.configure(Checks(), 10)
    assert [OFF_THE_BUS, "", ""] == node.look(after=119)
    assert ["", "", ""] == node.look(after=1)


def test_what_happened_is_known_after_a_restart(kept: Node) -> None:
    kept.health.saw_xid("m0", 79)
    kept.health.saw_xid("g2", 68)
    kept.started()
    assert ["", OFF_THE_BUS, DECODER] == kept.reasons()
    assert ["", OFF_THE_BUS, ""] == kept.look(after=60)
    kept.started()
    assert ["", OFF_THE_BUS, ""] == kept.reasons()
    assert ["", "", ""] == kept.look(after=720)
    assert {} == json.loads(kept.path.read_text())["gpus"] if kept.path else None


def test_that_a_gpu_was_reset_is_known_after_a_restart(kept: Node) -> None:
    whole = kept.snapshot
    kept.health.saw_xid("g0", 79)
    kept.lose(0)
    kept.look()
    kept.snapshot = whole
    kept.started()
    assert ["", "", ""] == kept.look(after=60)


def test_a_reboot_resets_all_gpus(kept: Node) -> None:
    kept.health.saw_xid("g0", 79)
    kept.boot = "another"
    kept.started()
    assert ["", "", ""] == kept.reasons()


def test_a_clock_that_began_anew_does_not_lengthen_the_wait(kept: Node) -> None:
    kept.health.saw_xid("g0", 68)
    kept.now = 3
    kept.started()
    assert [DECODER, "", ""] == kept.look()
    assert ["", "", ""] == kept.look(after=60)


@pytest.mark.parametrize(
    "entry",
    [
        '"boot": "b"',
        '"boot": "b", "gpus": []',
        '"boot": "b", "gpus": {"g0": [{"number": "x"}]}',
        '"boot": "b", "gpus": {"g0": [{"number": 1e999, "since": 0, "last": 0}]}',
    ],
)
def test_a_file_that_makes_no_sense_counts_as_empty(kept: Node, entry: str) -> None:
    assert kept.path is not None
    kept.path.write_text(f'{{"version": 1, {entry}}}')
    kept.started()
    assert ["", "", ""] == kept.reasons()
    assert {} == json.loads(kept.path.read_text())["gpus"]


@pytest.mark.parametrize("last", ["NaN", "1e9", "1e999"])
def test_an_error_of_no_time_that_can_be_is_one_of_now(tmp_path: Path, last: str) -> None:
    path, boot = tmp_path / "health.json", tmp_path / "boot_id"
    boot.write_text("b")
    entry = f'"number": 79, "since": 0, "last": {last}, "suspected": false, "reset": false'
    path.write_text(f'{{"version": 1, "boot": "b", "gpus": {{"g0": [{{{entry}}}]}}}}')
    assert 5.0 == Record(path, boot).load(5.0)["g0"][79, None].last


# Logs.


def test_each_turn_is_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node.health.failed("Driver Not Loaded")
    node.health.failed("Driver Not Loaded")
    node.look()
    node.look()
    assert ["GPU is unhealthy"] * 3 + ["GPU is healthy again"] * 3 == caplog.messages


def test_a_storm_of_errors_is_a_few_lines(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(1000):
        node.health.saw_xid("g0", 13)
    assert ["XID error"] * 10 == caplog.messages
    assert "an application's fault in the graphics engine" == vars(caplog.records[0])["meaning"]


@contextmanager
def listening(plugin: GpuPlugin) -> Iterator[list[None]]:
    """Listen to GPUs; what is given has an entry for each look that is called for."""
    stop, calls = Event(), list[None]()
    thread = Thread(target=lambda: calls.extend(plugin.changes(stop)))
    thread.start()
    try:
        yield calls
    finally:
        stop.set()
        thread.join(PATIENCE)


def test_a_look_is_called_for_when_listening_begins_and_for_errors_that_count(rig: GpuRig) -> None:
    plugin = rig.has(Fleet.of(1)).plugin()
    plugin.discover()
    with listening(plugin) as calls:
        eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"], "a wait for events")
        sets = rig.fake.calls()["nvmlEventSetCreate"]
        plugin._discovery._watch.renew()  # as each look does while a GPU cannot be listened to
        eventually(lambda: rig.fake.calls()["nvmlEventSetCreate"] > sets, "another set")
        rig.fake.sbe(0)  # corrected errors are often many
        rig.fake.sbe(0)
        rig.fake.xid(0, 31)
        eventually(lambda: len(calls) == 2, "the event")
    assert [None, None] == calls


@pytest.mark.parametrize(
    ("disable", "enable", "count"),
    [("", "", 1), ("all", "", 0), ("all", "79", 1), ("all", "all", 1)],
)
def test_not_being_heard_makes_a_gpu_unhealthy_if_any_error_would(
    rig: GpuRig, disable: str, enable: str, count: int
) -> None:
    rig.now = 0.0
    rig.has(Fleet.of(1)).fake.fail("wait", 999)
    plugin = rig.plugin(disable_healthchecks=disable, enable_healthchecks=enable)
    plugin.discover()
    with listening(plugin):
        eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"], "a wait for events")
        rig.now = 1000.0
        assert count == len(unhealthy(devices(plugin)))


def test_a_set_of_events_is_not_used_after_nvml_was_shut_down(
    rig: GpuRig, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = rig.has(Fleet.of(1)).plugin()
    plugin.discover()

    def registered(count: int) -> bool:
        return rig.fake.calls()["nvmlDeviceRegisterEvents"] == count

    with listening(plugin) as calls:
        for count in (1, 2, 3):
            eventually(partial(registered, count), "a set")
            plugin._driver.session.reopen()
        eventually(partial(registered, 4), "the last one")
        waits, heard = rig.fake.calls()["nvmlEventSetWait_v2"], len(calls)
        eventually(lambda: rig.fake.calls()["nvmlEventSetWait_v2"] > waits, "a wait for events")
        assert 0 == rig.fake.calls()["nvmlEventSetFree"]
        rig.fake.xid(0, 31)
        eventually(lambda: len(calls) > heard, "the event")
    assert "NVML events unavailable" not in caplog.messages


PAGE = Path(__file__).parents[3] / "plugins/gpu/docs/health.md"


def test_what_the_catalogue_says_of_well_known_xids() -> None:
    assert Action.APPLICATION == known(94).action
    assert Action.RESET == known(109).action
    assert "XID 79 (the GPU is off the PCIe bus)" == str(known(79))
    assert "XID 9999 (not in the catalogue)" == str(known(9999))
    assert sum(map(len, _TABLE.values())) == len(CATALOGUE), "each has one action"
    assert all(5 < len(xid.meaning) < 65 for xid in CATALOGUE.values())


def test_by_default_what_the_application_did_is_not_the_gpus_fault() -> None:
    harmless = [8, 13, 31, 43, 45, 63, 68, 92, 94, 154]
    serious = [46, 48, 54, 62, 64, 74, 79, 95, 109, 119, 120, 140, 143, 155, 158, 167, 9999]
    assert serious == [number for number in (*harmless, *serious) if Checks().count(number)]


@pytest.mark.parametrize(
    ("disable", "enable", "counting"),
    [
        ("", "", {48, 79, 9999}),
        ("79, 48", "13", {13, 9999}),
        ("XIDS", "", set()),
        ("xids,5", "79,94", {79, 94}),
        ("79", "all", {13, 48, 79, 94, 9999}),
        ("79", "79", {48, 79, 9999}),
    ],
)
def test_what_is_enabled_is_stronger_than_what_is_disabled(
    disable: str, enable: str, counting: set[int]
) -> None:
    checks, problems = parse_checks(disable, enable)
    assert [] == problems
    assert counting == {number for number in (13, 48, 79, 94, 9999) if checks.count(number)}


def test_what_is_no_xid_is_reported_and_the_rest_counts() -> None:
    checks, problems = parse_checks("79, x,-3,,48", "0x1f,²")
    assert frozenset({79, 48}) == checks.disabled
    assert Checks(frozenset({79, 48})) == checks
    end = " is ignored: it is neither a number of an XID, nor all or xids"
    assert [
        f"DP_DISABLE_HEALTHCHECKS: 'x'{end}",
        f"DP_DISABLE_HEALTHCHECKS: '-3'{end}",
        f"DP_ENABLE_HEALTHCHECKS: '0x1f'{end}",
        f"DP_ENABLE_HEALTHCHECKS: '²'{end}",
    ] == problems


def test_the_documentation_has_the_same_table() -> None:
    rows = re.findall(r"^\| ([^|]+) \| (yes|no) \| ([\d, ]+) \|$", PAGE.read_text(), re.MULTILINE)
    expected = [
        (action.value, "no" if action.is_harmless else "yes", ", ".join(map(str, numbers)))
        for action in Action
        if (numbers := sorted(number for number, xid in CATALOGUE.items() if xid.action is action))
    ]
    assert expected == rows
