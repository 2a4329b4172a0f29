"""Somebody at a terminal is told what takes long."""

import threading

import pytest

from deviceplugin._app import patience
from patience import PATIENCE


class Screen:
    """Standard error, and whether something was written to it."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        self.lines: list[str] = []
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, line: str) -> None:
        self.lines.append(line)
        self.written.set()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_takes_long_is_named_once_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr(patience, "_PATIENCE", 0.01)
    monkeypatch.setattr("sys.stderr", screen)
    with patience.waiting("deviceplugin doctor", "the check disk"):
        assert is_terminal == screen.written.wait(PATIENCE if is_terminal else 0.1)
    expected = ["deviceplugin doctor: still waiting for the check disk\n"] if is_terminal else []
    assert expected == screen.lines


def test_what_is_done_at_once_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(is_terminal=True)
    monkeypatch.setattr("sys.stderr", screen)
    with patience.waiting("deviceplugin doctor", "the check disk"):
        pass
    assert [] == screen.lines
