"""What was found: lines while it runs, and a text that a user can attach."""

import platform
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from deviceplugin._app.exit_status import FAILED, complain
from deviceplugin.checks import Finding
from deviceplugin.tools.doctor._check import Result
from deviceplugin.tools.doctor._cli import failed, line, text

_WIDTH = len("provocation")


class Report:
    """The findings, each of a step. Each is also printed to standard error at once."""

    def __init__(self, title: str, path: Path) -> None:
        self._path = path
        self._facts = [
            f"{title}, deviceplugin {version('deviceplugin')}, Python {platform.python_version()}",
            f"{platform.system()} {platform.release()} {platform.machine()}",
        ]
        self._results: list[Result] = []

    def add(self, step: str, findings: Iterable[Finding]) -> None:
        """Add findings."""
        for one in findings:
            self._results.append(Result(step, one))
            sys.stderr.write(f"{line(self._results[-1], _WIDTH, colour=False)}\n")

    def write(self) -> int:
        """Write the file, which has no name of the machine and no pods; return the exit status."""
        results = [*self._results]
        page = "\n".join([*self._facts, "", text(results, verbose=True, colour=False)])
        try:
            self._path.write_text(page, encoding="utf-8")
        except OSError as error:  # such as a full disk: what was found is not lost
            sys.stdout.write(page)
            complain("deviceplugin accept", f"{self._path}: {error.strerror}: see it above")
            return FAILED
        sys.stdout.write(f"{page.splitlines()[-1]}; the report is in {self._path}\n")
        return FAILED if failed(results) else 0
