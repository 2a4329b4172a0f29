"""A plugin's command in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patience import PATIENCE

GOPHER = str(Path(sys.executable).with_name("gopher-device-plugin"))


def environment(**variables: str) -> Mapping[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("DP_")}
    return {**ours, **variables}


def run(*arguments: str, command: str = GOPHER, **variables: str) -> tuple[int, str, list[str]]:
    """Exit status, output, and the lines of standard error."""
    done = subprocess.run(
        [*command.split(), *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, done.stderr.splitlines()


class Process:
    """A command that runs until it is stopped."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def wait_for(self, event: str) -> dict[str, Any]:
        """Read the log up to ``event`` and return its fields."""
        return self.read_until(event)[-1]

    def read_until(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of all events up to ``event``."""
        read: list[dict[str, Any]] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            read.append(json.loads(line))
            if event == read[-1]["event"]:
                return read
        raise AssertionError(f"no {event!r} in {read}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Return the exit status."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        self.process.stderr.read()
        return self.process.wait(PATIENCE)


@contextmanager
def started(
    plugin_dir: Path, *arguments: str, command: str = GOPHER, **variables: str
) -> Iterator[Process]:
    words = [f"--plugin-dir={plugin_dir}", "--http-address=off", "--log-format=json"]
    process = subprocess.Popen(
        [*command.split(), *words, *arguments],
        env=environment(**variables),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Process(process)
    finally:
        process.kill()
        sys.stderr.write(process.communicate()[1])  # for whoever looks why a test has failed
