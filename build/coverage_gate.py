"""Report how much of each package the tests cover, and fail if that is too little.

    .venv/bin/python build/coverage_gate.py [CHECKOUT]

CHECKOUT is where `coverage combine` has written `.coverage`; by default this one. It exits with 1
if a package is below its limit, and prints the missing lines.
"""

import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coverage import Coverage
from coverage.exceptions import NoDataError

ROOT: Final = Path(__file__).parents[1]
GENERATED: Final = ("*_pb2.py",)
CONFORMANCE: Final = "common/testing/src/deviceplugin_testing/conformance/*"
COMMANDS: Final = "common/testing/src/deviceplugin_testing/tools/*"
TOOLS: Final = "common/node/src/deviceplugin/tools/*"


@dataclass(frozen=True, slots=True)
class Gate:
    """A package, and how many per cent of its statements and branches must be covered."""

    name: str
    least: float
    include: str
    omit: Sequence[str] = GENERATED


def gates(root: Path = ROOT) -> Iterator[Gate]:
    """Yield the gates. A new plugin has one without a change here."""
    yield Gate("the core", 100, "common/node/src/*", (*GENERATED, TOOLS))
    yield Gate("its tools", 90, TOOLS)
    yield Gate("the simulated kubelet", 100, "common/testing/src/*", (CONFORMANCE, COMMANDS))
    yield Gate("the conformance suite", 95, CONFORMANCE)
    yield Gate("commands for authors", 90, COMMANDS)
    yield Gate("the command line", 90, "common/cli/src/*")
    yield Gate("the operator", 90, "operator/src/*")
    for path in sorted(root.glob("plugins/*/src")):
        yield Gate(path.parent.name, 90, f"plugins/{path.parent.name}/src/*")


def judged(gate: Gate, data: Coverage) -> tuple[float, str]:
    """Return how many per cent are covered, and a table of what is not."""
    table = io.StringIO()
    try:
        covered = data.report(
            include=[gate.include],
            omit=list(gate.omit),
            file=table,
            show_missing=True,
            skip_covered=True,
        )
    except NoDataError:
        return 0.0, "nothing of it has been run\n"
    return covered, table.getvalue()


def main(words: Sequence[str]) -> int:
    """Print a line for each package, and what is missing; return 1 if any is below its limit."""
    root = Path(words[0]) if words else ROOT
    file = root / ".coverage"
    if not file.is_file():
        sys.stderr.write(f"coverage_gate.py: {file}: does not exist; run: coverage combine\n")
        return 2
    data = Coverage(str(file), config_file=str(root / "pyproject.toml"))
    data.load()
    failed = False
    for gate in gates(root):
        covered, table = judged(gate, data)
        below = covered < gate.least
        failed = failed or below
        verdict = f"below {gate.least:g}" if below else f"at least {gate.least:g}"
        print(f"{gate.name:21} {covered:8.3f} %  {verdict}")
        if below:
            print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
