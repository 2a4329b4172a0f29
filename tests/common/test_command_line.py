"""What the commands of ``deviceplugin`` have in common; their own tests tell the rest."""

import argparse
import subprocess
import sys
from argparse import Namespace

import pytest

from deviceplugin.errors import ConfigError
from deviceplugin.tools import _command_line as _tool
from patience import PATIENCE


def run(*words: str, error: BaseException | None = None) -> int:
    """Run a command that takes ``--size N`` and does nothing, or raises ``error``."""
    parser = _tool.parser("measure", "Measures.", "examples:\n  deviceplugin measure --size 2")
    parser.add_argument("--size", type=int)

    def act(_options: Namespace) -> int:
        if error is not None:
            raise error
        return 0

    return _tool.run(parser, words, act, (OSError,))


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (None, 0, []),
        (ConfigError("size: none\ndepth: none"), 2, ["size: none", "depth: none"]),
        (OSError("no disk"), 1, ["no disk"]),
        (KeyboardInterrupt(), 130, []),
    ],
)
def test_how_a_command_ends_is_its_status(
    error: BaseException | None, status: int, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert status == run("--size=2", error=error)
    expected = [f"deviceplugin measure: {line}" for line in told]
    assert expected == capsys.readouterr().err.splitlines()
    with pytest.raises(ZeroDivisionError):
        run(error=ZeroDivisionError())


def test_whoever_has_seen_enough_is_no_error() -> None:
    words = [sys.executable, "-m", "deviceplugin", "conformance", "--list"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, told = process.communicate(timeout=PATIENCE)
    assert (1, "") == (process.returncode, told)


def test_a_wrong_word_is_a_usage_error_and_help_is_shown_as_it_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for word in ("--size=x", "--siz=2", "more"):
        assert 2 == run(word)
        assert "deviceplugin measure: error: " in capsys.readouterr().err
    assert 0 == run("--help")
    assert capsys.readouterr().out.endswith("examples:\n  deviceplugin measure --size 2\n")


def test_a_duration_is_read_for_a_parser() -> None:
    assert 90.0 == _tool.duration("1m30s").total_seconds()
    with pytest.raises(argparse.ArgumentTypeError, match=r"^'30' is not a duration above zero"):
        _tool.duration("30")


def test_a_name_that_is_not_known_is_told_with_one_that_is_near() -> None:
    _tool.check_names("check", ["disk"], {"disk", "clock"})
    with pytest.raises(ConfigError, match=r"^no check 'dusk': did you mean disk\?$"):
        _tool.check_names("check", ["dusk"], {"disk", "clock"})
    with pytest.raises(ConfigError, match=r"^no check 'x': --list shows all$"):
        _tool.check_names("check", ["x"], {"disk", "clock"})
