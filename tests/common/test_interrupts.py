"""A process that is told to end before it serves: it ends at once, and prints no traceback."""

import os
import signal
import subprocess
import sys
import threading

import pytest

import deviceplugin as dp
from containers.unshare import POSSIBLE
from deviceplugin._app.signals import ending_at_once, set_when_stopped

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


def test_whoever_handles_signals_goes_on_doing_so() -> None:
    handlers = [signal.getsignal(number) for number in BOTH]
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        own = signal.getsignal(signal.SIGTERM)
        with ending_at_once():
            assert own == signal.getsignal(signal.SIGTERM)
            assert handlers[0] != signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert handlers == [signal.getsignal(number) for number in BOTH]


def test_only_the_main_thread_can_set_handlers_and_others_may_import_too() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def enter() -> None:
        with ending_at_once():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert [before] == seen


class Interrupted(dp.Plugin):
    """Its user is tired of waiting."""

    resource = "example.com/thing"

    def discover(self) -> list[dp.Device]:
        raise KeyboardInterrupt


def test_a_command_that_is_interrupted_before_it_serves_ends_by_the_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leave(status: int) -> None:
        raise SystemExit(status)

    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    monkeypatch.setattr(os, "_exit", leave)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            dp.main(Interrupted, argv=["--once"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert ([signal.SIGINT], 130) == (raised, ended.value.code)


@pytest.mark.parametrize("number", BOTH)
def test_a_stop_sets_the_event_of_a_tool(number: signal.Signals) -> None:
    handlers = {one: signal.getsignal(one) for one in BOTH}
    try:
        stop = set_when_stopped()
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)
