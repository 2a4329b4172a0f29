import json
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import conformant
from deviceplugin_testing.conformance._subject import Limits
from deviceplugin_testing.tools.bench import _claims as bench_claims
from deviceplugin_testing.tools.bench import _cli, _plan, _subject, main
from deviceplugin_testing.tools.bench._cli import _parser, _plan_of, _split
from deviceplugin_testing.tools.bench._figures import BenchError, Section
from deviceplugin_testing.tools.bench._subject import BenchSubject

BAD = "tests.conformance.bad_plugins"
GOOD = [f"{BAD}.good.Good", "{devices_dir}"]


@pytest.fixture(autouse=True)
def quick_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    conformant.fork(monkeypatch)
    monkeypatch.setattr(_cli, "_CALIBRATIONS", 2)


@pytest.mark.slow
def test_a_command_is_measured_and_the_figures_are_printed_and_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts = ["--starts=1", "--idle=100ms", "--allocations=2", "--changes=1", "--restarts=2"]
    options = ["--quick", *counts, "--touch={devices_dir}", "--output=json"]
    assert 0 == main([*options, "--", *GOOD])
    out, err = capsys.readouterr()
    (section,) = json.loads(out)["sections"]
    assert GOOD == section["command"]
    for figure in section["figures"]:
        assert figure["name"] in err
        assert figure["count"] == len(figure["values"])


@pytest.mark.slow
def test_the_core_is_measured_with_growing_numbers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(_plan.QUICK, core_devices=(10,), core_resources=(1, 2), core_changes=1)
    monkeypatch.setattr(_cli, "QUICK", few)
    assert 0 == main(["--core", "--quick"])
    out = capsys.readouterr().out
    for title in (
        "core: 10 devices in one resource",
        "core: 1 resources in one process",
        "start to 2 resources registered",
        "from 1 to 2 resources, 2 times as many: times larger",
    ):
        assert title in out


def test_without_a_command_the_gopher_plugin_and_the_core_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sections(*words: str) -> list[str]:
        before, commands = _split(words)
        options = _parser().parse_args(before)
        subjects = [BenchSubject(title=command[0], command=command) for command in commands]
        return [section.title for section in _cli._sections(options, subjects)]

    def measured(subject: BenchSubject, *_: object) -> Section:
        return Section(subject.title, (), [])

    monkeypatch.setattr(_plan, "measure", measured)
    monkeypatch.setattr(_cli, "_core", lambda _plan: iter([Section("core", (), [])]))
    assert ["gopher", "core"] == sections()
    assert ["gopher"] == sections("--gopher")
    assert ["core"] == sections("--core")
    assert ["gopher", "core"] == sections("--gopher", "--core")
    assert ["my-plugin"] == sections("--", "my-plugin", "--", "x")


def test_what_is_given_overrides_the_plan() -> None:
    plan = _plan_of(_parser().parse_args(["--quick", "--idle=7s", "--restarts=3"]))
    assert (7, 3, _plan.QUICK.starts) == (plan.idle, plan.restarts, plan.starts)


@pytest.mark.parametrize(
    "words",
    [
        ["--starts=0"],
        ["--restarts=1"],
        ["--idle=0s"],
        ["--soak=soon"],
        ["--no-such-option"],
        ["--compare", "one"],
        ["--"],
        ["--gopher", "--", "my-plugin"],
        ["--", "--versus", "x"],
        ["--", "x", "--versus"],
        ["--soak=1m", "--core"],
        ["--soak=1m", "--", "x", "--versus", "y"],
        ["--claims"],
        ["--claims", "--bare", "--", "x"],
        ["--claims", "--soak=1m", "--", "x"],
    ],
)
def test_a_wrong_command_line_exits_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(words)
    assert "deviceplugin bench:" in capsys.readouterr().err


def test_help_says_how_a_command_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--help"])
    assert "-- my-device-plugin --plugin-dir {plugin_dir}" in capsys.readouterr().out


def test_what_cannot_be_measured_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["--starts=1", "--", "no-such-command"])
    assert "no-such-command: No such file or directory" in capsys.readouterr().err


def test_the_gopher_plugin_must_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert 1 == main(["--gopher"])
    assert "gopher-device-plugin is not installed" in capsys.readouterr().err


def test_an_interrupt_ends_it_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_cli, "_run", interrupt)
    assert 130 == main([])


def driver(name: str) -> list[str]:
    return [f"tests.conformance.dra_drivers.{name}"]


def test_claims_of_a_driver_are_prepared_and_released(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--claims", "--allocations=3", "--output=json", "--", *driver("good.Good")]
    assert 0 == main(words)
    out, err = capsys.readouterr()
    assert "Prepare of 1 device" in err
    (section,) = json.loads(out)["sections"]
    assert [1, 1, 3, 3, 3, 3, 1, 1, 1] == [one["count"] for one in section["figures"]]
    assert all(value > 0 for one in section["figures"] for value in one["values"])


def test_a_driver_that_fails_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_claims, "_PATIENT", Limits(within=1.0))
    assert 1 == main(["--claims", "--", *driver("bad.OffersNothing")])
    assert "no complete pool" in capsys.readouterr().err


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")


def is_null(path: Path) -> bool:
    status = path.lstat()
    null = Path("/dev/null").stat().st_rdev
    return (null, 0o600) == (status.st_rdev, stat.S_IMODE(status.st_mode))


@pytest.mark.parametrize(
    ("kind", "is_it"),
    [
        ("file", Path.is_file),
        ("directory", Path.is_dir),
        ("link", lambda path: path.is_symlink() and path.is_char_device()),
        pytest.param("node", is_null, marks=ROOT),
    ],
)
def test_entries_of_each_kind_come_and_go(
    tmp_path: Path, kind: str, is_it: Callable[[Path], bool]
) -> None:
    devices = _subject.make_devices(tmp_path, 3, kind)
    assert [True] * 3 == [is_it(path) for path in sorted(devices.iterdir())]
    for path in devices.iterdir():
        _subject.toggle_entry(path, kind)
    assert [] == list(devices.iterdir())


def test_who_may_not_make_nodes_is_told_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", refuse)
    with pytest.raises(BenchError, match=r"CAP_MKNOD.* or give --entries link"):
        _subject.make_entry(tmp_path / "node", "node")
