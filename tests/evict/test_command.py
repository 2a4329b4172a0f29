"""The command itself: how it starts, what it says, how it ends."""

import signal
import subprocess
import sys

import pytest

from cluster.scripted_api import Script, running
from deviceplugin.tools.evict._cli import main


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "--node"),
        (
            ["--node=n"],
            "this is not a pod: KUBERNETES_SERVICE_HOST and _PORT are not set; give --api",
        ),
        (["--node=n", "--patience=1s"], "--patience 1s: is less than 2m"),
        (["--node=n", "--per-minute=0"], "'0' is not a number from 1 to 1000"),
        (["--node=n", "--interval=1h"], "'1h' is not between 1s and 30s"),
    ],
)
def test_a_wrong_command_line_is_told(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert 2 == main(words)
    assert text in capsys.readouterr().err


def test_it_waits_for_its_plugin_and_ends_when_told_to() -> None:
    with running(Script()) as script:
        words = ["--node=n", f"--api={script.url}", "--plugin=http://127.0.0.1:1", "--interval=1s"]
        process = subprocess.Popen(
            [sys.executable, "-m", "deviceplugin", "evict", *words],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        lines = [process.stderr.readline(), process.stderr.readline()]
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(30)
        assert "" == process.stderr.read()
        process.stderr.close()
    assert "watching for pods to evict" in lines[0]
    assert "plugin of a node unreachable" in lines[1]
    assert [] == script.asked
