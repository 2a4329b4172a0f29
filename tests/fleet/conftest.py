from collections.abc import Iterator

import pytest

from cluster.scripted_api import Script, running
from deviceplugin_cli.fleet._cli import main
from fleets.objects import Run


@pytest.fixture
def script() -> Iterator[Script]:
    with running(Script()) as server:
        yield server


@pytest.fixture
def run(script: Script, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command: exit status, output, errors."""

    def call(*words: str) -> tuple[int, str, str]:
        status = main([f"--api={script.url}", *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call
