"""The command, its reports and its pages; the plugins are those of ``bad_plugins``."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import pytest

import conformant
from deviceplugin_testing.conformance import (
    CHECKS,
    GROUPS,
    QUICK,
    Check,
    Limits,
    Result,
    Subject,
    Trial,
    Verdict,
)
from deviceplugin_testing.conformance._check import NO_DEVICES
from deviceplugin_testing.conformance.checks import _allocation
from deviceplugin_testing.tools.conformance import _cli, _report, main
from patience import PATIENCE, eventually

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "common/docs/conformance.md").read_text(encoding="utf-8")
OF_PLUGINS = PAGE.partition("## DRA drivers")[0]
CHECK = Check("Some Group", "some.check", "Is good", "Because it must.", lambda _: "", False)


def plugin(name: str) -> list[str]:
    return [f"tests.conformance.bad_plugins.{name}", "{devices_dir}"]


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    conformant.fork(monkeypatch)


@pytest.fixture
def short() -> Iterator[Path]:
    """Yield a directory whose path is short enough for sockets below."""
    with TemporaryDirectory(prefix="dp") as folder:
        yield Path(folder)


def report(
    *results: Result, others: frozenset[str] = frozenset(), problem: str = ""
) -> _report.Run:
    return _report.Run(["p", "a b"], "x.io/dev", 7, 1.5, results, others, problem)


# Exit statuses


def test_a_failing_check_makes_the_status_1_and_is_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    junit = tmp_path / "report.xml"
    only = ["--only=lists.unique-ids", "--only=lists.size", f"--junit={junit}"]
    assert 1 == main([*only, "--", *plugin("lists.DuplicateIds")])
    out = capsys.readouterr().out
    assert "listed more than once: a" in out
    assert "because:   the kubelet counts an id" in out
    assert "see:       common/docs/conformance.md#lists-and-health" in out
    assert "x.io/dev: 1 passed, 1 failed, 0 not applicable" in out
    (suite,) = ET.parse(junit).getroot()
    assert ("2", "1") == (suite.get("tests"), suite.get("failures"))


def test_a_plugin_that_does_not_come_up_makes_the_status_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--only=allocation", "--output=json", "--", *plugin("losses.AnswersNothing")]
    assert 1 == main(words)
    out, err = capsys.readouterr()
    assert "did not start: the plugin ended with status 1: " in err
    document = json.loads(out)
    assert {"n/a"} == {check["verdict"] for check in document["checks"]}
    assert document["problem"].endswith("no device found | really: none")
    assert not document["passed"]


def test_a_plugin_without_a_device_is_told_to_get_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cli, "QUICK", Limits(start=0.5))
    words = ["--quick", "--only=registration.in-time"]
    assert 1 == main([*words, "--", *plugin("registration.NeverRegisters")])
    expected = (
        "no call of Register within 0.5 s; a plugin may wait until it has a device: give it one"
    )
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "give the plugin's command, after --"),
        (["--only=list", "--", "x"], "no check or group 'list': did you mean lists?"),
        (["--only=qqq", "--", "x"], "no check or group 'qqq': --list shows all"),
        (["--jobs=0", "--", "x"], "argument --jobs: '0' is not a number above zero"),
        (["--jobs=x", "--", "x"], "argument --jobs: 'x' is not a number above zero"),
        (["--nonsense", "--", "x"], "unknown argument '--nonsense'"),
        (["--", "/no/such/program"], "/no/such/program: No such file or directory"),
        (
            ["--only=hot-plug", "--junit=/no/such/file", "--", sys.executable, "-c", ""],
            "/no/such/file",
        ),
    ],
)
def test_a_wrong_command_line_makes_the_status_2(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(words)
    assert text in capsys.readouterr().err


# The kubelet's directory


@pytest.mark.parametrize("name", ["device-plugins", "pod-resources", "plugins_registry"])
def test_a_kubelets_own_directory_is_left_alone(
    name: str, short: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (short / name).mkdir()
    (short / name / "something").touch()
    assert 2 == main([f"--kubelet-dir={short}", "--", *plugin("good.Good")])
    assert "do not use the directory of a real kubelet" in capsys.readouterr().err
    assert (short / name / "something").exists()


def test_a_given_directory_is_used_and_emptied_again(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cli, "QUICK", replace(conformant.PATIENT, down=0.1))
    only = [f"--only={one}" for one in ("registration.in-time", "restart.late-socket", "hot-plug")]
    words = ["--quick", f"--kubelet-dir={short}", *only, "--", *plugin("good.Good")]
    assert 0 == main(words)
    assert [] == list((short / "device-plugins").iterdir())


def test_a_plugin_ends_with_the_command_that_started_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    never = ["sh", "-c", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000"]
    words = [sys.executable, "-m", "deviceplugin", "conformance", "--", *never]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as command:
        eventually(pid.exists, "the plugin to start")
        command.terminate()
        assert 130 == command.wait(PATIENCE)
    eventually(
        lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "the end of the plugin"
    )


def test_a_directory_that_cannot_be_used_makes_the_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = tmp_path / ("d" * 60)
    assert 2 == main([f"--kubelet-dir={long}", "--", *plugin("good.Good")])
    assert "too long for the paths of sockets" in capsys.readouterr().err
    assert 2 == main(["--kubelet-dir=/dev/null", "--", *plugin("good.Good")])
    assert "/dev/null/device-plugins: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trigger", "text"),
    [("echo no >&2; exit 3", "ended with 3: no"), ("sleep 9", "took more than 0.5 s")],
)
def test_a_trigger_that_fails_is_told(
    trigger: str, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cli, "QUICK", Limits(within=0.5))
    words = ["--quick", "--only=hot-plug", f"--trigger-change={trigger}"]
    assert 1 == main([*words, "--", *plugin("good.Good")])
    assert f"--trigger-change {text}" in capsys.readouterr().out


# Reports


def test_the_text_is_coloured_on_a_terminal_only() -> None:
    result = Result(CHECK, Verdict.PASS, "did\nwell", 0.1)
    assert "  pass  some.check  did well" == _report.line(result, width=10, colour=False)
    assert "\x1b[32mpass\x1b[0m" in _report.line(result, width=10, colour=True)


def test_the_last_line_names_the_release_the_seed_and_what_was_not_checked() -> None:
    text = _report.summary(report(others=frozenset({"x.io/other"})))
    assert "on Kubernetes 1.36 in 2 s, with seed 7" in text
    assert "not checked: x.io/other; use --resource or --each-resource" in text


def skipped(text: str) -> Result:
    return Result(CHECK, Verdict.NOT_APPLICABLE, text, 0.1)


def test_the_last_line_says_why_checks_could_not_be_made() -> None:
    found = report(skipped("not  offered"), skipped("no CDI"), skipped("not offered"))
    expected = "not checked: not offered (2); no CDI (1)"
    assert expected == _report.summary(found).splitlines()[-1]
    assert found.passed


@pytest.mark.parametrize(("more", "status"), [([], 1), (["--allow-no-devices"], 0)])
def test_a_plugin_that_lists_no_healthy_device_fails_unless_that_is_allowed(
    more: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--only=allocation.every-device", "--output=json", *more]
    assert status == main([*words, "--", *plugin("lists.Empty")])
    out, err = capsys.readouterr()
    assert bool(status) == json.loads(out)["lacks_devices"]
    assert bool(status) == (f"failed, because {NO_DEVICES}: give it one, or allow that: --" in err)
    assert f"not checked: {NO_DEVICES} (1)" == err.splitlines()[-1]


def test_the_last_line_says_why_a_plugin_was_checked_one_by_one() -> None:
    alone = replace(report(), only_one="the plugin ended with status 1: in use")
    text = "one by one, because it does not start beside another: the plugin ended with status 1"
    assert text in _report.summary(alone)
    assert "one by one" not in _report.summary(report())


def test_junit_has_a_case_for_each_check_also_with_odd_characters() -> None:
    results = [Result(CHECK, verdict, "a\x00<b>", 0.5) for verdict in Verdict]
    root = ET.fromstring(_report.to_junit(report(*results)))
    (suite,) = root
    assert ("3", "1", "1", "1.500") == tuple(
        map(root.get, ["tests", "failures", "skipped", "time"])
    )
    assert ["system-out", "failure", "skipped"] == [case[0].tag for case in suite[1:]]
    assert "a\ufffd<b>" == suite[2][0].get("message")
    told = {"command": "p 'a b'", "resource": "x.io/dev", "kubelet_version": "1.36", "seed": "7"}
    assert told == {each.get("name"): each.get("value") for each in suite[0]}


# The page


def test_the_list_has_every_check_and_the_page_their_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 0 == main(["--list"])
    listed = re.findall(r"^  (\S+)  +(.+)$", capsys.readouterr().out, re.MULTILINE)
    assert listed == [(check.id, check.title) for check in CHECKS]
    assert len(CHECKS) == len({check.id for check in CHECKS})
    assert f"There are {len(CHECKS)} in these groups" in OF_PLUGINS


def test_each_link_leads_to_a_section_of_the_page() -> None:
    sections = re.findall(r"^### (.+)$", OF_PLUGINS, re.MULTILINE)
    assert [group.title for group in GROUPS] == sections
    anchors = {title.lower().replace(" ", "-") for title in sections}
    assert anchors == {check.link.partition("#")[2] for check in CHECKS}


def test_the_page_says_what_quick_means() -> None:
    full = Limits()
    assert f"observes for {QUICK.quiet:g} s instead of {full.quiet:g} s" in PAGE
    assert f"{QUICK.leak_restarts} times instead of {full.leak_restarts}" in PAGE
    assert f"has had {full.calm:g} s ({QUICK.calm:g} s) to settle" in PAGE
    assert f"`--jobs 1` runs one process at a time instead of {_cli._JOBS}" in PAGE
    assert f"`--timeout 30s` | gives a slow plugin 30 s instead of {full.within:g} s" in PAGE


def test_what_a_run_chooses_at_random_is_decided_by_its_seed() -> None:
    def choices(seed: int) -> list[float]:
        trial = Trial(Subject(command=["x"]), QUICK, seed)
        return [trial.rng(name).random() for name in ("a", "b")]

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)


def test_only_chooses_groups_and_checks_in_their_order() -> None:
    wanted = ["crash", "lists.size"]
    assert ["lists.size", "crash.none"] == [check.id for check in _cli._chosen(wanted)]


@pytest.mark.parametrize(
    ("permissions", "fine"),
    [("r", True), ("mrw", True), ("rwm", True), ("", False), ("rr", False), ("rx", False)],
)
def test_permissions_may_be_in_any_order(permissions: str, *, fine: bool) -> None:
    assert fine == bool(_allocation._PERMISSIONS.fullmatch(permissions))
