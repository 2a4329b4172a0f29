"""A process that is told to end before it serves: it ends at once, and prints no traceback."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import deviceplugin as dp
from containers.unshare import POSSIBLE
from deviceplugin._app.signals import ending_at_once, set_when_stopped
from deviceplugin.tools import _command_line

BOTH = [signal.SIGINT, signal.SIGTERM]
IMPORT = """
import signal, sys

class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[2]:
            signal.raise_signal(int(sys.argv[1]))

sys.meta_path.insert(0, Interrupted())
from deviceplugin.__main__ import main
main(["devices", "--help"])
"""


@pytest.mark.parametrize(
    ("number", "module"),
    [(BOTH[0], "deviceplugin._app.command"), (BOTH[1], "deviceplugin.tools.devices._cli")],
)
def test_a_signal_during_imports_ends_the_process_without_a_traceback(
    number: signal.Signals, module: str
) -> None:
    words = [sys.executable, "-c", IMPORT, str(int(number)), module]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (-number, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare")
def test_the_first_process_of_a_container_ends_too() -> None:
    number = signal.SIGTERM
    words = [sys.executable, "-c", IMPORT, str(int(number)), "deviceplugin._app.command"]
    done = subprocess.run(
        ["unshare", "--pid", "--fork", *words], check=False, capture_output=True, text=True
    )
    assert (128 + number, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[list[object]]:
    """Give the handlers of this process, which are there again afterwards."""
    before = [signal.getsignal(number) for number in BOTH]
    yield [*before]
    for number, handler in zip(BOTH, before, strict=True):
        signal.signal(number, handler)


def test_whoever_handles_signals_goes_on_doing_so(handlers: list[object]) -> None:
    def own(_number: int, _frame: object) -> None:
        raise NotImplementedError

    previous = signal.signal(signal.SIGTERM, own)
    with ending_at_once():
        assert own == signal.getsignal(signal.SIGTERM)
        assert handlers[0] != signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGTERM, previous)
    assert handlers == [signal.getsignal(number) for number in BOTH]


def test_only_the_main_thread_can_set_handlers_and_others_may_import_too(
    handlers: list[object],
) -> None:
    def enter() -> object:
        with ending_at_once():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        assert handlers[0] == pool.submit(enter).result()


class Interrupted(dp.Plugin):
    """Its user is tired of waiting."""

    resource = "example.com/thing"

    def discover(self) -> list[dp.Device]:
        raise KeyboardInterrupt


def test_a_command_that_is_interrupted_before_it_serves_ends_by_the_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        dp.main(Interrupted, argv=["--once"])
    assert ([signal.SIGINT], 130) == (raised, ended.value.code)


@pytest.mark.parametrize(("handler", "status"), [(signal.SIG_DFL, 130), (signal.SIG_IGN, 0)])
def test_the_end_of_a_terminal_ends_what_starts_processes_but_not_with_nohup(
    handler: signal.Handlers, status: int
) -> None:
    def act(_options: object) -> int:
        signal.raise_signal(signal.SIGHUP)
        return 0

    before = signal.signal(signal.SIGHUP, handler)
    try:
        parser = _command_line.parser("accept", "", "")
        assert status == _command_line.run(parser, [], act, starts=True)
        assert handler == signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", BOTH)
def test_a_stop_sets_the_event_of_a_tool(number: signal.Signals) -> None:
    stop = set_when_stopped()
    assert not stop.is_set()
    signal.raise_signal(number)
    assert stop.is_set()
