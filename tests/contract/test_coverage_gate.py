"""Each package has a gate of its own, and a package below it is told with its lines."""

import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

from coverage_gate import Gate, gates

ROOT = Path(__file__).parents[2]
GATE = ROOT / "build/coverage_gate.py"
CODE = """\
def half(number):
    if number % 2:
        return None
    return number // 2


half(4)
"""


def of(path: str, gate: Gate) -> bool:
    return fnmatch(path, gate.include) and not any(fnmatch(path, one) for one in gate.omit)


def test_every_module_is_behind_exactly_one_gate() -> None:
    folders = ("common/node/src", "operator/src", "plugins/*/src")
    sources = [path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")]
    paths = [str(path.relative_to(ROOT)) for path in sources if not path.stem.endswith("_pb2")]
    behind = {path: [gate.name for gate in gates() if of(path, gate)] for path in paths}
    assert {} == {path: names for path, names in behind.items() if len(names) != 1}


def test_the_core_is_to_be_covered_whole_and_everything_else_nearly(tmp_path: Path) -> None:
    least = {gate.name: gate.least for gate in gates()}
    assert 100 == least.pop("the core")
    assert 90 <= min(least.values())
    (tmp_path / "plugins/lamp/src").mkdir(parents=True)
    assert Gate("lamp", 90, "plugins/lamp/src/*") in gates(tmp_path)


def run(folder: Path, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run Python without measuring it.

    In a process of its own: a second ``Coverage`` in this one ends the measurement of the first.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )


def test_packages_that_are_below_are_told_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.coverage.run]\nbranch = true\n")
    (tmp_path / "plugins/lamp/src").mkdir(parents=True)
    (tmp_path / "plugins/lamp/src/halves.py").write_text(CODE)
    done = run(tmp_path, GATE, tmp_path)
    said = f"{tmp_path}/.coverage: does not exist; run: coverage combine\n"
    assert (2, True) == (done.returncode, said in done.stderr)
    run(tmp_path, "-m", "coverage", "run", "plugins/lamp/src/halves.py").check_returncode()
    done = run(tmp_path, GATE, tmp_path)
    assert 1 == done.returncode
    nothing = "the core                 0.000 %  below 100\nnothing of it has been run\n"
    assert nothing in done.stdout
    # 5 of 7 statements and branches.
    assert "lamp                    71.429 %  below 90\n" in done.stdout
    (row,) = (line for line in done.stdout.splitlines() if "halves.py" in line)
    assert "3" == row.split()[-1]
