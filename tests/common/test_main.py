import re
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

from deviceplugin.__main__ import COMMANDS, main


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: deviceplugin COMMAND")
    for name, command in COMMANDS.items():
        assert f"  {name}" in text
        assert command.summary in text
    assert 2 == main([])
    assert capsys.readouterr().err.startswith("usage: deviceplugin COMMAND")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("kublet", "did you mean 'kubelet'?"), ("frobnicate", f"known are {', '.join(COMMANDS)}")],
)
def test_an_unknown_command_is_answered_with_the_nearest(
    name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main([name])
    assert f"deviceplugin: unknown command {name!r}: {hint}\n" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "command", "package"), [("urllib3", "events", "urllib3"), ("yaml", "stub", "pyyaml")]
)
def test_a_command_without_its_extra_says_which_one_it_needs(
    module: str, command: str, package: str
) -> None:
    said = f"deviceplugin: {command} needs {module}: pip install {package}\n"
    assert (2, "", said) == without(module, command)


def test_a_command_that_lacks_what_it_should_have_does_not_hide_that() -> None:
    status, _, err = without("deviceplugin.tools.doctor._check", "doctor")
    assert 1 == status
    assert "ModuleNotFoundError: import of deviceplugin.tools.doctor._check halted" in err


def test_of_others_commands_it_says_which_package_has_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("deviceplugin.__main__.entry_points", lambda **_: [])
    for name, command in COMMANDS.items():
        assert 2 == main([name])
        said = (
            f"deviceplugin: {name} is not installed: in a checkout, pip install {command.source}\n"
        )
        assert said == capsys.readouterr().err
    other = next(iter(entry_points(group="pytest11", name="xdist")))
    monkeypatch.setattr("deviceplugin.__main__.entry_points", lambda **_: [other])
    assert 0 == main(["--help"])
    out = capsys.readouterr().out
    assert "  xdist   of the package pytest-xdist\n" in out
    ours = "fleet, node-template, cluster-doctor, cluster-hold, cluster-release, sysdump, migrate"
    assert f"\nof deviceplugin-cli, not installed: {ours}\n" in out
    assert "deviceplugin stub" not in out


def without(module: str, command: str) -> tuple[int, str, str]:
    """Run a command in a process that cannot import ``module``."""
    program = (
        "import sys; sys.modules[sys.argv[1]] = None; "
        "from deviceplugin.__main__ import main; sys.exit(main(sys.argv[2:]))"
    )
    words = [sys.executable, "-c", program, module, command, "--help"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_its_exit_statuses_which_mean_what_the_page_says(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "common/docs/commands.md").read_text(encoding="utf-8")
    known = {*re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert 0 == main([name, "--help"])
    *_, statuses = capsys.readouterr().out.partition("Exit status: ")
    found = {*re.findall(r"\b\d+\b", statuses)}
    assert {"0", "2"} <= found <= known


def test_a_command_gets_the_words_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["bench", "--help"])
    assert capsys.readouterr().out.startswith("usage: deviceplugin bench")


def test_help_imports_no_command() -> None:
    program = (
        "import sys; from deviceplugin.__main__ import main; main(['--help']); "
        "sys.exit(any(name.startswith(('grpc', 'deviceplugin_testing')) for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_it_is_also_a_module() -> None:
    words = [sys.executable, "-m", "deviceplugin", "--version"]
    found = subprocess.run(words, check=True, capture_output=True, text=True)
    assert f"deviceplugin {version('deviceplugin')}\n" == found.stdout
