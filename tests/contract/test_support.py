"""What tests stand on has a place, a description and a name of its own."""

import ast
import re
import sys
import tomllib
from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHONPATH = [
    ROOT / folder
    for folder in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"][
        "pythonpath"
    ]
]
FOLDERS = [
    folder
    for place in ("tests/support", "e2e/support")
    for folder in ROOT.glob(f"{place}/*/")
    if [*folder.rglob("*.py")]
]


def modules(folder: Path) -> set[str]:
    """Return the names that can be imported from ``folder``."""
    packages = {path.parent.name for path in folder.glob("*/*.py")}
    return packages | {path.stem for path in folder.glob("*.py")}


def test_every_module_says_what_it_is() -> None:
    paths = sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))
    said = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for path in paths}
    assert [] == [path for path, docstring in said.items() if not docstring]


def test_the_page_names_every_folder() -> None:
    page = (ROOT / "tests/README.md").read_text(encoding="utf-8")
    tested = {path.name for path in (ROOT / "tests").iterdir() if [*path.rglob("test_*.py")]}
    assert set() == {name for name in tested if not re.search(rf"`{name}[`/]", page)}


def test_no_name_hides_another_module() -> None:
    names = Counter(name for folder in PYTHONPATH for name in modules(folder))
    others = {*sys.stdlib_module_names, *packages_distributions(), *modules(ROOT)}
    others |= {path.name for path in ROOT.iterdir() if path.is_dir()}  # with `python -m`
    assert [] == sorted(name for name, count in names.items() if name in others or count > 1)
