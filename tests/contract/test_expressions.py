"""Expressions that the API server evaluates: what outsiders write makes nothing large there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOUNDED = re.compile(r"size\([^()]*(\(\[\]\))?\)|\d{1,3}")
"""The size of a list, which is a part of the request, or a small number of ours."""
FILES = [*ROOT.glob("deployments/**/*.*"), *ROOT.glob("*/**/*.md"), *ROOT.glob("*.md")]


def unbounded(text: str) -> list[str]:
    """Return what ranges are made of that somebody's number could be."""
    found = [argument(rest).strip() for rest in text.split("lists.range(")[1:]]
    return [one for one in found if not BOUNDED.fullmatch(one)]


def argument(text: str) -> str:
    """Return the beginning of ``text`` until the parenthesis that closes it."""
    depth = 0
    for place, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            return text[:place]
    return text


def test_no_list_is_as_long_as_a_number_of_the_object() -> None:
    found = {
        str(path.relative_to(ROOT)): what
        for path in FILES
        if path.is_file() and (what := unbounded(path.read_text(encoding="utf-8")))
    }
    assert {} == found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("lists.range(size(object.spec.containers))", []),
        ("lists.range(size(object.spec.?initContainers.orValue([])))", []),
        ("lists.range(64).filter(n, n < 2)", []),
        ("lists.range(variables.counts[i]).map(n, n)", ["variables.counts[i]"]),
        ("lists.range(\n  object.spec.replicas)", ["object.spec.replicas"]),
        ("lists.range(1000000)", ["1000000"]),
        ("lists.range(64 * params.n)", ["64 * params.n"]),
        ("lists.range(size(a) * size(b))", ["size(a) * size(b)"]),
    ],
)
def test_a_list_that_is_as_long_as_a_number_is_found(expression: str, expected: list[str]) -> None:
    assert expected == unbounded(expression)
