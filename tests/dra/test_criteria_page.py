"""What the page about the criteria of DRA names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "common/docs/dra-criteria.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`([\w/]+/test_\w+\.py)`", PAGE))))
def test_each_file_of_tests_is_there(file: str) -> None:
    assert (ROOT / "tests" / file).is_file()


def test_each_criterion_has_a_row() -> None:
    rows = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    assert [str(number) for number in range(1, 28)] == rows
