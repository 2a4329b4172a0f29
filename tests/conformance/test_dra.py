"""For each check of drivers there is a driver that fails it; the good one passes all."""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import conformant
from conformant import PATIENT
from deviceplugin_testing.conformance import QUICK, Limits, Result, Subject, Verdict, run
from deviceplugin_testing.conformance.dra import DRA_CHECKS, DRA_GROUPS, DraTrial
from deviceplugin_testing.tools.conformance import main
from patience import PATIENCE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "common/docs/conformance.md").read_text(encoding="utf-8")
LIMITS = replace(QUICK, start=20, within=10, quiet=0.6, settle=0.2, stop=4)

OWN = {
    "driver.up": {"within": 1.0},
    "driver.health": {"within": 0.5},
    "slices.complete": {"within": 0.5},
    "slices.counters": {"within": 0.5},
    "slices.again": {"republished": 0.5},
    "containers.pod": {"within": 0.5},
    "losses.kubelet": {"republished": 0.5},
    "losses.two": {"start": 6.0},
    "losses.lost-files": {"start": 4.0, "within": 2.0},
}
"""Short for drivers that never do what is waited for."""

BAD = {
    "driver.up": "OffersNothing",
    "driver.services": "OldServiceFirst",
    "driver.health": "ForgetsHealth",
    "driver.no-errors": "NeedsAClaim",
    "slices.complete": "HalfAPool",
    "slices.counters": "CountsOnAnother",
    "slices.owner": "NoOwner",
    "slices.accepted": "TriesCapitals",
    "slices.quiet": "Heartbeat",
    "slices.again": "PublishesOnce",
    "claims.allocated": "AnotherPool",
    "claims.repeatable": "ChangingAnswers",
    "claims.missing": "Guesses",
    "claims.uid": "IgnoresUid",
    "claims.not-allocated": "IgnoresAllocation",
    "claims.unknown-device": "PreparesAnything",
    "claims.one-holder": "SharesDevices",
    "claims.shares": "SharesWithoutIds",
    "claims.apart": "AllOrNothing",
    "claims.foreign-config": "RefusesForeignConfig",
    "claims.unknown-parameters": "IgnoresParameters",
    "claims.foreign-device": "TakesForeignDevices",
    "claims.release-unknown": "RemembersNothingButErrors",
    "claims.release-deleted": "ReadsToRelease",
    "claims.server-away": "AlwaysReads",
    "containers.pod": "WritesNoFile",
    "containers.oldest-version": "NewestVersion",
    "containers.files-removed": "LeavesFiles",
    "containers.own-names": "OneNameForAll",
    "containers.first-names": "OneFirstName",
    "losses.kubelet": "StopsWithoutSlices",
    "losses.kill": "NamesByProcess",
    "losses.two": "GivesWay",
    "losses.held": "ForgetsOnStart",
    "losses.lost-files": "AnswersFromRecord",
    "losses.shutdown": "LeavesItsSocket",
}


def command(name: str) -> list[str]:
    return [f"tests.conformance.dra_drivers.{name}"]


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    conformant.fork(monkeypatch)


def check(name: str, only: Sequence[str], limits: Limits = LIMITS) -> dict[str, Result]:
    """Return the results of the checks ``only``, by id."""
    checks = [each for each in DRA_CHECKS if not only or each.id in only]
    with DraTrial(Subject(command=command(name)), limits, 1) as trial:
        results = run(trial, checks, lambda _result: None)
    return {result.check.id: result for result in results}


@pytest.mark.slow
def test_a_good_driver_passes_everything() -> None:
    limits = replace(PATIENT, quiet=LIMITS.quiet, settle=LIMITS.settle)
    results = check("good.Good", [], limits)
    assert {} == {
        id_: result.text for id_, result in results.items() if result.verdict != Verdict.PASS
    }


def test_what_needs_several_devices_or_sockets_does_not_apply_to_one() -> None:
    groups = ("claims.", "containers.", "losses.two")
    ids = [each.id for each in DRA_CHECKS if each.id.startswith(groups)]
    results = check("others.OneDevice", ids, PATIENT)
    failed = {id_: one.text for id_, one in results.items() if one.verdict == Verdict.FAIL}
    assert {} == failed
    skipped = {id_ for id_, one in results.items() if one.verdict == Verdict.NOT_APPLICABLE}
    assert {"claims.shares", "containers.first-names", "losses.two"} == skipped


def test_there_is_a_bad_driver_for_each_check() -> None:
    assert {each.id for each in DRA_CHECKS} == BAD.keys()


@pytest.mark.parametrize(
    "id_",
    [pytest.param(each, marks=[pytest.mark.slow] * (each == "losses.lost-files")) for each in BAD],
)
def test_a_bad_driver_fails_its_check(id_: str) -> None:
    limits = replace(LIMITS, **OWN.get(id_, {}))  # type: ignore[arg-type]
    (result,) = check(f"bad.{BAD[id_]}", [id_], limits).values()
    assert Verdict.FAIL == result.verdict, result.text


@pytest.mark.parametrize(
    ("name", "id_", "why"),
    [
        ("ReadsToRelease", "claims.server-away", "not unprepared: "),
        ("DiesOfAMissingClaim", "claims.missing", "the driver ended with status 3"),
        ("Overdraws", "slices.counters", "a in pool node/things consumes 9 of quarters in cake, "),
        (
            "CountsOnAnother",
            "slices.counters",
            "a in pool node/things consumes 2 of quarters in pie, of which there is none",
        ),
        ("WritesGarbage", "containers.oldest-version", "half.json: is not valid JSON: "),
    ],
)
def test_a_bad_driver_is_told_what_it_did(name: str, id_: str, why: str) -> None:
    limits = replace(LIMITS, **OWN.get(id_, {}))  # type: ignore[arg-type]
    (result,) = check(f"bad.{name}", [id_], limits).values()
    assert Verdict.FAIL == result.verdict
    assert result.text.startswith(why)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        (
            "FailsWholeCalls",
            ["claims.missing", "claims.uid", "claims.not-allocated", "claims.server-away"],
        ),
        (
            "WritesYaml",
            ["containers.pod", "containers.oldest-version", "containers.files-removed"],
        ),
        (
            "Divides",
            ["slices.counters", "claims.apart", "claims.one-holder", "containers.first-names"],
        ),
        ("OneNameForEachDevice", ["containers.own-names", "containers.first-names"]),
        ("WaitsToPublish", ["slices.again"]),
        pytest.param("WaitsToPublish", ["losses.kubelet"], marks=pytest.mark.slow),
    ],
)
def test_what_is_only_different_passes(name: str, ids: list[str]) -> None:
    within = 1.0 if name == "WaitsToPublish" else PATIENT.within  # it waits longer, as it may
    limits = replace(PATIENT, settle=LIMITS.settle, within=within, republished=PATIENCE)
    results = check(f"others.{name}", ids, limits)
    assert {} == {
        id_: result.text for id_, result in results.items() if result.verdict != Verdict.PASS
    }


def test_the_page_has_all_groups() -> None:
    page = PAGE.partition("## DRA drivers")[2]
    assert [group.title for group in DRA_GROUPS] == re.findall(r"^### (.+)$", page, re.MULTILINE)


# The command.


def test_a_driver_is_checked_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--dra", "--quick", "--only=claims.allocated", "--", *command("good.Good")])
    out = capsys.readouterr().out
    assert "pass  claims.allocated" in out
    assert "good.example.com: 1 passed, 0 failed" in out


def test_a_driver_that_does_not_start_makes_the_status_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [sys.executable, "-c", "raise SystemExit('no devices')"]
    assert 1 == main(["--dra", "--only=claims.allocated", "--", *words])
    assert "the driver ended with status 1: no devices" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--dra", "--resource=x.io/dev"], "--resource is for device plugins, not for --dra"),
        (["--driver=x.io"], "--driver needs --dra"),
        (["--dra", "--kubelet-version=1.31"], "--dra: Kubernetes 1.31 has no DRA to check"),
        (["--dra", "--only=lists"], "lists"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main([*words, "--", "driver"])
    assert why in capsys.readouterr().err


def test_the_checks_of_drivers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--dra", "--list"])
    assert "claims.one-holder" in capsys.readouterr().out
