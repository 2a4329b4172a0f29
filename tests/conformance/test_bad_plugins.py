"""For each check there is a plugin that fails it, and no other check of its lane."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

import conformant
from deviceplugin_testing.conformance import CHECKS, Limits, Result, Subject, Trial, Verdict, run
from deviceplugin_testing.conformance.checks import _losses, _registration
from deviceplugin_testing.simulator import COMPARED, NEWEST

PLUGINS = "tests.conformance.bad_plugins"

LIMITS = Limits(
    start=20,
    within=10,
    call=1,
    first_list=2,
    hello=1,
    pre_start=1,
    stop=30,
    quiet=0.2,
    settle=0.1,
    look=0.5,
    calm=0.4,
    down=0.7,
    restarts=3,
    leak_restarts=6,
    idle_cpu=0.1,
    wakeups=100,
)
"""Long enough for a good plugin on a busy machine, and too short for the bad ones."""

SEEN = {"quiet": 0.6, "settle": 0.2}
"""For what has to be seen to happen, or not to happen."""
SPINS = {"idle_cpu": 0.04, **SEEN}
"""What a plugin that spins uses at least, also of a machine on which fifty others spin."""
OWN = {
    "registration.in-time": {"start": 0.5},
    "registration.options": {"call": 0.3},
    "registration.once": SEEN,
    "lists.prompt": {"first_list": 0.8},
    "lists.complete": SEEN,
    "lists.no-repeats": SEEN,
    "lists.size": {"start": 6.0},
    "lists.deaf-stream": {"first_list": 0.8},
    "pre-start.in-time": {"pre_start": 0.4},
    "restart.again": {"within": 0.5},
    "restart.many": {"within": 5.0},
    "restart.long-down": {"within": 5.0, "down": 2.0},
    "stream-loss.again": {"within": 0.5},
    "socket-loss.again": {"within": 0.5},
    "socket-loss.stays": {"settle": 5.0},
    "overlap.quiet": {"quiet": 60.0},
    "overlap.older-ends": {"within": 0.5},
    "overlap.newer-killed": {"within": 0.5},
    "hot-plug.noticed": {"within": 0.5},
    "shutdown.in-time": {"stop": 0.5},
    "shutdown.without-kubelet": {"stop": 1.2},
    "resources.idle-cpu": SPINS,
    "resources.wake-ups": SEEN,
    "resources.threads": SEEN,
    "resources.after-restart": SPINS,
    "resources.after-stream-loss": SPINS,
    "resources.without-kubelet": SEEN,
}
"""Short for plugins that never do what is waited for (those with 5 s and more do at first)."""
SLOW = {
    "lists.size",
    "restart.many",
    "restart.long-down",
    "resources.idle-cpu",
    "resources.wake-ups",
    "resources.threads",
    "resources.after-restart",
    "resources.after-stream-loss",
    "registration.serves-first",
    "resources.without-kubelet",
}
"""What is measured or waited for takes seconds."""

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
    "overlap.quiet": "overlap.FightsForTheResource",
    "overlap.older-ends": "overlap.WaitsForAnEmptyDirectory",
    "overlap.newer-killed": "overlap.GivesWay",
    "hot-plug.noticed": "losses.NoticesNoChange",
    "hot-plug.keeps-ids": "losses.DropsIds",
    "shutdown.in-time": "footprint.LingersAfterSigterm",
    "shutdown.status": "footprint.ExitsWithThree",
    "shutdown.socket-removed": "footprint.LeavesItsSocket",
    "shutdown.without-kubelet": "footprint.RetriesWithoutListening",
    "resources.idle-cpu": "footprint.BurnsCpu",
    "resources.wake-ups": "footprint.WakesUpOften",
    "resources.threads": "footprint.Leaks",
    "resources.descriptors": "footprint.Leaks",
    "resources.memory": "footprint.Leaks",
    "resources.socket-files": "footprint.LeavesSocketFiles",
    "resources.after-restart": "footprint.BurnsCpuAfterARestart",
    "resources.after-stream-loss": "footprint.BurnsCpuAfterAStreamLoss",
    "resources.without-kubelet": "footprint.RetriesWithoutAPause",
    "crash.none": "allocation.DropsWhatItAllocates",
}

CASES = [
    pytest.param(name, checks, id=checks[0], marks=[pytest.mark.slow] * (checks[0] in SLOW))
    for name in dict.fromkeys(BAD.values())
    if (checks := [check for check, plugin in BAD.items() if plugin == name])
]


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    conformant.fork(monkeypatch)
    monkeypatch.setattr(_losses, "_MOST", 2)  # what a busy machine gets done in a second


def conform(
    plugin: str, group: str, lane: str = "", limits: Mapping[str, float] | None = None
) -> Sequence[Result]:
    """Run the checks of a group on ``plugin``, or those only that are in ``lane`` too."""
    subject = Subject(
        command=[f"{PLUGINS}.{plugin}", "{devices_dir}"],
        # Named, it need not be found out; in registration, wrong names are to be seen too.
        resource="" if group == "registration" else "x.io/dev",
        trigger="touch {devices_dir}/new",
        kubelet_version=NEWEST if group == "overlap" else COMPARED,
    )
    checks = [
        check for check in CHECKS if check.id.startswith(f"{group}.") and lane in {"", check.lane}
    ]
    with Trial(subject, replace(LIMITS, **(limits or {})), seed=1) as trial:  # type: ignore[arg-type]
        return run(trial, checks, lambda _: None)


def test_a_plugin_with_sockets_of_its_own_works_beside_another_instance() -> None:
    results = conform("overlap.OwnSocket", "overlap")
    assert [] == [result.text for result in results if result.verdict is not Verdict.PASS]


def failed(results: Sequence[Result]) -> list[str]:
    return [result.check.id for result in results if result.verdict is Verdict.FAIL]


def test_there_is_a_bad_plugin_for_each_check() -> None:
    assert [check.id for check in CHECKS] == list(BAD)


@pytest.mark.parametrize(("plugin", "checks"), CASES)
def test_a_bad_plugin_fails_the_check_that_it_should_and_no_other(
    plugin: str, checks: Sequence[str]
) -> None:
    (lane,) = {check.lane for check in CHECKS if check.id in checks}
    group = checks[0].partition(".")[0]
    results = conform(plugin, group, lane, OWN.get(checks[0]))
    assert checks == failed(results), [(result.check.id, result.text) for result in results]


@pytest.mark.slow
def test_a_plugin_that_burns_a_cpu_in_place_of_registering_again_is_found_out() -> None:
    limits = {"within": 1.0, **SPINS, "quiet": 1.0}
    results = conform("footprint.SpinsOnceTheKubeletIsGone", "resources", limits=limits)
    expected = [f"resources.{name}" for name in ("after-restart", "after-stream-loss")]
    assert [*expected, "resources.without-kubelet"] == failed(results)
    assert "after a restart of the kubelet it used " in results[-3].text


def test_a_plugin_that_does_not_come_back_is_quoted() -> None:
    results = conform("losses.IgnoresItsSocketAloud", "socket-loss", limits={"within": 0.5})
    assert ["socket-loss.again"] == failed(results)
    text = results[0].text
    assert re.search(r"not registered \S+ s after .*: .*who needs a socket", text), text


# How plugins name their sockets


@pytest.mark.parametrize(
    ("endpoint", "bare"),
    [
        ("example.com_gopher-9623a8.sock", True),
        ("gdp-c3F1YXQuYWkvZnVzZQ==-1763794494.sock", True),
        ("a b: ü+,;&@!'().sock", True),
        ("", False),
        (".", False),
        ("..", False),
        ("kubelet.sock", False),
        ("./a.sock", False),
        ("a.sock/", False),
        ("/var/lib/kubelet/device-plugins/a.sock", False),
        ("a?.sock", False),
        ("a#.sock", False),
        ("a%41.sock", False),
        ("a%.sock", False),
    ],
)
def test_a_bare_name_is_one_that_the_kubelet_dials(endpoint: str, *, bare: bool) -> None:
    assert bare == _registration._is_bare(endpoint)


@pytest.mark.parametrize(
    ("plugin", "verdicts"),
    [
        ("NamesItsSocketOddly", [Verdict.PASS, Verdict.PASS]),
        ("EndpointElsewhere", [Verdict.NOT_APPLICABLE, Verdict.FAIL]),
    ],
)
def test_what_an_endpoint_is_blamed_for(plugin: str, verdicts: list[Verdict]) -> None:
    names = ("registration.serves-first", "registration.endpoint")
    results = {
        each.check.id: each.verdict for each in conform(f"registration.{plugin}", "registration")
    }
    assert verdicts == [results[name] for name in names]
