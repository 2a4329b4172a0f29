"""Checks that do not need each other run side by side, and what they find is told in order."""

import io
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Semaphore

import pytest

import conformant
from deviceplugin_testing.conformance import Check, Limits, Result, Subject, Trial, Verdict
from deviceplugin_testing.conformance._check import (
    FIRST_LANE,
    LAST_LANE,
    Failed,
    Findings,
    NotApplicable,
)
from deviceplugin_testing.conformance._lanes import InOrder, Progress, SideBySide
from deviceplugin_testing.simulator import ContainerStartError, KubeletCrashed, KubeletStopped
from held_clock import HeldClock
from patience import PATIENCE

BAD = "tests.conformance.bad_plugins"


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    conformant.fork(monkeypatch)


def check(name: str, run: Callable[[Trial], str], lane: str = "") -> Check:
    return Check("Group", name, "Is good", "It must.", run, False, lane or name)


def passes(_: Trial) -> str:
    return "fine"


class Side:
    """One run of checks side by side."""

    def __init__(
        self, *checks: Check, plugin: str = "good.Good", trigger: str = "", jobs: int = 4
    ) -> None:
        self.told: list[str] = []
        self.order = InOrder(checks, lambda result: self.told.append(result.check.id))
        words = [f"{BAD}.{plugin}", "{devices_dir}"]
        subject = Subject(command=words, resource="x.io/dev", trigger=trigger)
        with Trial(subject, Limits(start=PATIENCE), seed=1) as self.trial:
            self.lanes = SideBySide(self.trial, self.order, jobs)
            self.lanes.run(checks)

    @property
    def verdicts(self) -> Sequence[Verdict]:
        return [result.verdict for result in self.order.results]


def test_lanes_run_at_the_same_time_each_on_a_plugin_of_its_own() -> None:
    meeting, pids = threading.Barrier(3), set()

    def meets(trial: Trial) -> str:
        plugin = trial.node().plugin
        assert plugin
        pids.add(plugin.pid)
        meeting.wait(PATIENCE)
        return ""

    side = Side(check("a", meets, FIRST_LANE), check("b", meets), check("c", meets))
    assert [Verdict.PASS] * 3 == side.verdicts
    assert 3 == len(pids)


def test_results_are_told_in_the_order_of_the_checks() -> None:
    ended = threading.Event()

    def waits(_: Trial) -> str:
        assert ended.wait(PATIENCE)
        return ""

    def ends(_: Trial) -> str:
        ended.set()
        return ""

    side = Side(check("a", waits), check("b", ends), check("c", passes, "b"))
    assert ["a", "b", "c"] == side.told


def test_the_last_lane_waits_for_all_others_and_knows_of_their_crashes() -> None:
    def crashes(trial: Trial) -> str:
        trial.crashes.append("nil pointer")
        return ""

    def knows(trial: Trial) -> str:
        return ", ".join(trial.crashes)

    side = Side(check("z", knows, LAST_LANE), check("a", crashes), check("b", crashes))
    assert "nil pointer, nil pointer" == side.order.results[0].text


@pytest.mark.parametrize(
    ("trigger", "alone"), [("touch {devices_dir}/new", False), ("touch /etc/gophers/new", True)]
)
def test_a_trigger_that_may_change_all_plugins_is_used_on_one(trigger: str, *, alone: bool) -> None:
    plugged = threading.Event()

    def waits(_: Trial) -> str:
        # In vain where the other waits for the end of this one.
        return "beside" if plugged.wait(0.5 if alone else PATIENCE) else "alone"

    def plugs(_: Trial) -> str:
        plugged.set()
        return ""

    side = Side(check("a", waits), check("b", plugs, "hot-plug"), trigger=trigger)
    assert ("alone" if alone else "beside") == side.order.results[0].text


def test_a_plugin_that_runs_only_once_is_checked_one_by_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONLY_ONE", str(tmp_path / "lock"))

    def uses(trial: Trial) -> str:
        return f"{len(trial.node().healthy)} devices"

    checks = [check("a", uses, FIRST_LANE), check("b", uses), check("c", uses)]
    side = Side(*checks, plugin="footprint.OnlyOne")
    assert [Verdict.PASS] * 3 == side.verdicts
    assert ["3 devices"] * 3 == [result.text for result in side.order.results]
    assert "the plugin ended with status 1: another one runs" == side.lanes.only_one
    assert "" == side.trial.hopeless


def test_nothing_is_checked_of_a_plugin_that_does_not_come_up() -> None:
    def uses(trial: Trial) -> str:
        trial.node()
        return ""

    side = Side(check("a", uses), check("b", uses), plugin="losses.AnswersNothing")
    assert [Verdict.NOT_APPLICABLE] * 2 == side.verdicts
    assert side.trial.hopeless.startswith("the plugin ended with status 1: no device found")


def test_a_plugin_that_does_not_come_up_again_in_a_lane_is_a_problem_of_the_run() -> None:
    def breaks(trial: Trial) -> str:
        trial.hopeless = "the plugin ended"
        trial.node()
        return ""

    side = Side(check("a", breaks), check("b", passes), check("c", passes, FIRST_LANE))
    assert [Verdict.NOT_APPLICABLE, Verdict.PASS, Verdict.PASS] == side.verdicts
    assert "the plugin ended" == side.trial.hopeless


def test_what_should_not_happen_ends_the_waits_of_all_others() -> None:
    begun = threading.Event()

    def waits(trial: Trial) -> str:
        node = trial.node()
        begun.set()
        node.observe(1000)
        return ""

    def breaks(_: Trial) -> str:
        assert begun.wait(PATIENCE)
        raise ZeroDivisionError

    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        Side(check("a", breaks), check("b", waits), check("c", waits))
    assert time.monotonic() - begin < 500


# Findings


def fails(_: Trial | None = None) -> str:
    raise Failed("no devices")


def test_a_failure_is_told_by_its_own_check_whoever_asked_first() -> None:
    def nothing() -> str:
        raise NotApplicable("no /proc")

    findings = Findings()
    for ask in (findings.once, findings.before, findings.once):
        with pytest.raises(NotApplicable, match=r"^no /proc$"):
            ask(nothing, passes)
    with pytest.raises(NotApplicable, match="not seen, because: no devices"):
        findings.before(fails, fails)
    with pytest.raises(Failed, match="no devices"):
        findings.once(fails, fails)
    with pytest.raises(NotApplicable, match="not seen, because: no devices"):
        findings.once(fails, fails)


def test_a_scenario_is_played_once_by_whoever_comes_first() -> None:
    findings, played, here = Findings(), [], threading.Barrier(4)

    def plays() -> int:
        played.append(threading.current_thread().name)
        return 7

    def asks() -> None:
        here.wait(PATIENCE)
        assert 7 == findings.once(plays, passes)

    threads = [threading.Thread(target=asks) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 == len(played)


# Progress


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.written = Semaphore(0)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if "now:" in text:
            self.written.release()
        return super().write(text)


def test_a_terminal_shows_what_is_being_run(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = check("some.one", passes), check("some.two", passes)
    order, terminal = InOrder([one, two], lambda result: progress.print(result.text)), Terminal()
    clock = HeldClock()
    with Progress(order, terminal, clock) as progress:
        order.begins(two)
        order.ends(Result(two, Verdict.PASS, "second", 0))
        order.begins(one)
        for _ in range(4):
            assert 0.5 == clock.skip_wait()
            assert terminal.written.acquire(timeout=PATIENCE)
        order.ends(Result(one, Verdict.PASS, "first", 0))
    assert "  2 s, 1 of 2 checks done; now: some.one" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "first\nsecond\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (KubeletCrashed("nil pointer"), Verdict.NOT_APPLICABLE),
        (KubeletStopped("it was stopped"), Verdict.NOT_APPLICABLE),
        (ContainerStartError("no device"), Verdict.FAIL),
        (LookupError("no plugin"), Verdict.FAIL),
        (TimeoutError("too late"), Verdict.FAIL),
    ],
)
def test_what_ends_a_check_early_is_its_verdict_and_the_next_one_runs(
    error: Exception, verdict: Verdict
) -> None:
    def ends(_: Trial) -> str:
        raise error

    side = Side(check("early", ends), check("late", passes), jobs=1)
    assert [(verdict, str(error)), (Verdict.PASS, "fine")] == [
        (result.verdict, result.text) for result in side.order.results
    ]
