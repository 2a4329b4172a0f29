"""Each package has a gate of its own, and a package below it is told with its lines."""

import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from coverage import Coverage

import coverage_gate
from coverage_gate import Gate, gates, judged

ROOT = Path(__file__).parents[2]
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
    sources = (*ROOT.glob("common/src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py"))
    paths = [str(path.relative_to(ROOT)) for path in sources if not path.stem.endswith("_pb2")]
    behind = {path: [gate.name for gate in gates() if of(path, gate)] for path in paths}
    assert {} == {path: names for path, names in behind.items() if len(names) != 1}


def test_the_core_is_to_be_covered_whole_and_everything_else_nearly() -> None:
    least = {gate.name: gate.least for gate in gates()}
    assert 100 == least.pop("the core")
    assert 90 <= min(least.values())


def test_a_plugin_that_is_added_has_a_gate(tmp_path: Path) -> None:
    (tmp_path / "plugins/lamp/src").mkdir(parents=True)
    assert Gate("lamp", 90, "plugins/lamp/src/*") in gates(tmp_path)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coverage:
    """Return the data of a run of one module, of six statements and branches of which two fail."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    (tmp_path / "made/halves.py").write_text(CODE)
    (tmp_path / "rc").write_text("[run]\nbranch = true\n")
    words = ["run", "--rcfile=rc", "made/halves.py"]
    subprocess.run(
        [sys.executable, "-m", "coverage", *words],
        env={k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")},
        check=True,
    )
    found = Coverage(".coverage", config_file="rc")
    found.load()
    return found


def test_statements_and_branches_count_and_missing_lines_are_named(data: Coverage) -> None:
    covered, table = judged(Gate("made", 100, "made/*"), data)
    assert 100 * 5 / 7 == pytest.approx(covered)  # 4 of 5 statements, 1 of 2 branches
    assert "halves.py" in table
    assert table.splitlines()[2].endswith(" 3")


def test_a_package_of_which_nothing_was_run_is_not_covered(data: Coverage) -> None:
    covered, table = judged(Gate("other", 90, "other/*"), data)
    assert (0, "nothing of it has been run\n") == (covered, table)


@pytest.mark.usefixtures("data")
def test_the_command_fails_where_packages_are_below_and_where_there_is_no_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 1 == coverage_gate.main([".coverage"])
    assert "the core                 0.000 %  below 100\n" in capsys.readouterr().out
    assert 2 == coverage_gate.main(["nowhere"])
    assert "nowhere: is not there; run: coverage combine\n" in capsys.readouterr().err
