"""What a plugin's ``--once`` prints for a tree of files, and what its page shows of it."""

import os
import subprocess
from pathlib import Path

from patience import PATIENCE

Rows = list[list[str]]
"""The words of each row: how wide columns are is not compared."""


def printed(command: Path, sys: Path, dev: Path, *flags: str) -> Rows:
    """Return the rows that the command prints, with device nodes as on a node."""
    done = subprocess.run(
        [command, "--once", "--log-level=error", f"--sysfs-dir={sys}", f"--dev-dir={dev}", *flags],
        env={**os.environ, "DP_STATE_FILE": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return _rows(done.stdout.replace(str(dev), "/dev"))


def on_page(page: str, command: str) -> Rows:
    """Return the rows that a page shows below a command."""
    return _rows(page.partition(f"$ {command}\n")[2].partition("```")[0])


def _rows(text: str) -> Rows:
    return [line.split() for line in text.splitlines()]
