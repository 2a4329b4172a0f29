"""Every plugin has what the checklist asks for, and one that has not is told what to add where."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import checklist

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "common/docs/new-plugin.md"
OWN = (
    *("plugins/{}", "deployments/{}", "demo/examples/{}", "e2e/cases/{}.py"),
    "tests/plugins/{}",
)
OPERATOR = (
    "operator/pyproject.toml",
    "build/operator.Dockerfile",
    "deployments/operator/samples/gopher.yaml",
    "deployments/operator/crd/deviceplugins.yaml",
)


@pytest.mark.parametrize("plugin", checklist.plugins())
def test_a_plugin_has_all_of_the_checklist(plugin: str) -> None:
    assert [] == checklist.missing(plugin)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of all that the checklist looks at of the gopher plugin."""
    own = [place.format("gopher") for place in OWN]
    for place in (*own, *OPERATOR, "README.md", "pyproject.toml"):
        target = tmp_path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / place).is_dir():
            shutil.copytree(ROOT / place, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / place, target)
    assert [] == checklist.missing("gopher", tmp_path)
    return tmp_path


def without(place: str) -> Callable[[Path], object]:
    def remove(tree: Path) -> None:
        path = tree / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def replaced(place: str, old: str, new: str) -> Callable[[Path], object]:
    def replace(tree: Path) -> None:
        text = (tree / place).read_text()
        assert old in text
        (tree / place).write_text(text.replace(old, new))

    return replace


PACKAGE = "plugins/gopher/src/deviceplugin_gopher"
LACKS: dict[str, Callable[[Path], object]] = {
    "plugins/gopher/pyproject.toml: add it; that of plugins/template is an example": without(
        "plugins/gopher/pyproject.toml"
    ),
    "plugins/gopher/pyproject.toml: add the command gopher-device-plugin to scripts": replaced(
        "plugins/gopher/pyproject.toml", "gopher-device-plugin =", "gophers ="
    ),
    f"{PACKAGE}/__init__.py: add the package": without(f"{PACKAGE}/__init__.py"),
    f"{PACKAGE}/py.typed: add it, empty: the types are public": without(f"{PACKAGE}/py.typed"),
    "plugins/gopher/README.md: add a page: what it is, how it is run, its settings": without(
        "plugins/gopher/README.md"
    ),
    "plugins/gopher/tests: add tests, on the simulated kubelet": without("tests/plugins/gopher"),
    'pyproject.toml: add "plugins/gopher/src" to mypy_path': replaced(
        "pyproject.toml", '  "plugins/gopher/src",\n', ""
    ),
    "README.md: add a row for gopher to the table of plugins": replaced(
        "README.md", "| [gopher]", "| [gophers]"
    ),
    "deployments/gopher/kustomization.yaml: add it; that of deployments/gopher is an example": (
        without("deployments/gopher")
    ),
    "deployments/gopher/kustomization.yaml: add the image, with newName: gopher-device-plugin": (
        replaced("deployments/gopher/kustomization.yaml", "newName: gopher-", "newName: mole-")
    ),
    "demo/examples/gopher/pod.yaml: add a pod that asks for a device; that of gopher is an "
    "example": without("demo/examples/gopher/pod.yaml"),
    "demo/examples/gopher/README.md: add what the example needs and what one will see; that of "
    "gopher is an example": without("demo/examples/gopher/README.md"),
    "e2e/cases/gopher.py: add its case of the end to end suite; that of gopher is an "
    "example": without("e2e/cases/gopher.py"),
    f"{OPERATOR[0]}: add a dependency, for the operator": replaced(
        OPERATOR[0], "deviceplugin-gopher", "deviceplugin-mole"
    ),
    f"{OPERATOR[1]}: add it to the wheels of the image, for the operator": replaced(
        OPERATOR[1], "plugins/gopher", "plugins/gophers"
    ),
    f"{OPERATOR[2]}: add an object, for the operator": without(OPERATOR[2]),
    f"{OPERATOR[3]}: add its settings: python -m deviceplugin_operator.crd --write, for the "
    "operator": replaced(OPERATOR[3], "- gopher\n", "- mole\n"),
}


@pytest.mark.parametrize("sentence", LACKS)
def test_a_plugin_that_lacks_something_is_told_what_to_add_where(sentence: str, tree: Path) -> None:
    LACKS[sentence](tree)
    assert [sentence] == checklist.missing("gopher", tree)


def test_a_plugin_that_the_operator_does_not_know_at_all_lacks_nothing(tree: Path) -> None:
    for place in OPERATOR:
        without(place)(tree)
    assert [] == checklist.missing("gopher", tree)


def test_a_folder_with_nothing_in_it_lacks_everything(tree: Path) -> None:
    (tree / "plugins/mole").mkdir()
    assert ["gopher", "mole"] == checklist.plugins(tree)
    assert 7 == len(checklist.missing("mole", tree))


def test_the_command_prints_what_is_missing_and_knows_the_plugins() -> None:
    def run(*words: str) -> tuple[int, str, str]:
        command = [sys.executable, checklist.__file__, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert (0, "", "") == run()
    assert (0, "", "") == run("gopher", "template")
    assert (2, "", "checklist.py: no folder in plugins/: mole\n") == run("gopher", "mole")


def test_the_page_is_numbered_and_names_what_a_reviewer_expects() -> None:
    items = re.findall(r"^(\d+)\. \*\*(.+?)\*\*", PAGE.read_text(), re.MULTILINE)
    assert [str(number) for number in range(1, len(items) + 1)] == [number for number, _ in items]
    expected = {
        *("Code", "Settings", "Docs", "Unit tests", "End to end", "Image", "Deployment"),
        *("Example", "Dashboards and alerts", "README", "CHANGELOG"),
    }
    assert expected <= {title for _, title in items}


@pytest.mark.parametrize(
    "place", ["CONTRIBUTING.md", "common/testing/src/deviceplugin_testing/tools/new/_cli.py"]
)
def test_whoever_starts_a_plugin_is_shown_the_checklist(place: str) -> None:
    assert "common/docs/new-plugin.md" in (ROOT / place).read_text()
