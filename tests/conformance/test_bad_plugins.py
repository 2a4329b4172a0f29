"""For each check there is a plugin that fails it, and no other check of its group."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import forked_process
from deviceplugin_testing.conformance import (
    CHECKS,
    Limits,
    Result,
    Subject,
    Trial,
    Verdict,
    _process,
    run,
)
from deviceplugin_testing.conformance.checks import _losses

ROOT = Path(__file__).parents[2]
PLUGINS = "tests.conformance.bad_plugins"

LIMITS = Limits(
    start=20,
    within=10,
    call=1,
    first_list=2,
    hello=1,
    pre_start=1,
    stop=4,
    quiet=0.6,
    settle=0.2,
    look=0.5,
    calm=1.0,
    down=0.7,
    restarts=3,
    leak_restarts=6,
    idle_cpu=0.1,
    wakeups=100,
)
"""Long enough for a good plugin on a busy machine, and too short for the bad ones."""

SPINS = {"idle_cpu": 0.04}
"""What a plugin that spins uses at least, also of a machine on which fifty others spin."""
OWN = {
    "registration.in-time": {"start": 2.0},
    "lists.size": {"start": 6.0},
    "restart.again": {"within": 1.0},
    "restart.many": {"within": 5.0},
    "restart.long-down": {"within": 5.0, "down": 4.0},
    "stream-loss.again": {"within": 1.0},
    "socket-loss.again": {"within": 1.0},
    "socket-loss.stays": {"settle": 5.0},
    "hot-plug.noticed": {"within": 1.0},
    "resources.idle-cpu": SPINS,
    "resources.after-restart": SPINS,
    "resources.after-stream-loss": SPINS,
}
"""Short for plugins that never do what is waited for (those with 5 s do at first); and long, where
something is to be seen to happen."""

BAD = {
    "registration.in-time": "registration.NeverRegisters",
    "registration.serves-first": "registration.RegistersBeforeItServes",
    "registration.version": "registration.WrongVersionFirst",
    "registration.name": "registration.WrongNameFirst",
    "registration.endpoint": "registration.EndpointWithPath",
    "registration.options": "registration.SlowOptions",
    "registration.once": "registration.RegistersTwice",
    "lists.prompt": "lists.LateFirstList",
    "lists.complete": "lists.IncompleteFirstList",
    "lists.no-repeats": "lists.Heartbeat",
    "lists.unique-ids": "lists.DuplicateIds",
    "lists.id-length": "lists.LongId",
    "lists.health-words": "lists.LowerCaseHealth",
    "lists.topology": "lists.EmptyTopology",
    "lists.size": "lists.TooLongList",
    "lists.streams": "lists.FewStreams",
    "lists.deaf-stream": "lists.OneSenderForAllStreams",
    "allocation.every-device": "allocation.RefusesAHealthyDevice",
    "allocation.one-response": "allocation.TwoResponses",
    "allocation.repeatable": "allocation.ChangingAnswers",
    "allocation.unknown-refused": "allocation.AnswersUnknown",
    "allocation.unhealthy-refused": "allocation.AllocatesUnhealthy",
    "allocation.prompt": "allocation.SlowAllocate",
    "allocation.beside-streams": "allocation.WaitsForStreams",
    "allocation.device-nodes": "allocation.OddPermissions",
    "allocation.mounts": "allocation.RelativeMount",
    "allocation.envs": "allocation.OddVariable",
    "allocation.cdi-names": "allocation.BareCdiName",
    "preferred.size": "allocation.PrefersTooFew",
    "preferred.must-include": "allocation.IgnoresMustInclude",
    "preferred.only-available": "allocation.PrefersWhatIsTaken",
    "preferred.no-errors": "allocation.FailsToPrefer",
    "pre-start.in-time": "allocation.SlowPreStart",
    "pre-start.again": "allocation.PreStartsOnce",
    "restart.again": "losses.IgnoresRestarts",
    "restart.many": "losses.GivesUpAtTheSecondRestart",
    "restart.long-down": "losses.GivesUpAfterAWhile",
    "restart.late-socket": "losses.NeedsTheKubelet",
    "restart.after-kill": "losses.StumblesOverItsSocket",
    "restart.stable-ids": "losses.RandomIds",
    "stream-loss.again": "losses.IgnoresStreams",
    "stream-loss.calm": "losses.RegistersLikeMad",
    "socket-loss.again": "losses.IgnoresItsSocket",
    "socket-loss.stays": "losses.EndsTheOldStreamLate",
    "hot-plug.noticed": "losses.NoticesNoChange",
    "hot-plug.keeps-ids": "losses.DropsIds",
    "shutdown.in-time": "footprint.LingersAfterSigterm",
    "shutdown.status": "footprint.ExitsWithThree",
    "shutdown.socket-removed": "footprint.LeavesItsSocket",
    "shutdown.without-kubelet": "footprint.RetriesWithoutListening",
    "resources.idle-cpu": "footprint.BurnsCpu",
    "resources.wake-ups": "footprint.WakesUpOften",
    "resources.threads": "footprint.LeaksThreads",
    "resources.descriptors": "footprint.LeaksDescriptors",
    "resources.memory": "footprint.LeaksMemory",
    "resources.socket-files": "footprint.LeavesSocketFiles",
    "resources.after-restart": "footprint.BurnsCpuAfterARestart",
    "resources.after-stream-loss": "footprint.BurnsCpuAfterAStreamLoss",
    "resources.without-kubelet": "footprint.RetriesWithoutAPause",
    "crash.none": "allocation.DropsWhatItAllocates",
}


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    forked_process.preload(
        *sorted({f"{PLUGINS}.{name.partition('.')[0]}" for name in BAD.values()})
    )
    monkeypatch.setattr(_process, "subprocess", forked_process)
    monkeypatch.setattr(_losses, "_MOST", 2)  # what a busy machine gets done in a second


def conform(plugin: str, group: str, **limits: float) -> Sequence[Result]:
    subject = Subject(
        command=[f"{PLUGINS}.{plugin}", "{devices_dir}"],
        # Named, it need not be found out; in registration, wrong names are to be seen too.
        resource="" if group == "registration" else "x.io/dev",
        trigger="touch {devices_dir}/new",
    )
    checks = [check for check in CHECKS if check.id.startswith(f"{group}.")]
    with Trial(subject, replace(LIMITS, **limits), seed=1) as trial:  # type: ignore[arg-type]
        return run(trial, checks, lambda _: None)


def failed(results: Sequence[Result]) -> list[str]:
    return [result.check.id for result in results if result.verdict is Verdict.FAIL]


def test_there_is_a_bad_plugin_for_each_check() -> None:
    assert [check.id for check in CHECKS] == list(BAD)


@pytest.mark.parametrize("check", BAD)
def test_a_bad_plugin_fails_the_check_that_it_should_and_no_other(check: str) -> None:
    results = conform(BAD[check], check.partition(".")[0], **OWN.get(check, {}))
    assert [check] == failed(results), [(result.check.id, result.text) for result in results]


def test_a_plugin_that_burns_a_cpu_in_place_of_registering_again_is_found_out() -> None:
    limits = {"within": 4.0, "quiet": 2.0, **SPINS}
    results = conform("footprint.SpinsOnceTheKubeletIsGone", "resources", **limits)
    expected = [f"resources.{name}" for name in ("after-restart", "after-stream-loss")]
    assert [*expected, "resources.without-kubelet"] == failed(results)
    assert "after a restart of the kubelet it used " in results[-3].text


def test_a_plugin_that_does_not_come_back_is_quoted() -> None:
    results = conform("losses.IgnoresItsSocketAloud", "socket-loss", within=1.0)
    assert "socket-loss.again" in failed(results)
    text = next(result.text for result in results if result.check.id == "socket-loss.again")
    assert re.search(r"not registered \S+ s after .*: .*who needs a socket", text), text
