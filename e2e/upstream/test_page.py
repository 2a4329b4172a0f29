"""The page and the tests have the same scenarios."""

import ast
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE / "README.md").read_text(encoding="utf-8")


def titles(path: Path) -> dict[str, str]:
    """Return the titles that each test of a file has in its docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (one for one in tree.body if isinstance(one, ast.FunctionDef))
    return {
        one.name: ast.get_docstring(one) or "" for one in functions if one.name.startswith("test_")
    }


def test_the_page_has_each_test_in_the_table_of_its_file() -> None:
    sections = {
        found[1]: re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        for section in PAGE.split("\n## ")
        if (found := re.search(r"^`(test_\w+\.py)`", section, re.MULTILINE))
    }
    files = [path for path in HERE.glob("test_*.py") if path != Path(__file__)]
    assert {
        path.name: [name.removeprefix("test_") for name in titles(path)] for path in files
    } == sections


def test_each_test_says_which_case_it_follows() -> None:
    files = [path for path in HERE.glob("test_*.py") if path != Path(__file__)]
    assert [] == [name for path in files for name, title in titles(path).items() if not title]


def test_what_is_elsewhere_is_there_and_nowhere_else() -> None:
    rows = re.findall(r"^\| (.+?) \| `(tests/.+?)::(\w+)`", PAGE, re.MULTILINE)
    assert [] == [name for _, path, name in rows if name not in titles(HERE.parents[1] / path)]
    assert 1 == max(Counter(title for title, _, _ in rows).values())
    own = " ".join(title for path in HERE.glob("test_*.py") for title in titles(path).values())
    assert [] == [title for title, _, _ in rows if title in " ".join(own.split())]
