"""What tests stand on has a place, a description and a name of its own."""

import re
import sys
import tomllib
from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHONPATH = [
    ROOT / folder
    for folder in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"][
        "pythonpath"
    ]
]
FOLDERS = [*ROOT.glob("tests/support/*/"), *ROOT.glob("e2e/support/*/")]


def modules(folder: Path) -> set[str]:
    """Return the names that can be imported from ``folder``."""
    packages = {path.parent.name for path in folder.glob("*/*.py")}
    return packages | {path.stem for path in folder.glob("*.py")}


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent for folder in FOLDERS for path in folder.rglob("*.py")}),
    ids=lambda folder: str(folder.relative_to(ROOT)),
)
def test_every_folder_says_what_its_modules_are(folder: Path) -> None:
    page = (folder / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+\.py)`", page))
    assert named == {path.name for path in folder.glob("*.py")}


def test_the_map_names_every_folder_and_module() -> None:
    page = (ROOT / "tests/support/README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\((\w+)/README\.md\)|`(\w+)\.py`", page))
    assert {"".join(names) for names in named} == modules(ROOT / "tests/support")


def test_no_name_hides_another_module() -> None:
    names = Counter(name for folder in PYTHONPATH for name in modules(folder))
    others = {*sys.stdlib_module_names, *packages_distributions(), *modules(ROOT)}
    others |= {path.name for path in ROOT.iterdir() if path.is_dir()}  # with `python -m`
    assert [] == sorted(name for name, count in names.items() if name in others or count > 1)
