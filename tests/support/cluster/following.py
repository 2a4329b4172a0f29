"""A reader who carries out what a page says, and compares what is printed with what it shows."""

import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from patience import PATIENCE, eventually

_BLOCK = re.compile(
    r"^(?:<!-- (?P<event>.+) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"# (\S+\.\w+)\n")
_LOOK = re.compile(r"kubectl (--namespace \S+ )?(get|logs|exec) ")
_VARIES = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)", "TIME"),
    (r"\b\d+\.\d\ds$", "SECONDS"),
    (r" {2,}", "  "),
)
NEVER: Mapping[str, Callable[[], object]] = {}


class Shell:
    """A shell of the reader's; each command begins in the directory where the last one ended."""

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        self.place, self._environment = place, environment

    def run(self, command: str) -> tuple[int, str]:
        """Return the exit status of a command, and what it prints."""
        with tempfile.NamedTemporaryFile("r") as ended:
            done = subprocess.run(
                ["bash", "-ec", f"{command}\npwd >{ended.name}"],
                cwd=self.place,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
            self.place = Path(ended.read().strip() or self.place)
        return done.returncode, done.stdout


class Followed(NamedTuple):
    commands: list[str]
    seconds: float
    """How long the commands took."""


def follow(
    page: str,
    shell: Shell,
    *,
    instead: Iterable[tuple[str, str]] = (),
    events: Mapping[str, Callable[[], object]] = NEVER,
    printed: tuple[str, str] = ("", ""),
) -> Followed:
    """Carry out a page, block by block; fail if something else is printed than it shows.

    A command that only looks is run again until it prints just that; of another it is the end. A
    block whose first line names a file in a comment is written there. ``instead`` has what is
    replaced in commands, such as places of a node; ``events`` what happens before a block with
    that comment above it; ``printed`` what can be printed as well, and what is shown for that.
    """
    commands, seconds = [], 0.0
    for block in _BLOCK.finditer(page):
        if block["event"] in events:
            events[block["event"]]()
        if named := _FILE.match(block["body"]):
            (shell.place / named[1]).write_text(block["body"])
        for step in re.split(r"^\$ ", block["body"], flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            here = command
            for old, new in instead:
                here = here.replace(old, new)
            began = time.monotonic()
            _carry_out(shell, here, shown, printed)
            seconds += time.monotonic() - began
            commands.append(command)
    return Followed(commands, seconds)


def _carry_out(shell: Shell, command: str, shown: str, printed: tuple[str, str]) -> None:
    status, said = 0, ""

    def is_as_shown() -> bool:
        nonlocal status, said
        status, said = shell.run(command)
        found, wanted = _same(said.replace(*printed)), _same(shown)
        return status == 0 and (found == wanted if looks else found.endswith(wanted))

    looks = bool(shown and _LOOK.match(command))
    limit = PATIENCE if looks else 0
    eventually(is_as_shown, lambda: f"{command}\n{shown}It said:\n{said}", timeout=limit, every=0.2)


def _same(text: str) -> str:
    """Return a text without what is different each time."""
    for pattern, word in _VARIES:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text
