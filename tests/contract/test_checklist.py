"""Every plugin has what the checklist asks for, and one that has not is told what it lacks."""

import re
import shutil
import sys
from pathlib import Path

import pytest

import checklist

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "common/docs/new-plugin.md"
PLUGINS = checklist.plugins()


def test_a_plugin_has_all_of_the_checklist(tmp_path: Path) -> None:
    assert [] == checklist.missing("gopher")
    # What is no plugin of mypy's is not run: of the others the end to end suite runs each.
    for name in ("plugins", "deployments", "demo", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pyproject.toml").write_text("[tool.mypy]\nmypy_path = []\n")
    lines = {one: f'pyproject.toml: add "plugins/{one}/src" to mypy_path' for one in PLUGINS}
    assert {one: [line] for one, line in lines.items()} == {
        one: checklist.missing(one, tmp_path) for one in PLUGINS
    }
    text = (ROOT / "pyproject.toml").read_text()
    assert [] == [one for one in PLUGINS if f'"plugins/{one}/src"' not in text]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of what the checklist looks at of the gopher plugin without running it."""
    for place in (*checklist.FILES, "tests/plugins/{}/test_gopher.py", "pyproject.toml"):
        target = tmp_path / place.format("gopher")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place.format("gopher"), target)
    return tmp_path


def test_what_is_not_there_is_named(tree: Path) -> None:
    for place in (*checklist.FILES, "tests/plugins/{}/test_gopher.py"):
        (tree / place.format("gopher")).unlink()
    file = tree / "pyproject.toml"
    file.write_text(file.read_text().replace('  "plugins/gopher/src",\n', ""))
    *files, tests, types = checklist.missing("gopher", tree)
    assert [place.format("gopher") for place in checklist.FILES] == [
        line.partition(": add ")[0] for line in files
    ]
    assert tests.startswith("plugins/gopher/tests: add tests")
    assert 'pyproject.toml: add "plugins/gopher/src" to mypy_path' == types


def test_a_plugin_that_does_not_run_lacks_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_LOG_LEVEL", "loud")
    lines = checklist.missing("gopher")
    assert 3 == len(lines)
    assert lines[0].startswith("gopher-device-plugin --print-config: status 2: ")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (line,) = checklist.missing("gopher")
    assert line == (
        "/nowhere/gopher-device-plugin: is not there: add the command to scripts, then make setup"
    )


def test_tests_that_fail_and_suites_without_one_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checklist, "SUITES", ("one.py", "two.py"))
    monkeypatch.setattr(checklist, "OF_ALL", {})
    (tmp_path / "one.py").write_text("def test_mole() -> None: ...\n")
    (tmp_path / "two.py").write_text("def test_gopher() -> None: ...\n")
    own = tmp_path / "plugins/mole/test_own.py"
    own.parent.mkdir(parents=True)
    own.write_text("def test_digging() -> None:\n    assert False\n")
    assert [
        "plugins/mole/test_own.py::test_digging: fails",
        "two.py: has no test that passes for mole",
    ] == checklist.untested("mole", tmp_path)


def test_the_command_knows_the_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == checklist.main(["gopher", "mole"])
    assert "no plugin ['mole']: name some of amd, " in capsys.readouterr().err


def test_the_page_is_numbered_and_names_what_a_reviewer_expects() -> None:
    items = re.findall(r"^(\d+)\. \*\*(.+?)\*\*", PAGE.read_text(), re.MULTILINE)
    assert [str(number) for number in range(1, len(items) + 1)] == [number for number, _ in items]
    expected = {
        *("Code", "Settings", "Docs", "Unit tests", "End to end", "Image", "Deployment"),
        *("Example", "Dashboards and alerts", "README"),
    }
    assert expected <= {title for _, title in items}


@pytest.mark.parametrize(
    "place", ["CONTRIBUTING.md", "common/testing/src/deviceplugin_testing/tools/new/_cli.py"]
)
def test_whoever_starts_a_plugin_is_shown_the_checklist(place: str) -> None:
    assert "common/docs/new-plugin.md" in (ROOT / place).read_text()
