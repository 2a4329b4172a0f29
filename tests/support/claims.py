"""The claims of a page: a table whose last column names tests."""

import re
from pathlib import Path


def without_a_test(page: str, heading: str, tests: Path) -> list[str]:
    """Return the tests that the table below ``heading`` names and that ``tests`` does not have.

    Each row ends in the names of tests, or in a dash; a row that does not fails the test. A name
    may have its file before it, by the path from ``tests``.
    """
    table = page.partition(f"{heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .*\| (`[\w/]*test_.*|-) \|$", table, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| ", table, re.MULTILINE)) - 1
    there = "".join(path.read_text() for path in tests.glob("test_*.py"))
    named = [name for row in rows for name in re.findall(r"`(?:([\w/]+\.py)::)?(\w+)`", row)]
    return [
        name
        for file, name in named
        if f"def {name}(" not in ((tests / file).read_text() if file else there)
    ]
