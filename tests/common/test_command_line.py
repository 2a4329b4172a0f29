"""What the commands of ``deviceplugin`` have in common; their own tests tell the rest."""

import argparse
import subprocess
import sys
from argparse import Namespace

import pytest

from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line as _tool
from patience import PATIENCE


def run(
    *words: str,
    error: BaseException | None = None,
    failures: tuple[type[Exception], ...] = (OSError,),
) -> int:
    """Run a command that needs ``--size N`` and does nothing, or raises ``error``."""
    parser = _tool.parser("measure", "Measures.", "examples:\n  deviceplugin measure --size 2")
    parser.add_argument("--size", type=int, required=True)
    _tool.add_output(parser)
    _tool.add_timeout(parser, 5)

    def act(_options: Namespace) -> int:
        if error is not None:
            raise error
        return 0

    return _tool.run(parser, words, act, failures)


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (None, 0, []),
        (ConfigError("size: none\ndepth: none"), 2, ["size: none", "depth: none"]),
        (OSError("no disk"), 1, ["no disk"]),
        (OSError(28, "No space", "/a"), 1, ["cannot write: /a: No space"]),
        (KeyboardInterrupt(), 130, []),
    ],
)
def test_how_a_command_ends_is_its_status(
    error: BaseException | None, status: int, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status == run("--size=2", error=error)
    expected = [f"deviceplugin measure: {line}" for line in told]
    assert expected == capsys.readouterr().err.splitlines()
    for wrong in (ZeroDivisionError(), FileNotFoundError()):
        with pytest.raises(type(wrong)):
            run("--size=2", error=wrong, failures=())


def test_whoever_has_seen_enough_is_no_error() -> None:
    words = [sys.executable, "-m", "deviceplugin", "conformance", "--list"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, told = process.communicate(timeout=PATIENCE)
    assert (1, "") == (process.returncode, told)


@pytest.mark.parametrize("command", ["conformance --list", "doctor --only=versions --verbose"])
def test_a_full_disk_is_an_error_of_one_line(command: str) -> None:
    words = [sys.executable, "-m", "deviceplugin", *command.split()]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert 1 == done.returncode
    assert done.stderr.endswith(": cannot write: [Errno 28] No space left on device\n")
    assert 1 == done.stderr.count("\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--size=x", "argument --size: invalid int value: 'x'"),
        ("--siz=2", "unknown argument '--siz=2': did you mean --size?"),
        ("--size=1 --json", "unknown argument '--json'"),
        ("--size=1 more", "unknown argument 'more'"),
        (f"--size=1 {'x' * 1000}", f"unknown argument '{'x' * 199} ... {'x' * 199}' (see"),
        ("--size", "argument --size: expected one argument"),
        ("", "the following arguments are required: --size"),
        ("--output=table", "the following arguments are required: --size"),
        ("--size=1 --timeout=5", "argument --timeout: '5' is not a duration above zero, such as"),
        ("--size=1 --timeout=5m", "argument --timeout: '5m' is not between 1ms and 1m"),
        ("--size=1 --output=xml", "argument --output: invalid choice: 'xml' (choose from"),
    ],
)
def test_a_wrong_word_is_answered_in_one_line(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(*words.split())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"deviceplugin measure: {said}")
    assert line.endswith("(see --help)")


def test_help_is_shown_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run("--size=1", "--")
    assert 0 == run("--help")
    assert capsys.readouterr().out.endswith("examples:\n  deviceplugin measure --size 2\n")


def test_a_duration_is_read_for_a_parser() -> None:
    assert 90.0 == _tool.duration("1m30s").total_seconds()
    with pytest.raises(argparse.ArgumentTypeError, match=r"^'30' is not a duration above zero"):
        _tool.duration("30")


@pytest.mark.parametrize(
    ("variables", "is_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colours_are_for_terminals_whose_user_wants_them(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, expected: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected == _tool.has_colour()


def test_a_name_that_is_not_known_is_told_with_one_that_is_near() -> None:
    _tool.check_names("check", ["disk"], {"disk", "clock"})
    with pytest.raises(ConfigError, match=r"^no check 'dusk': did you mean disk\?$"):
        _tool.check_names("check", ["dusk"], {"disk", "clock"})
    with pytest.raises(ConfigError, match=r"^no check 'x': --list shows all$"):
        _tool.check_names("check", ["x"], {"disk", "clock"})
